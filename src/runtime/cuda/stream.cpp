// Streams, events, and copies in their order.
#include <array>
#include <atomic>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "firn/runtime/kernel_support.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/cuda.h"
#include "runtime/stream/fault.h"

namespace firn::memory::cuda {
namespace {

std::atomic<std::uint64_t> waits{0};

struct DeviceStreams {
  std::atomic<void*> main{nullptr};
  std::mutex mutex;
  std::vector<void*> idle;      // side streams not in use
  std::size_t made = 0;         // number of all side streams
  cudaEvent_t order = nullptr;  // see order()
};

DeviceStreams& streams_of(int device) noexcept {
  static auto& all = *new std::array<DeviceStreams, kMaxDevices>;
  return all[static_cast<std::size_t>(device)];
}

void* make_stream(int device) {
  require_device("stream", Device::cuda(device));
  set_device(device, "stream");
  const RelaxedCapture relaxed;
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream",
             "cudaStreamCreateWithFlags");
  return stream;
}

/// Waits for the work queued on the stream.
void wait(const char* op, Stream stream) {
  runtime::refuse_capture(op, stream.device, "the recorded work has not been run");
  count_host_wait();
  check_cuda(cudaStreamSynchronize(native(stream)), op, "cudaStreamSynchronize");
  throw_fault(stream.device);
}

}  // namespace

void* main_stream(int device) {
  DeviceStreams& streams = streams_of(device);
  if (void* stream = streams.main.load(std::memory_order_acquire)) [[likely]]
    return stream;
  const std::lock_guard lock(streams.mutex);
  if (!streams.main.load()) streams.main.store(make_stream(device), std::memory_order_release);
  return streams.main.load();
}

void* take_stream(int device) {
  require_device("stream", Device::cuda(device));
  DeviceStreams& streams = streams_of(device);
  const std::lock_guard lock(streams.mutex);
  for (auto it = streams.idle.rbegin(); it != streams.idle.rend(); ++it) {
    void* stream = *it;
    if (is_capturing(stream)) continue;  // a branch of a graph that is still being captured
    streams.idle.erase(std::next(it).base());
    return stream;
  }
  streams.idle.reserve(streams.idle.size() + ++streams.made);  // giving back cannot fail
  return make_stream(device);
}

void give_stream(int device, void* stream) noexcept {
  DeviceStreams& streams = streams_of(device);
  const std::lock_guard lock(streams.mutex);
  streams.idle.push_back(stream);
}

bool order(int device, void* waiter, void* first) noexcept {
  if (waiter == first) return true;
  DeviceStreams& streams = streams_of(device);
  // One event serves all calls: cudaStreamWaitEvent refers to the latest record of the event.
  const std::lock_guard lock(streams.mutex);
  const bool done = succeeded(cudaSetDevice(device)) &&
                    (streams.order ||
                     succeeded(cudaEventCreateWithFlags(&streams.order, cudaEventDisableTiming))) &&
                    succeeded(cudaEventRecord(streams.order, native(first))) &&
                    succeeded(cudaStreamWaitEvent(native(waiter), streams.order, 0));
  return done;
}

void record_event(void*& event, Stream stream) {
  set_device(stream.device.index, "Event::record");
  auto e = static_cast<cudaEvent_t>(event);
  if (!e) {
    check_cuda(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "Event::record",
               "cudaEventCreateWithFlags");
    event = e;
  }
  check_cuda(cudaEventRecord(e, native(stream)), "Event::record", "cudaEventRecord");
}

void block_on_event(void* event, Stream stream) {
  set_device(stream.device.index, "Event::block");
  check_cuda(cudaStreamWaitEvent(native(stream), static_cast<cudaEvent_t>(event), 0),
             "Event::block", "cudaStreamWaitEvent");
}

void synchronize_event(void* event, int device) {
  runtime::refuse_capture("Event::synchronize", Device::cuda(device),
                          "the recorded work has not been run");
  count_host_wait();
  check_cuda(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "Event::synchronize",
             "cudaEventSynchronize");
  throw_fault(Device::cuda(device));
}

