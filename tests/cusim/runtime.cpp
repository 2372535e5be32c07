// Devices, errors, launches and the memory functions of the CUDA runtime.
#include "runtime.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "check/check.h"
#include "engine/engine.h"
#include "memory.h"
#include "streams.h"

namespace cusim {

cudaError_t sticky_error = cudaSuccess;

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device = 0;
using Hook = std::function<void(std::uint64_t, const char*)>;
Hook& api_hook = *new Hook;

constexpr std::size_t kSharedDefault = std::size_t{48} << 10;
constexpr std::size_t kSharedMost = std::size_t{227} << 10;  // of an H100, by attribute
constexpr std::size_t kParameterBytes = 4096;                // the classic limit, and firn's rule
// Kernels that asked for more than the default.
std::map<const void*, std::size_t>& shared_limits = *new std::map<const void*, std::size_t>;

bool has_device(int index) { return index >= 0 && index < config().devices; }

}  // namespace

std::recursive_mutex& runtime_lock() {
  static std::recursive_mutex lock;
  return lock;
}
cudaError_t set_last(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}
int current_device() { return device; }

bool api_call(const char* name) {
  const std::uint64_t k = stats().api_calls++;
  if (api_hook) api_hook(k, name);
  return static_cast<std::int64_t>(k) == config().fail_api;
}
void on_api_call(std::function<void(std::uint64_t, const char*)> hook) {
  const std::lock_guard lock(runtime_lock());
  api_hook = std::move(hook);
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(runtime_lock());
  set_last(push(stream, {cudaGraphNodeTypeKernel, std::move(work), "library"}));
}

void reset() {
  const std::lock_guard lock(runtime_lock());
  reset_streams();
  free_all_device_memory();
  sticky_error = last_error = cudaSuccess;
  device = 0;
  engine.report.clear();
  engine.failed = false;
  engine.stats = {};
  shared_limits.clear();
}

// ---- Launches ----

namespace {

std::string text_of(dim3 d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

cudaError_t check_configuration(const KernelCall& k) {
  const std::uint64_t threads = std::uint64_t{k.block.x} * k.block.y * k.block.z;
  if (threads == 0 || threads > 1024 || k.block.z > 64) return cudaErrorInvalidConfiguration;
  if (k.grid.x == 0 || k.grid.y == 0 || k.grid.z == 0) return cudaErrorInvalidConfiguration;
  if (k.grid.x > 2147483647u || k.grid.y > 65535 || k.grid.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  const auto limit = shared_limits.find(k.kernel);
  if (k.shared > (limit == shared_limits.end() ? kSharedDefault : limit->second)) {
    return cudaErrorInvalidValue;
  }
  if (k.parameter_bytes > sizeof(k.kernel) + kParameterBytes) return cudaErrorInvalidValue;
  // Work for a stream of a device is given while that device is current.
  if (resolve(k.stream)->device != device) return cudaErrorInvalidResourceHandle;
  return cudaSuccess;
}

}  // namespace

cudaError_t enqueue_kernel(const KernelCall& kernel) {
  return call("cudaLaunchKernel", cudaErrorLaunchOutOfResources, [&] {
    if (const cudaError_t error = check_configuration(kernel)) return error;
    const auto run = [kernel, on = device] {
      engine.device = on;
      if (!run_kernel(kernel)) sticky_error = cudaErrorLaunchFailure;
    };
    std::string text = "kernel grid " + text_of(kernel.grid) + " block " + text_of(kernel.block);
    return push(kernel.stream, {cudaGraphNodeTypeKernel, run, std::move(text)});
  });
}

// ---- Copies ----

namespace {

void copy_bytes(void* dst, const void* src, std::size_t bytes) {
  const DeviceAccess access;
  std::memmove(dst, src, bytes);
  check::wrote(dst, bytes);
}

/// Whether both ends are where the kind of copy says, and inside what is allocated there.
bool can_copy(const void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = is_device_pointer(dst), from_device = is_device_pointer(src);
  if (to_device && !is_device_range(dst, bytes)) return false;
  if (from_device && !is_device_range(src, bytes)) return false;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    default:
      return true;
  }
}

bool is_pageable(const void* p) { return !find_block(p); }

cudaError_t copy_async(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!can_copy(dst, src, bytes, kind)) return cudaErrorInvalidValue;
  stream = resolve(stream);
  ++stats().copies;
  std::string text = "copy " + std::to_string(bytes) + " bytes";
  if (is_pageable(src) && !stream->capture) {  // staged before the call returns
    const auto* const from = static_cast<const char*>(src);
    const auto staged = std::make_shared<std::string>(from, from + bytes);
    const auto run = [=] { copy_bytes(dst, staged->data(), bytes); };
    return push(stream, {cudaGraphNodeTypeMemcpy, run, std::move(text)});
  }
  const auto run = [=] { copy_bytes(dst, src, bytes); };
  if (const cudaError_t e = push(stream, {cudaGraphNodeTypeMemcpy, run, std::move(text)})) return e;
  if (is_pageable(dst) && !stream->capture) {  // done when the call returns
    ++stats().host_waits;
    wait_until([stream] { return stream->queue.empty(); });
  }
  return cudaSuccess;
}

cudaError_t set_async(void* dst, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!is_device_range(dst, bytes)) return cudaErrorInvalidValue;
  const auto run = [=] {
    const DeviceAccess access;
    std::memset(dst, value, bytes);
    check::wrote(dst, bytes);
  };
  std::string text = "memset " + std::to_string(bytes) + " bytes";
  return push(stream, {cudaGraphNodeTypeMemset, run, std::move(text)});
}

}  // namespace
}  // namespace cusim

