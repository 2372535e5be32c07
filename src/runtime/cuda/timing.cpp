// Times of kernels on a device: events of the streams, and ranges for NVIDIA's profilers.
#include <array>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define FIRN_HAS_NVTX
#endif

#include "runtime/cuda/api.h"
#include "runtime/cuda/cuda.h"

namespace firn::memory::cuda {
namespace {

struct Timers {
  std::vector<cudaEvent_t> idle;
  cudaEvent_t base = nullptr;  // the first event of this session
  double base_seconds = 0;     // time at which the host saw it, since the session's start
  bool used = false;
};
struct AllTimers {
  std::mutex mutex;
  std::array<Timers, kMaxDevices> of;
  std::uint64_t zero = 0;
};
AllTimers& timers() noexcept {
  static AllTimers& all = *new AllTimers;
  return all;
}

std::uint64_t host_clock() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

cudaEvent_t take_event(Timers& t) noexcept {
  if (!t.idle.empty()) {
    const cudaEvent_t event = t.idle.back();
    t.idle.pop_back();
    return event;
  }
  cudaEvent_t event = nullptr;
  return succeeded(cudaEventCreate(&event)) ? event : nullptr;
}

void give_event(Timers& t, cudaEvent_t event) noexcept try {
  t.idle.push_back(event);
} catch (...) {
  succeeded(cudaEventDestroy(event));
}

/// Records an event on an idle stream, so that the host knows when it was reached.
void note_base(AllTimers& all, Timers& t, Stream stream) noexcept {
  t.used = true;
  if (!t.base) t.base = take_event(t);
  if (!t.base) return;
  count_host_wait();
  if (!succeeded(cudaStreamSynchronize(native(stream))) ||
      !succeeded(cudaEventRecord(t.base, native(stream))) ||
      !succeeded(cudaEventSynchronize(t.base))) {
    give_event(t, std::exchange(t.base, nullptr));
    return;
  }
  t.base_seconds = 1e-9 * static_cast<double>(host_clock() - all.zero);
}

}  // namespace

void start_timers(std::uint64_t zero) noexcept {
  AllTimers& all = timers();
  const std::lock_guard lock(all.mutex);
  all.zero = zero;
  for (Timers& t : all.of) t.used = false;
}

void* take_timer(Stream stream) noexcept {
  AllTimers& all = timers();
  const std::lock_guard lock(all.mutex);
  Timers& t = all.of[static_cast<std::size_t>(stream.device.index)];
  if (!succeeded(cudaSetDevice(stream.device.index))) return nullptr;
  const RelaxedCapture relaxed;
  if (!t.used) note_base(all, t, stream);
  const cudaEvent_t event = take_event(t);
  if (!event || succeeded(cudaEventRecord(event, native(stream)))) return event;
  give_event(t, event);
  return nullptr;
}

void give_timer(int device, void* timer) noexcept {
  AllTimers& all = timers();
  const std::lock_guard lock(all.mutex);
  give_event(all.of[static_cast<std::size_t>(device)], static_cast<cudaEvent_t>(timer));
}

void await_timers() {
  for (int device = 0; device < kMaxDevices; ++device) {
    bool used = false;
    {
      const std::lock_guard lock(timers().mutex);
      used = timers().of[static_cast<std::size_t>(device)].used;
    }
    if (used) synchronize_device(device);
  }
}

double seconds_between(int device, void* first, void* last) noexcept {
  float ms = 0;
  const bool known = succeeded(cudaSetDevice(device)) &&
                     succeeded(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(first),
                                                    static_cast<cudaEvent_t>(last)));
  return known ? 1e-3 * static_cast<double>(ms) : -1;
}

double seconds_at(int device, void* timer) noexcept {
  AllTimers& all = timers();
  const std::lock_guard lock(all.mutex);
  const Timers& t = all.of[static_cast<std::size_t>(device)];
  const double since = t.base ? seconds_between(device, t.base, timer) : -1;
  return since < 0 ? -1 : t.base_seconds + since;
}

#ifdef FIRN_HAS_NVTX
bool has_ranges() noexcept { return true; }
void push_range(const char* name) noexcept { nvtxRangePushA(name); }
void pop_range() noexcept { nvtxRangePop(); }
#else
bool has_ranges() noexcept { return false; }
void push_range(const char*) noexcept {}
void pop_range() noexcept {}
#endif

}  // namespace firn::memory::cuda
