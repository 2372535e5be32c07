// Services of the runtime for kernels, besides views and a stream. firn's own kernels use them. So
// can an operation of yours, written with custom() (firn/autograd.h), that launches work on
// current_stream(device).
//
//   - Scratch memory: Workspace.
//   - Dry runs: a planner asks what a step allocates, and nothing is computed.
//   - Capture: while a CUDA graph is captured, work on the device is captured and not run. The host
//     registers here its own actions for every replay.
//   - Random numbers that advance with every replay: reserve_random().
//   - Faults: bad values that only a kernel can see. The host throws when it next waits.
//   - Waits: WaitCheck is called after each wait of the host.
//   - Errors of CUDA calls: check_cuda().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "firn/device.h"
#include "firn/memory/block.h"
#include "firn/random.h"
#include "firn/runtime/stream.h"
#include "firn/thread_context.h"

namespace firn::runtime {

// ---- Scratch memory ----

/// `bytes` bytes for work on `stream`, uninitialised, aligned to 256 bytes on a CUDA device and to
/// 64 on the CPU. It may be destroyed as soon as the work is queued: the next user of the memory
/// comes later in the stream. Never waits. It comes from the caching allocator, so a repeated loop
/// does not call the system. Throws OutOfMemory.
class Workspace {
 public:
  Workspace(std::size_t bytes, Stream stream);

  /// Returns the first byte.
  void* data() const noexcept { return block_.data(); }
  /// The memory as an array of T.
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data());
  }
  /// Returns the size in bytes.
  std::size_t bytes() const noexcept { return block_.bytes(); }

 private:
  MemoryBlock block_;
};

// ---- Steps that are planned and not run (firn/memory/plan.h) ----

/// True if this thread runs a step by shapes alone. Kernels then allocate their workspace as ever,
/// and read, write and launch nothing. copy_bytes(), copy_bytes_async() and zero_bytes() do
/// nothing, and the host reads 0 for every element of a tensor.
inline bool dry_run() noexcept { return thread_context.dry_run; }
/// Returns true if this thread plans a step. Within SkipKernels alone only dry_run() is true.
bool planning() noexcept;
/// While alive, and if `on`, kernels of this thread only allocate, as in a dry run. This is for a
/// result that is never read. The host must read nothing meanwhile.
class SkipKernels {
 public:
  explicit SkipKernels(bool on) noexcept : before_(thread_context.dry_run) {
    thread_context.dry_run |= on;
  }
  ~SkipKernels() { thread_context.dry_run = before_; }
  SkipKernels(const SkipKernels&) = delete;
  SkipKernels& operator=(const SkipKernels&) = delete;

 private:
  bool before_;
};
/// While alive, kernels run though SkipKernels would skip them, unless a step is planned.
class DoNotSkip {
 public:
  DoNotSkip() noexcept : before_(thread_context.dry_run) { thread_context.dry_run = planning(); }
  ~DoNotSkip() { thread_context.dry_run = before_; }
  DoNotSkip(const DoNotSkip&) = delete;
  DoNotSkip& operator=(const DoNotSkip&) = delete;

 private:
  bool before_;
};
/// Registers `put_back`, which runs at the end of a dry run, in reverse order of such calls. Call
/// it before the host changes what a step would change. Only the first call for each `what` counts.
/// `put_back` must not throw, and must keep alive what it uses. Outside of a dry run nothing
/// happens.
void at_dry_end(const void* what, std::function<void()> put_back);

// ---- Capture of graphs (firn/runtime/graph.h) ----

/// Returns true if this thread is capturing a graph on `device`.
bool capturing(Device device) noexcept;

/// Call this before work that cannot be part of a graph: waiting for the device, reading from it,
/// copying from pageable memory of the host. Throws Error that names `op` and says why if `device`
/// is capturing.
void refuse_capture(const char* op, Device device, const char* why);

/// Registers a host effect of the work that is being captured on `device` (a position in a cycle,
/// the version of a storage). Every replay runs the effects in the order of registration, before
/// it launches the graph. The effect is not called now. Without a capture nothing happens.
void on_replay(Device device, std::function<void()> effect);

/// Registers a rollback. If the capture, the first launch or a replay fails before the work is
/// launched, rollbacks run in reverse order. Each runs only if the effects registered before it
/// ran. A rollback must not throw. Without a capture nothing happens.
void on_abandon(Device device, std::function<void()> rollback);

/// Reserves `numbers` random numbers from `generator` for a kernel on `device` and returns their
/// key. During a capture the key has a base in device memory: every replay writes the generator's
/// position there and reserves as many numbers from it. The generator must outlive the graph.
RandomKey reserve_random(Generator& generator, Device device, std::uint64_t numbers);

/// Announces that `generator` is about to move, so that RollbackPoints keep its place. Call it
/// before Generator::reserve(); reserve_random() does so itself. Throws OutOfMemory; then do not
/// reserve. Without a point nothing happens.
void about_to_draw(Generator& generator);

/// Names the next node of a capture, for Graph::summary(). `name` is a string literal. Call it for
/// every launch; without a capture it costs one thread-local load.
void note_kernel(const char* name);

// ---- Faults ----

/// A bad value that a kernel found, for example an index outside its axis. One thread of one kernel
/// fills it in; it lives in pinned host memory that the device can write. The kernel goes on, and
/// the host throws Error when it next waits for the device. Therefore a check costs no
/// synchronisation, works in a captured graph, and leaves the device usable.
struct Fault {
  static constexpr unsigned kNone = 0;      ///< nothing has happened
  static constexpr unsigned kClaimed = 1;   ///< a thread is filling it in
  static constexpr unsigned kComplete = 2;  ///< stored last, visible to the host with the rest

  unsigned raised;        ///< one of the above; a kernel claims it by compare-and-swap
  const char* op;         ///< a string literal of the host
  const char* what;       ///< name of the value, for example "index": a literal too
  std::int64_t position;  ///< index of the value in its tensor
  std::int64_t value;     ///< the value that is at fault
  std::int64_t bound;  ///< the value should be in [0, bound); below 0, `what` is the whole message
};

/// The record of `device`, to be passed to kernels. Throws DeviceError or OutOfMemory at first use.
Fault* fault_record(Device device);

// ---- Waits ----

/// While alive, `check` is called after each wait of the host for the CUDA device `device`, in the
/// thread that has waited. It throws if the awaited work did not finish, such as a collective of
/// ranks of which one died. It must not wait for the device.
class WaitCheck {
 public:
  WaitCheck(Device device, std::function<void()> check);
  ~WaitCheck();
  WaitCheck(const WaitCheck&) = delete;
  WaitCheck& operator=(const WaitCheck&) = delete;
};

// ---- Errors of CUDA calls ----

/// Throws Error with the op, the call and CUDA's name for `status`. CUDA does not report it again.
[[noreturn]] void throw_cuda_error(int status, const char* op, const char* call);

/// Throws as above unless `status`, a cudaError_t, is cudaSuccess.
inline void check_cuda(int status, const char* op, const char* call) {
  if (status != 0) [[unlikely]]
    throw_cuda_error(status, op, call);
}

}  // namespace firn::runtime
