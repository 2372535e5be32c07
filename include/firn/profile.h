// Where the time of a program goes: operations, layers, phases of a step and kernels, with what
// they read, write and multiply; as a table and as a trace that Perfetto and chrome://tracing show.
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
  /// A file for the trace, which stop() writes; empty: none. A name that ends in ".gz" is
  /// compressed. An existing file is replaced when the new one is complete.
  std::string trace = {};
  /// Spans that the trace has at most, about 100 bytes each while they are recorded. Further ones
  /// are in the tables alone.
  std::int64_t max_spans = 1'000'000;
  /// Also NVTX ranges, which NVIDIA's profilers show. An error in a build without CUDA.
  bool nvtx = false;
};

/// What a row of a table stands for.
enum class ProfileBy : std::uint8_t {
  operation,    ///< an operation, forward or backward; a kernel that belongs to none; the rest of a
                ///< phase
  module_path,  ///< a module by its path, with all that its calls and their backward passes did
  phase,        ///< "backward", "optimizer step", "next batch", ..., or a Range
  kernel        ///< a kernel by its operation and the dtype of its first operand
};

/// Times are in seconds. They are the host's: for a CUDA device, how long launches took.
struct ProfileRow {
  std::string name;        ///< of the operation, module, phase or kernel
  bool backward = false;   ///< within a backward pass
  std::string detail;      ///< of a kernel: its operation and dtype
  std::int64_t calls = 0;  ///< so many of them
  double seconds = 0;  ///< a phase: all of it. Other rows share the time: they add up to the whole
  double device_seconds = 0;  ///< of its kernels on CUDA devices, as events measured them
  double flops = 0;           ///< of its products
  double bytes = 0;  ///< of the operands of its kernels, each once: at least so much was moved
  /// The least time that this machine needs for flops and bytes (machine_peak()), divided by the
  /// time of the kernels. Above 1 if operands were in caches. NaN if there were none.
  double of_peak = 0;
};

/// What a device can do at most, as far as firn's own kernels reach it.
struct MachinePeak {
  double flops = 0;             ///< a second, of square products of a dtype
  double bytes_per_second = 0;  ///< read and written, of a copy in memory
};
/// Measures it, in about 0.1 s; the second time it is known. Draws no random numbers. On a CUDA
/// device it takes tensors, which count as others do. Throws DeviceError as require_device(), and
/// OutOfMemory.
MachinePeak machine_peak(Device device, DType dtype);

/// Records what all threads of the process do from its construction to stop(). One at a time. It
/// costs about 0.2 us for each span (an operation has two to four), and results keep their bits. On
/// a CUDA device it also costs two events a kernel, and the first kernel waits for its stream. What
/// a graph captured is one span at each replay.
class Profile {
 public:
  /// Throws Error if another one is running, for a wrong option, or if `trace` cannot be written.
  [[nodiscard]] explicit Profile(ProfileOptions options = {});
  /// As stop(); what that would throw is a warning.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Ends the recording and writes the trace. Waits for CUDA devices. Does nothing the second time.
  /// Throws IoError if the trace cannot be written (the tables are there all the same), and what
  /// synchronize() throws.
  void stop();
  /// Whether it records.
  bool running() const noexcept { return running_; }

  // What follows is for a profile that has been stopped; before, it throws Error.

  /// From construction to stop().
  double seconds() const;
  /// The rows, by time. With several threads their times are added up.
  std::vector<ProfileRow> rows(ProfileBy by = ProfileBy::operation) const;
  /// The first rows as a text, with a line for the others, and what it says beside: wall time,
  /// threads, spans left out. Throws Error if `rows` is below 1.
  std::string table(ProfileBy by = ProfileBy::operation, int rows = 20) const;
  /// Chrome's trace format (JSON): a track for each thread and each stream of a device, counters
  /// for memory and loss scale. ".gz" as in ProfileOptions. Throws IoError.
  void write_trace(const std::string& path) const;
  /// What was recorded.
  const runtime::SpanLog& log() const;

 private:
  void require_stopped(const char* what) const;

  ProfileOptions options_;
  bool running_ = false;
  runtime::SpanLog log_;
};

/// While alive, and if a profile runs, this thread is in a phase of that name. Names are kept for
/// ever: do not number them. Ranges end in reverse order, in the thread that has made them, and
/// before stop(); others are left out.
class Range {
 public:
  /// Without memory for it there is no range.
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
