// Spans record what threads do, and for how long; firn/profile.h reads them. Operations, layers,
// the optimizer and kernels make spans; without a profile each costs one load. A tool of yours can
// take the same records by start_spans() and take_spans().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "firn/device.h"
#include "firn/dtype.h"
#include "firn/runtime/stream.h"

namespace firn::runtime {

/// Kinds of spans, from the outside inwards. Within a thread, spans nest.
enum class SpanKind : std::uint8_t {
  phase,        ///< a part of a step ("backward", "optimizer step", "next batch"), or of a program
                ///< (firn::Range)
  module_call,  ///< the call of a module
  operation,    ///< an operation of the forward pass
  gradient,     ///< the backward function of an operation
  kernel        ///< a call of a kernel, with those that it calls: on a CUDA device its launch
};
/// The phase in which a checkpoint() recomputes: spans in it count as forward.
inline constexpr char kRecomputePhase[] = "recompute";
/// Returns "phase", "module", "operation", "gradient" or "kernel".
const char* to_string(SpanKind kind) noexcept;

/// Least work of a kernel, by the shapes of its operands.
struct Work {
  double flops = 0;  ///< 2 for each multiply-add of a product; 0 for other kernels
  double bytes = 0;  ///< bytes of its operands, each read or written once
};

namespace detail {
extern constinit std::atomic<bool> spans_on;
}
/// Returns true if spans are recorded.
inline bool recording_spans() noexcept { return detail::spans_on.load(std::memory_order_relaxed); }

/// While alive, and if spans are recorded, this thread is in a span `name`. Never throws: spans
/// that the heap has no memory for are counted in SpanLog::lost. Nothing is recorded in a dry run.
class Span {
 public:
  /// `name` lives as long as the program.
  Span(SpanKind kind, const char* name) noexcept {
    if (recording_spans()) [[unlikely]]
      begin(kind, name, 0);
  }
  /// Begins the call of a module, by its number (firn/memory/labels.h).
  explicit Span(std::uint32_t module) noexcept {
    if (recording_spans()) [[unlikely]]
      begin(SpanKind::module_call, "", module);
  }
  ~Span() {
    if (on_) [[unlikely]]
      end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  /// True if the span is recorded.
  bool on() const noexcept { return on_; }
  /// Notes where a kernel will run, on what, and how much. On a CUDA device events then measure
  /// its time, but not while a graph is captured.
  void runs(Stream stream, DType dtype, Work work) noexcept;

 private:
  friend class SpanRecorder;
  friend class OpenRange;
  void begin(SpanKind kind, const char* name, std::uint32_t module) noexcept;
  void end() noexcept;

  bool on_ = false;
  bool of_range_;
  SpanKind kind_;
  DType dtype_;
  Device device_;
  std::uint32_t module_;
  const char* name_;
  std::uint64_t session_, start_, inside_;
  Span* outer_;
  Work work_;
  void *first_event_, *last_event_;
  void* stream_;
};

/// Ends the operation `op` of the forward pass. It owns the kernels that this thread has run since
/// its last operation, or since the innermost span began.
void end_operation(const char* op) noexcept;

/// Notes that `name` has a new value from now on. take_spans() calls `value`, which may wait.
/// Throws Error if `value` is empty.
void note_counter(const char* name, std::function<double()> value);

/// Returns a copy of a name that lives as long as the program. After 65,536 different names, new
/// ones become "(more names)". Throws OutOfMemory.
const char* keep_name(std::string_view name);

/// The span of a firn::Range, which a program may end in any order and in any thread.
class OpenRange;
/// Begins a range. Returns null if there is no memory for it.
OpenRange* open_range(std::string_view name) noexcept;
/// Ends a range. It is left out unless it ends in its own thread, before the spans around it.
void end_range(OpenRange* range) noexcept;

/// A span that has ended. Times are in ns since start_spans(). module_path() (firn/memory/labels.h)
/// gives the names of modules.
struct SpanRecord {
  SpanKind kind = SpanKind::phase;  ///< kind of the span
  bool again = false;               ///< true within a span of the same kind and name
  bool backward = false;            ///< true in a backward function, but for what is computed again
  DType dtype = f32;                ///< dtype of a kernel's first operand
  Device device;                    ///< device of a kernel
  std::uint32_t thread = 0;         ///< 0 is the thread that called start_spans()
  std::uint32_t module = 0;         ///< the number of the innermost module
  const char* name = "";            ///< "" for a module
  const char* op = nullptr;         ///< operation of a kernel; null: none
  std::uint64_t start = 0, end = 0;  ///< times in ns
  std::uint64_t inside = 0;          ///< ns in spans within this one
  Work work;                         ///< work of a kernel
  std::int64_t memory = -1;          ///< bytes in use on `device` at the end; -1: not asked
  const void* stream = nullptr;      ///< stream of a kernel on a CUDA device
  double device_start = -1, device_seconds = -1;  ///< seconds on a CUDA device; -1: not measured
};

/// Spans that are alike in all but their times.
struct SpanTotal {
  SpanRecord like;                 ///< its times, memory and work are of the last one
  std::uint64_t calls = 0;         ///< number of spans
  std::uint64_t ns = 0;            ///< ns without spans that are `again`
  std::uint64_t self_ns = 0;       ///< ns without spans within
  Work work;                       ///< work of all calls
  double device_seconds = 0;       ///< seconds of the calls that events measured
  std::uint64_t device_calls = 0;  ///< number of calls that events measured
};

/// All that was recorded.
struct SpanLog {
  /// A counter's value at a time.
  struct Counter {
    const char* name;    ///< "loss scale"
    std::uint64_t time;  ///< ns
    double value;        ///< value from then on
  };
  std::vector<SpanRecord> spans;  ///< spans by thread and start, outer ones first
  std::vector<SpanTotal> totals;  ///< totals of all spans, those left out of `spans` too
  std::vector<Counter> counters;  ///< values in the order of their times in each thread
  std::uint64_t left_out = 0;     ///< number missing in `spans`: more than were to be kept
  std::uint64_t lost = 0;         ///< number lost because the heap had no memory
  std::uint64_t ns = 0;           ///< ns from start to end
};

struct SpanOptions {
  std::size_t keep = 1'000'000;  ///< spans of all threads, and values of counters
  bool nvtx = false;  ///< also NVTX ranges, which NVIDIA's profilers show; needs a CUDA build
};
/// Begins to record the spans of all threads. Throws Error if they are being recorded already, or
/// for `nvtx` in a build without NVTX.
void start_spans(const SpanOptions& options = {});
/// Ends the recording and returns its records. Spans that have not ended are left out. Waits for
/// CUDA devices that kernels were measured on. Throws Error if nothing is being recorded, and what
/// synchronize() throws: nothing is being recorded then.
SpanLog take_spans();

}  // namespace firn::runtime