using namespace cusim;

extern "C" {

// ---- Devices ----

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", cudaErrorInitializationError, [&] {
    *count = config().devices;
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}
cudaError_t cudaSetDevice(int index) {
  return call("cudaSetDevice", cudaErrorInvalidDevice, [&] {
    if (!has_device(index)) return cudaErrorInvalidDevice;
    device = index;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* index) {
  *index = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", cudaErrorUnknown, [] {
    if (const cudaError_t refused = refuse_while_capturing()) return refused;
    ++stats().host_waits;
    drain_all();
    wait_until([] { return is_idle(device); });
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceReset() {
  drain_all();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  return call("cudaGetDeviceProperties", cudaErrorInvalidDevice, [&] {
    if (!has_device(index)) return cudaErrorInvalidDevice;
    *properties = cudaDeviceProp{};
    std::strcpy(properties->name, "cusim");
    properties->totalGlobalMem = config().device_bytes;
    properties->sharedMemPerBlock = kSharedDefault;
    properties->sharedMemPerBlockOptin = kSharedMost;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->multiProcessorCount = 4;
    properties->major = 9;
    properties->canMapHostMemory = 1;
    properties->unifiedAddressing = 1;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  return call("cudaDeviceGetAttribute", cudaErrorInvalidDevice, [&] {
    if (!has_device(index)) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount:
        *value = 4;
        break;
      case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = static_cast<int>(kSharedDefault);
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(kSharedMost);
        break;
      case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        break;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2048;
        break;
      case cudaDevAttrWarpSize:
        *value = 32;
        break;
      case cudaDevAttrCanMapHostMemory:
      case cudaDevAttrUnifiedAddressing:
      case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        break;
      default:
        *value = 0;
    }
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return call("cudaFuncSetAttribute", cudaErrorInvalidValue, [&] {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || static_cast<std::size_t>(value) > kSharedMost) return cudaErrorInvalidValue;
    shared_limits[kernel] = static_cast<std::size_t>(value);
    return cudaSuccess;
  });
}

// ---- Errors ----

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = sticky_error;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

// ---- Allocation ----

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  return call("cudaMalloc", cudaErrorMemoryAllocation, [&] {
    if (const cudaError_t refused = refuse_while_capturing()) return refused;
    return allocate_device(out, bytes, device);
  });
}
cudaError_t cudaFree(void* p) {
  return call<WhenInjected::run>("cudaFree", cudaErrorUnknown, [&] {
    if (!p) return cudaSuccess;
    if (const cudaError_t refused = refuse_while_capturing()) return refused;
    drain_all();
    return free_device(p);
  });
}
cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t) {
  return call("cudaMallocAsync", cudaErrorMemoryAllocation,
              [&] { return allocate_device(out, bytes, device); });
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  return call<WhenInjected::run>("cudaFreeAsync", cudaErrorUnknown, [&] {
    return push(stream, {cudaGraphNodeTypeMemFree, [=] { free_device(p); }, "free"});
  });
}
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  return call("cudaHostAlloc", cudaErrorMemoryAllocation, [&] {
    if (const cudaError_t refused = refuse_while_capturing()) return refused;
    return allocate_pinned(out, bytes);
  });
}
cudaError_t cudaMallocHost(void** out, std::size_t bytes) {
  return cudaHostAlloc(out, bytes, cudaHostAllocDefault);
}
cudaError_t cudaFreeHost(void* p) {
  return call<WhenInjected::run>("cudaFreeHost", cudaErrorUnknown, [&] {
    if (const cudaError_t refused = refuse_while_capturing()) return refused;
    drain_all();
    return free_pinned(p);
  });
}
cudaError_t cudaHostGetDevicePointer(void** out, void* p, unsigned) {
  return call("cudaHostGetDevicePointer", cudaErrorInvalidValue, [&] {
    const Block* const block = find_block(p);
    if (!block || !block->pinned()) return cudaErrorInvalidValue;
    *out = p;
    return cudaSuccess;
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  return call("cudaPointerGetAttributes", cudaErrorInvalidValue, [&] {
    *attributes = cudaPointerAttributes{};
    const Block* const block = find_block(p);
    attributes->type = !block            ? cudaMemoryTypeUnregistered
                       : block->pinned() ? cudaMemoryTypeHost
                                         : cudaMemoryTypeDevice;
    attributes->device = block && !block->pinned() ? block->device : device;
    if (block) attributes->devicePointer = const_cast<void*>(p);
    if (!block || block->pinned()) attributes->hostPointer = const_cast<void*>(p);
    return cudaSuccess;
  });
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call("cudaMemGetInfo", cudaErrorInvalidValue, [&] {
    *total = config().device_bytes;
    *free = *total - std::min(*total, bytes_in_use(device));
    return cudaSuccess;
  });
}

// ---- Copies ----

cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call("cudaMemcpyAsync", cudaErrorInvalidValue,
              [&] { return copy_async(dst, src, bytes, kind, stream); });
}
cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy", cudaErrorInvalidValue, [&] {
    if (const cudaError_t refused = refuse_while_capturing()) return refused;
    const cudaError_t status = copy_async(dst, src, bytes, kind, nullptr);
    ++stats().host_waits;
    cudaStream_t legacy = resolve(nullptr);
    wait_until([legacy] { return legacy->queue.empty(); });
    return status;
  });
}
cudaError_t cudaMemcpyPeerAsync(void* dst, int, const void* src, int, std::size_t bytes,
                                cudaStream_t stream) {
  return call("cudaMemcpyPeerAsync", cudaErrorInvalidValue,
              [&] { return copy_async(dst, src, bytes, cudaMemcpyDeviceToDevice, stream); });
}
cudaError_t cudaMemsetAsync(void* dst, int value, std::size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", cudaErrorInvalidValue,
              [&] { return set_async(dst, value, bytes, stream); });
}
cudaError_t cudaMemset(void* dst, int value, std::size_t bytes) {
  return call("cudaMemset", cudaErrorInvalidValue, [&] {
    if (const cudaError_t refused = refuse_while_capturing()) return refused;
    return set_async(dst, value, bytes, nullptr);
  });
}

}  // extern "C"
