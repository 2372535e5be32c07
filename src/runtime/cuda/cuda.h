// The CUDA functions that the runtime uses, without CUDA's types. Defined in this folder, in CUDA
// builds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/build.h"
#include "firn/memory/block.h"
#include "firn/runtime/stream.h"
#include "runtime/stream/fault.h"

namespace firn::memory {
class Accounts;
class Model;
}  // namespace firn::memory

namespace firn::memory::cuda {

/// The answer of the CUDA runtime when devices were first counted.
struct Availability {
  int devices = 0;
  std::string why;   ///< reason why there are no devices
  std::string hint;  ///< advice to the user
};
const Availability& availability() noexcept;
/// CUDA's name and text for a cudaError_t. Clears it, so that no later call reports it.
std::string describe_error(int status);

// Streams (stream.cpp). Handles are cudaStream_t and cudaEvent_t.

inline constexpr int kMaxDevices = 128;

/// The device's main stream, made at the first call.
void* main_stream(int device);
/// A stream for the caller alone, until it is given back. Returned streams are reused, so that the
/// blocks cached for them are reused too.
void* take_stream(int device);
void give_stream(int device, void* stream) noexcept;
/// Makes work queued on `waiter` from now on run after all work queued on `first` so far. Returns
/// false if CUDA refused.
bool order(int device, void* waiter, void* first) noexcept;

void record_event(void*& event, Stream stream);
void block_on_event(void* event, Stream stream);
void synchronize_event(void* event, int device);
bool event_done(void* event);
void destroy_event(void* event) noexcept;

void synchronize_device(int device);
void synchronize_stream(Stream stream);
std::uint64_t host_waits() noexcept;
void count_host_wait() noexcept;

void copy(void* dst, Device dst_device, const void* src, Device src_device, std::size_t bytes);
void copy_async(void* dst, Device dst_device, const void* src, Device src_device,
                std::size_t bytes);
void zero(void* dst, std::size_t bytes, Stream stream);

// Times of kernels (timing.cpp), for firn/runtime/spans.h. Timers are cudaEvent_t with a time.

/// Begins a session at `zero`, in ns of steady_clock.
void start_timers(std::uint64_t zero) noexcept;
/// Marks the end of what is queued on the stream; null if CUDA refused. The first one of a session
/// waits for its stream, so that the clocks of host and device can be compared.
void* take_timer(Stream stream) noexcept;
void give_timer(int device, void* timer) noexcept;
/// Waits for all devices that have timers in this session, and throws as synchronize() does.
void await_timers();
/// Returns the seconds between two timers, or a number below 0 if CUDA does not know.
double seconds_between(int device, void* first, void* last) noexcept;
/// Returns the seconds of a timer since the session's start, as above.
double seconds_at(int device, void* timer) noexcept;
/// NVTX ranges of this thread.
bool has_ranges() noexcept;
void push_range(const char* name) noexcept;
void pop_range() noexcept;

// Memory (allocator.cpp).

void allocate(MemoryBlock& b, Stream stream);
void release(MemoryBlock& b) noexcept;
std::size_t allocated_size(std::size_t bytes) noexcept;
void record_use(void* block, Stream stream);
void look(int device, const std::function<void(Accounts&)>& fn);
void begin_model(Model& model);
void release_cached(int device);

/// Returns null if there is no memory left.
void* pinned_allocate(std::size_t bytes);
void pinned_release(void* block) noexcept;
/// Returns true if the address is in a block of pinned_allocate().
bool is_pinned(const void* address) noexcept;

}  // namespace firn::memory::cuda
