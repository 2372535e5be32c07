// Elements in CUDA kernels: any dtype in memory, float (double, int64_t) in registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/grid.h"
#include "kernels/cuda/device/lanes.cuh"
#include "kernels/dispatch.h"
#include "kernels/math/integer.h"
#include "kernels/math/rounding.h"

namespace firn::kernels::cuda {

inline constexpr int kBlock = 256;

/// Returns a grid of blocks of kBlock threads for the work of `threads` threads, or of fewer blocks
/// that stride over it.
inline dim3 grid_for(std::int64_t threads) {
  const std::int64_t blocks = math::ceil_div(threads, kBlock);
  const std::int64_t most = max_blocks().load(std::memory_order_relaxed);
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, most)));
}

// ---- One thread's place in a grid of one dimension ----

__device__ inline std::int64_t global_thread() {
  return blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
}
__device__ inline std::int64_t grid_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

// ---- Conversions: load T, compute float (double for f64), store T ----

/// Type in which elements of type T are computed.
template <class T>
using ComputeOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

/// Rounds x once to the type of `out`.
__device__ inline void narrow(float x, float& out) { out = x; }
__device__ inline void narrow(float x, double& out) { out = x; }
__device__ inline void narrow(float x, __half& out) { out = __float2half_rn(x); }
__device__ inline void narrow(float x, __nv_bfloat16& out) { out = __float2bfloat16_rn(x); }
__device__ inline void narrow(double x, double& out) { out = x; }
__device__ inline void narrow(double x, float& out) { out = static_cast<float>(x); }
__device__ inline void narrow(double x, __half& out) { narrow(math::round_to_odd(x), out); }
__device__ inline void narrow(double x, __nv_bfloat16& out) { narrow(math::round_to_odd(x), out); }
/// Converts to an integer dtype. A 64-bit integer keeps its low bits; a floating number is
/// converted as by cast().
template <class To, class C>
__device__ To narrow_to_integer(C x) {
  if constexpr (std::is_same_v<C, std::int64_t>) {
    return static_cast<To>(x);
  } else {
    return math::to_integer<To>(x);
  }
}
/// Rounds from any compute type to 16 bits.
template <class C, class H>
__device__ void narrow_to_16(C x, H& out) {
  if constexpr (std::is_same_v<C, std::int64_t>) {
    narrow(math::round_to_odd(x), out);
  } else {
    narrow(x, out);
  }
}

/// Calls fn(T()) with the C++ type of a floating dtype: __half, __nv_bfloat16, float or double.
template <class Fn>
void with_floating(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::f16:
      return fn(__half());
    case DType::bf16:
      return fn(__nv_bfloat16());
    case DType::f64:
      return fn(double());
    default:
      return fn(float());
  }
}
/// Calls fn(T()) for the dtypes that are computed in float.
template <class Fn>
void with_float_class(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::f16:
      return fn(__half());
    case DType::bf16:
      return fn(__nv_bfloat16());
    default:
      return fn(float());
  }
}

/// Returns element i of an array whose dtype is known only at run time.
template <class C>
__device__ C load_element(const void* p, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::f16:
      return static_cast<C>(widen(static_cast<const __half*>(p)[i]));
    case DType::bf16:
      return static_cast<C>(widen(static_cast<const __nv_bfloat16*>(p)[i]));
    case DType::f32:
      return static_cast<C>(static_cast<const float*>(p)[i]);
    case DType::f64:
      return static_cast<C>(static_cast<const double*>(p)[i]);
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
      return narrow_to_16(value, static_cast<__half*>(p)[i]);
    case DType::bf16:
      return narrow_to_16(value, static_cast<__nv_bfloat16*>(p)[i]);
    case DType::f32:
      static_cast<float*>(p)[i] = static_cast<float>(value);
      return;
    case DType::f64:
      static_cast<double*>(p)[i] = static_cast<double>(value);
      return;
    case DType::i32:
      static_cast<std::int32_t*>(p)[i] = narrow_to_integer<std::int32_t>(value);
      return;
    case DType::i64:
      static_cast<std::int64_t*>(p)[i] = narrow_to_integer<std::int64_t>(value);
      return;
    case DType::boolean:
      static_cast<std::uint8_t*>(p)[i] = value != C(0);
      return;
    default:
      static_cast<std::uint8_t*>(p)[i] = narrow_to_integer<std::uint8_t>(value);
      return;
  }
}

/// True if 16 bytes at `data` can be loaded at once.
inline bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

}  // namespace firn::kernels::cuda
