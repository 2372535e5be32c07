// Measures the time of operations, layers, phases of a step and kernels, and the bytes and products
// that they take. It shows a table and a trace for Perfetto and chrome://tracing.
//
//   Profile profile({.trace = "step.json.gz"});
//   for (auto batch : loader) { ... }
//   profile.stop();
//   std::puts(profile.table().c_str());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "firn/runtime/spans.h"

namespace firn {

struct ProfileOptions {
  /// File of the trace, which stop() writes; empty: no trace. If the name ends in ".gz", the file
  /// is compressed. An existing file is replaced when the new one is complete.
  std::string trace = {};
  /// Largest number of spans in the trace, about 100 bytes each while they are recorded. Further
  /// ones are in the tables alone.
  std::int64_t max_spans = 1'000'000;
  /// Also emits NVTX ranges, which NVIDIA's profilers show. An error in a build without CUDA.
  bool nvtx = false;
};

/// Meaning of a row of a table.
enum class ProfileBy : std::uint8_t {
  operation,    ///< an operation, forward or backward; a kernel outside any; the rest of a phase
  module_path,  ///< a module by its path, with all that its calls and their backward passes did
  phase,        ///< "backward", "optimizer step", "next batch", ..., or a Range
  kernel        ///< a kernel by its operation and the dtype of its first operand
};

/// Times are in seconds. They are the host's: for a CUDA device, how long launches took.
struct ProfileRow {
  std::string name;        ///< name of the operation, module, phase or kernel
  bool backward = false;   ///< within a backward pass
  std::string detail;      ///< operation and dtype of a kernel
  std::int64_t calls = 0;  ///< number of calls
  double seconds = 0;      ///< time of a phase; other rows share the time and add up to the whole
  double device_seconds = 0;  ///< time of its kernels on CUDA devices, as events measured it
  double flops = 0;           ///< floating-point operations of its products
  double bytes = 0;  ///< bytes of its kernels' operands, each once: at least these were moved
  /// Least time that this machine needs for flops and bytes (machine_peak()), divided by the time
  /// of the kernels. Above 1 if operands were in caches. NaN if there were no kernels.
  double of_peak = 0;
};

/// Highest rates of a device, as far as firn's own kernels reach them.
struct MachinePeak {
  double flops = 0;             ///< operations a second, in square products of a dtype
  double bytes_per_second = 0;  ///< bytes a second read and written, in a copy in memory
};
/// Measures the rates, in about 0.1 s; later calls return the known values. Draws no random
/// numbers. On a CUDA device it takes tensors, which count as others do. Throws DeviceError as
/// require_device(), and OutOfMemory.
MachinePeak machine_peak(Device device, DType dtype);

/// Records the work of all threads of the process from its construction to stop(). Only one may
/// record at a time. It costs about 0.2 us for each span (an operation has two to four), and
/// results keep their bits. On a CUDA device it also costs two events a kernel, and the first
/// kernel waits for its stream. A captured graph is one span at each replay.
class Profile {
 public:
  /// Throws Error if another profile is running, for a wrong option, or if `trace` cannot be
  /// written.
  [[nodiscard]] explicit Profile(ProfileOptions options = {});
  /// Calls stop(), but warns where that throws.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Ends the recording and writes the trace. Waits for CUDA devices. Does nothing the second time.
  /// Throws IoError if the trace cannot be written (the tables are there all the same), and as
  /// synchronize() does.
  void stop();
  /// True while it records.
  bool running() const noexcept { return running_; }

  // The functions below are for a profile that has been stopped; before, they throw Error.

  /// Returns the time from construction to stop().
  double seconds() const;
  /// Returns the rows, by time. With several threads their times are added up.
  std::vector<ProfileRow> rows(ProfileBy by = ProfileBy::operation) const;
  /// Returns the first rows as a text, with a line for the others. It also says wall time, threads
  /// and spans left out. Throws Error if `rows` is below 1.
  std::string table(ProfileBy by = ProfileBy::operation, int rows = 20) const;
  /// Writes Chrome's trace format (JSON): a track for each thread and each stream of a device,
  /// counters for memory and loss scale. ".gz" as in ProfileOptions. Throws IoError.
  void write_trace(const std::string& path) const;
  /// Returns the recorded spans.
  const runtime::SpanLog& log() const;

 private:
  void require_stopped(const char* what) const;

  ProfileOptions options_;
  bool running_ = false;
  runtime::SpanLog log_;
};

/// While a Range exists and a profile runs, this thread is in a phase of that name. Names are never
/// freed: do not number them. Ranges must end in reverse order, in the thread that made them, and
/// before stop(); others are left out.
class Range {
 public:
  /// If there is no memory for it, there is no range.
  explicit Range(std::string_view name) noexcept
      : open_(runtime::recording_spans() ? runtime::open_range(name) : nullptr) {}
  ~Range() {
    if (open_) runtime::end_range(open_);
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  runtime::OpenRange* open_;
};

}  // namespace firn
