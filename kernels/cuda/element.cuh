// Elements as CUDA kernels see them: any dtype in memory, float (or int64_t) in registers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/gpu.h"
#include "kernels/dispatch.h"

namespace firn::kernels::cuda {

inline constexpr int kBlock = 256;
/// Blocks of a grid at most: several waves on the largest GPUs; threads stride over the rest.
inline constexpr std::int64_t kMaxBlocks = 8192;

/// A grid of blocks of kBlock threads for `threads` threads' work.
inline dim3 grid_for(std::int64_t threads) {
  const std::int64_t blocks = (threads + kBlock - 1) / kBlock;
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, kMaxBlocks)));
}

// ---- One thread's place in a grid of one dimension ----

__device__ inline std::int64_t global_thread() {
  return blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
}
__device__ inline std::int64_t grid_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

// ---- Conversions: load T, compute float, store T ----

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void narrow(float x, float& out) { out = x; }
__device__ inline void narrow(float x, __half& out) { out = __float2half_rn(x); }
__device__ inline void narrow(float x, __nv_bfloat16& out) { out = __float2bfloat16_rn(x); }

/// 16 bytes of T: what a thread loads and stores at once, where the address is a multiple of 16.
template <class T>
struct alignas(16) Pack {
  static constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
  T lane[kWidth];
};

/// fn(T()) with the C++ type of a floating dtype: __half, __nv_bfloat16 or float.
template <class Fn>
void with_floating(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::f16:
      return fn(__half());
    case DType::bf16:
      return fn(__nv_bfloat16());
    default:
      return fn(float());
  }
}

/// Element i of an array whose dtype is known at run time only.
template <class C>
__device__ C load_element(const void* p, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::f16:
      return static_cast<C>(widen(static_cast<const __half*>(p)[i]));
    case DType::bf16:
      return static_cast<C>(widen(static_cast<const __nv_bfloat16*>(p)[i]));
    case DType::f32:
      return static_cast<C>(static_cast<const float*>(p)[i]);
    case DType::i32:
      return static_cast<C>(static_cast<const std::int32_t*>(p)[i]);
    case DType::i64:
      return static_cast<C>(static_cast<const std::int64_t*>(p)[i]);
    default:
      return static_cast<C>(static_cast<const std::uint8_t*>(p)[i]);
  }
}
template <class C>
__device__ void store_element(C value, void* p, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::f16:
      return narrow(static_cast<float>(value), static_cast<__half*>(p)[i]);
    case DType::bf16:
      return narrow(static_cast<float>(value), static_cast<__nv_bfloat16*>(p)[i]);
    case DType::f32:
      static_cast<float*>(p)[i] = static_cast<float>(value);
      return;
    case DType::i32:
      static_cast<std::int32_t*>(p)[i] = static_cast<std::int32_t>(value);
      return;
    case DType::i64:
      static_cast<std::int64_t*>(p)[i] = static_cast<std::int64_t>(value);
      return;
    case DType::boolean:
      static_cast<std::uint8_t*>(p)[i] = value != C(0);
      return;
    default:
      static_cast<std::uint8_t*>(p)[i] = static_cast<std::uint8_t>(value);
      return;
  }
}

/// f64 exists for gradient checks, which run on the CPU.
template <class... Views>
void refuse_f64(const char* op, Device device, const Views&... views) {
  if (((views.data && views.dtype == DType::f64) || ...)) {
    throw DeviceError(op, "f64 is not computed on " + to_string(device),
                      "use f32, or move the operands to the CPU");
  }
}

}  // namespace firn::kernels::cuda
