// Measures where the time of a program goes: operations, layers, phases of a step and kernels, with
// what they read, write and multiply. The result is a table, and a trace that Perfetto and
// chrome://tracing show.
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
  /// Largest number of spans in the trace; each takes about 100 bytes while it is recorded. Further
  /// ones are only in the tables.
  std::int64_t max_spans = 1'000'000;
  /// Also makes NVTX ranges, which NVIDIA's profilers show. An error in a build without CUDA.
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
  std::string name;           ///< name of the operation, module, phase or kernel
  bool backward = false;      ///< within a backward pass
  std::string detail;         ///< operation and dtype of a kernel
  std::int64_t calls = 0;     ///< number of calls
  double seconds = 0;         ///< total time of a phase; other rows share the time and add up to it
  double device_seconds = 0;  ///< time of its kernels on CUDA devices, measured by events
  double flops = 0;           ///< operations of its matrix products
  double bytes = 0;  ///< operands of its kernels, each counted once: the least that was moved
  /// The least time that this machine needs for flops and bytes (machine_peak()), divided by the
  /// time of the kernels. Above 1 if operands were in caches. NaN if there were no kernels.
  double of_peak = 0;
};

/// Highest rates of a device, as far as firn's own kernels reach them.
struct MachinePeak {
  double flops = 0;             ///< operations a second of square matrix products of a dtype
  double bytes_per_second = 0;  ///< bytes read and written by a copy in memory
};
/// Measures the peak of a device in about 0.1 s; the second call returns the stored result. Draws
/// no random numbers. On a CUDA device it allocates tensors, which count as others do. Throws
/// DeviceError as require_device() does, and OutOfMemory.
MachinePeak machine_peak(Device device, DType dtype);

/// Records what all threads of the process do from its construction to stop(). One profile at a
/// time can run. It costs about 0.2 us for each span (an operation has two to four), and results
/// keep their bits. On a CUDA device it also costs two events a kernel, and the first kernel waits
/// for its stream. A captured graph is one span at each replay.
class Profile {
 public:
  /// Throws Error if another profile is running, for a wrong option, or if `trace` cannot be
  /// written.
  [[nodiscard]] explicit Profile(ProfileOptions options = {});
  /// Does what stop() does, but warns where that would throw.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Ends the recording and writes the trace. Waits for CUDA devices. Does nothing the second time.
  /// Throws IoError if the trace cannot be written (the tables exist nevertheless), and what
  /// synchronize() throws.
  void stop();
  /// True while it records.
  bool running() const noexcept { return running_; }

  // The functions below are for a stopped profile; before stop() they throw Error.

  /// Returns the time from construction to stop().
  double seconds() const;
  /// Returns the rows, sorted by time. The times of several threads are added up.
  std::vector<ProfileRow> rows(ProfileBy by = ProfileBy::operation) const;
  /// Returns the first rows as a text, with a line for the others, and with wall time, threads and
  /// spans left out. Throws Error if `rows` is below 1.
  std::string table(ProfileBy by = ProfileBy::operation, int rows = 20) const;
  /// Writes Chrome's trace format (JSON): a track for each thread and each stream of a device,
  /// counters for memory and loss scale. ".gz" compresses as in ProfileOptions. Throws IoError.
  void write_trace(const std::string& path) const;
  /// Returns the recording.
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
  /// If memory runs out, there is no range.
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