bool event_done(void* event) {
  const RelaxedCapture relaxed;
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (status != cudaErrorNotReady) check_cuda(status, "Event::done", "cudaEventQuery");
  return succeeded(status);
}

void destroy_event(void* event) noexcept {
  if (event) succeeded(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
}

void synchronize_device(int device) {
  const Device d = Device::cuda(device);
  runtime::refuse_capture("synchronize", d, "the recorded work has not been run");
  set_device(device, "synchronize");
  count_host_wait();
  check_cuda(cudaDeviceSynchronize(), "synchronize", "cudaDeviceSynchronize");
  throw_fault(d);
}

void synchronize_stream(Stream stream) {
  set_device(stream.device.index, "synchronize");
  wait("synchronize", stream);
}

std::uint64_t host_waits() noexcept { return waits.load(std::memory_order_relaxed); }
void count_host_wait() noexcept { waits.fetch_add(1, std::memory_order_relaxed); }

void copy(void* dst, Device dst_device, const void* src, Device src_device, std::size_t bytes) {
  if (dst_device.is_cuda() && src_device.is_cuda())
    return copy_async(dst, dst_device, src, src_device, bytes);
  const bool to_host = dst_device.is_cpu();
  const Stream stream = current_stream(to_host ? src_device : dst_device);
  runtime::refuse_capture(
      "copy", stream.device,
      to_host ? "the host reads from the device, which has not run the recorded work"
              : "the host's memory may have changed when the graph is replayed");
  set_device(stream.device.index, "copy");
  check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, native(stream)), "copy",
             "cudaMemcpyAsync");
  // For pageable memory CUDA has made its own copy when the call returns.
  if (to_host || is_pinned(src)) wait("copy", stream);
}

void copy_async(void* dst, Device dst_device, const void* src, Device src_device,
                std::size_t bytes) {
  const bool to_host = dst_device.is_cpu(), from_host = src_device.is_cpu();
  FIRN_CHECK((!to_host || is_pinned(dst)) && (!from_host || is_pinned(src)), "copy_bytes_async",
             "use PinnedMemory, or copy_bytes", "memory of the host is not pinned");
  const Stream stream = current_stream(to_host ? src_device : dst_device);
  if (!to_host && !from_host && dst_device != src_device) {
    // The copy runs on the target's stream, after earlier and before later work on the source's
    // stream.
    const Stream from = current_stream(src_device);
    cudaEvent_t event = nullptr;
    set_device(src_device.index, "copy");
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "copy",
               "cudaEventCreateWithFlags");
    cudaError_t status = cudaEventRecord(event, native(from));
    if (status == cudaSuccess) status = cudaStreamWaitEvent(native(stream), event, 0);
    succeeded(cudaEventDestroy(event));
    check_cuda(status, "copy", "cudaStreamWaitEvent");
    set_device(dst_device.index, "copy");
    check_cuda(
        cudaMemcpyPeerAsync(dst, dst_device.index, src, src_device.index, bytes, native(stream)),
        "copy", "cudaMemcpyPeerAsync");
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "copy",
               "cudaEventCreateWithFlags");
    status = cudaEventRecord(event, native(stream));
    if (status == cudaSuccess) status = cudaStreamWaitEvent(native(from), event, 0);
    succeeded(cudaEventDestroy(event));
    return check_cuda(status, "copy", "cudaStreamWaitEvent");
  }
  set_device(stream.device.index, "copy");
  runtime::note_kernel("copy");
  check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, native(stream)), "copy",
             "cudaMemcpyAsync");
}

void zero(void* dst, std::size_t bytes, Stream stream) {
  set_device(stream.device.index, "zero");
  runtime::note_kernel("zero");
  check_cuda(cudaMemsetAsync(dst, 0, bytes, native(stream)), "zero", "cudaMemsetAsync");
}

}  // namespace firn::memory::cuda
