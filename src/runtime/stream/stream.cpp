#include "firn/runtime/stream.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/spans.h"
#include "runtime/cuda/cuda.h"

namespace firn {

namespace {
// The streams that StreamScope has set, by device; null: the device's main stream.
thread_local std::array<void*, memory::cuda::kMaxDevices> stream_of_thread{};

void*& place_of(int device) noexcept { return stream_of_thread[static_cast<std::size_t>(device)]; }
}  // namespace

Stream current_stream(Device device) {
  if (device.is_cpu()) return {device, nullptr};
  if (void* stream = place_of(device.index)) return {device, stream};
  if constexpr (kHasCuda) return {device, memory::cuda::main_stream(device.index)};
  require_device("current_stream", device);
  return {};  // not reached: require_device has thrown
}

StreamScope::StreamScope(Stream stream) noexcept
    : device_(stream.device.is_cuda() ? stream.device.index : -1) {
  if (device_ >= 0) previous_ = std::exchange(place_of(device_), stream.handle);
}
StreamScope::~StreamScope() {
  if (device_ >= 0) place_of(device_) = previous_;
}

SideStream::SideStream(Device device) : stream_{device, nullptr} {
  require_device("SideStream", device);
  if constexpr (kHasCuda) {
    if (device.is_cuda()) stream_.handle = memory::cuda::take_stream(device.index);
  }
}
SideStream::~SideStream() {
  if constexpr (kHasCuda) {
    if (stream_.handle) memory::cuda::give_stream(stream_.device.index, stream_.handle);
  }
}
SideStream& SideStream::operator=(SideStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

Event::~Event() {
  if constexpr (kHasCuda) memory::cuda::destroy_event(handle_);
}
Event::Event(Event&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), device_(other.device_) {}
Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(device_, other.device_);
  return *this;
}

void Event::record(Stream stream) {
  if constexpr (kHasCuda) {
    if (device_ != stream.device) {
      memory::cuda::destroy_event(std::exchange(handle_, nullptr));
      device_ = stream.device;
    }
    if (stream.device.is_cuda()) memory::cuda::record_event(handle_, stream);
  }
}
void Event::block(Stream stream) const {
  if constexpr (kHasCuda) {
    if (!handle_) return;
    if (stream.device.is_cpu()) return synchronize();  // CPU work begins at once, so the host waits
    memory::cuda::block_on_event(handle_, stream);
  }
}
void Event::synchronize() const {
  if constexpr (kHasCuda) {
    if (handle_) memory::cuda::synchronize_event(handle_, device_.index);
  }
}

bool Event::done() const {
  if constexpr (kHasCuda) {
    if (handle_) return memory::cuda::event_done(handle_);
  }
  return true;
}

void synchronize(Device device) {
  require_device("synchronize", device);
  const runtime::Span span(runtime::SpanKind::phase, "synchronize");
  if constexpr (kHasCuda) {
    if (device.is_cuda()) memory::cuda::synchronize_device(device.index);
  }
}
void synchronize(Stream stream) {
  if constexpr (kHasCuda) {
    if (stream.device.is_cuda()) memory::cuda::synchronize_stream(stream);
  }
}

std::uint64_t host_waits() noexcept {
  if constexpr (kHasCuda) return memory::cuda::host_waits();
  return 0;
}

bool built_with_cuda() noexcept { return kHasCuda; }

int cuda_device_count() noexcept {
  if constexpr (kHasCuda) return memory::cuda::availability().devices;
  return 0;
}

void require_device(const char* op, Device device) {
  if (device.is_cpu()) return;
  if constexpr (kHasCuda) {
    const memory::cuda::Availability& a = memory::cuda::availability();
    if (device.index < a.devices) return;
    if (a.devices > 0) {
      throw DeviceError(
          op, fmt::format("{} does not exist: this machine has {} device(s)", device, a.devices),
          fmt::format("use cuda:0 to cuda:{}", a.devices - 1));
    }
    throw DeviceError(op, fmt::format("{} cannot be used: {}", device, a.why), a.hint);
  }
  throw DeviceError(op, fmt::format("{} cannot be used: this firn was built without CUDA", device),
                    "build with -DFIRN_CUDA=ON where nvcc is installed, or use the CPU");
}

namespace {

[[maybe_unused]] void note_copy(runtime::Span& span, Device dst, Device src, std::size_t bytes) {
  if (span.on())
    span.runs(current_stream(dst.is_cpu() ? src : dst), u8, {0, 2.0 * static_cast<double>(bytes)});
}

}  // namespace

void copy_bytes(void* dst, Device dst_device, const void* src, Device src_device,
                std::size_t bytes) {
  if (bytes == 0 || runtime::dry_run()) return;
  if (dst_device.is_cpu() && src_device.is_cpu()) {
    std::memcpy(dst, src, bytes);
    return;
  }
  if constexpr (kHasCuda) {
    runtime::Span span(runtime::SpanKind::kernel, "copy_bytes");
    note_copy(span, dst_device, src_device, bytes);
    memory::cuda::copy(dst, dst_device, src, src_device, bytes);
  }
}

void copy_bytes_async(void* dst, Device dst_device, const void* src, Device src_device,
                      std::size_t bytes) {
  if (bytes == 0 || runtime::dry_run()) return;
  if (dst_device.is_cpu() && src_device.is_cpu()) {
    std::memcpy(dst, src, bytes);
    return;
  }
  if constexpr (kHasCuda) {
    runtime::Span span(runtime::SpanKind::kernel, "copy_bytes_async");
    note_copy(span, dst_device, src_device, bytes);
    memory::cuda::copy_async(dst, dst_device, src, src_device, bytes);
  }
}

void zero_bytes(void* dst, Device device, std::size_t bytes) {
  if (bytes == 0 || runtime::dry_run()) return;
  if (device.is_cpu()) {
    std::memset(dst, 0, bytes);
    return;
  }
  if constexpr (kHasCuda) memory::cuda::zero(dst, bytes, current_stream(device));
}

namespace runtime {

void throw_cuda_error(int status, const char* op, const char* call) {
  std::string said = fmt::format("error {}", status);
  if constexpr (kHasCuda) said = memory::cuda::describe_error(status);
  throw Error(op, fmt::format("{} failed: {}", call, said),
              "errors of earlier kernels can show up here; CUDA_LAUNCH_BLOCKING=1 finds the place");
}

}  // namespace runtime
}  // namespace firn
