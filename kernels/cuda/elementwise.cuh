// The driver of all elementwise kernels on CUDA devices. An op is a functor on values of the
// compute type; it is compiled once per dtype for contiguous views of that one dtype, read and
// written 16 bytes at a time, and once for views of any strides and dtypes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/gpu.h"
#include "kernels/dispatch.h"
#include "kernels/walk.h"

namespace firn::kernels::cuda {

inline constexpr int kBlock = 256;
/// Blocks of a grid at most: several waves on the largest GPUs; threads stride over the rest.
inline constexpr std::int64_t kMaxBlocks = 8192;

// ---- Elements ----

inline __device__ float widen(float x) { return x; }
inline __device__ float widen(__half x) { return __half2float(x); }
inline __device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
inline __device__ void narrow(float x, float& out) { out = x; }
inline __device__ void narrow(float x, __half& out) { out = __float2half_rn(x); }
inline __device__ void narrow(float x, __nv_bfloat16& out) { out = __float2bfloat16_rn(x); }

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

// ---- Kernels ----

/// Pointers of N inputs.
template <int N>
struct Inputs {
  const void* data[N];
};

/// Sizes and strides of an output (view 0) and N inputs, axes merged, innermost last.
template <int N>
struct Geometry {
  int rank;
  DType dtypes[N + 1];
  std::int64_t sizes[kMaxRank];
  std::int64_t strides[N + 1][kMaxRank];
};

/// `fn(x, old)` of every element: x holds the inputs' values; old the output's, or 0 where kOld is
/// false. All views are contiguous, of dtype T and 16-byte aligned. A thread takes 16 bytes at a
/// time; the last thread of all takes what is left one by one.
template <class T, bool kOld, int N, class Fn>
static __global__ void contiguous_kernel(Inputs<N> in, void* out, std::int64_t n, Fn fn) {
  constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
  struct alignas(16) Pack {
    T lane[kWidth];
  };
  T* const y = static_cast<T*>(out);
  const std::int64_t packs = n / kWidth;
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t p = first; p < packs; p += step) {
    Pack x[N], result;
    for (int k = 0; k < N; ++k) x[k] = static_cast<const Pack*>(in.data[k])[p];
    if constexpr (kOld) result = reinterpret_cast<const Pack*>(y)[p];
    for (int j = 0; j < kWidth; ++j) {
      float values[N];
      for (int k = 0; k < N; ++k) values[k] = widen(x[k].lane[j]);
      narrow(fn(values, kOld ? widen(result.lane[j]) : 0.f), result.lane[j]);
    }
    reinterpret_cast<Pack*>(y)[p] = result;
  }
  for (std::int64_t i = packs * kWidth + first; i < n; i += step) {
    float values[N];
    for (int k = 0; k < N; ++k) values[k] = widen(static_cast<const T*>(in.data[k])[i]);
    float old = 0.f;
    if constexpr (kOld) old = widen(y[i]);
    narrow(fn(values, old), y[i]);
  }
}

/// The same for any strides and dtypes, in compute type C.
template <class C, int N, class Fn>
static __global__ void strided_kernel(Inputs<N> in, void* out, std::int64_t n, Geometry<N> g,
                                      bool reads_old, Fn fn) {
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = first; i < n; i += step) {
    std::int64_t offsets[N + 1] = {};
    std::int64_t rest = i;
    for (int d = g.rank - 1; d >= 0; --d) {
      const std::int64_t position = rest % g.sizes[d];
      rest /= g.sizes[d];
      for (int v = 0; v <= N; ++v) offsets[v] += position * g.strides[v][d];
    }
    C values[N];
    for (int k = 0; k < N; ++k) {
      values[k] = load_element<C>(in.data[k], g.dtypes[k + 1], offsets[k + 1]);
    }
    const C old = reads_old ? load_element<C>(out, g.dtypes[0], offsets[0]) : C(0);
    store_element(fn(values, old), out, g.dtypes[0], offsets[0]);
  }
}

// ---- Launch ----

inline dim3 grid_for(std::int64_t threads) {
  const std::int64_t blocks = (threads + kBlock - 1) / kBlock;
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, kMaxBlocks)));
}

/// Whether one 16-byte path serves all views: f16, bf16 or f32 throughout, contiguous, aligned.
template <int N>
bool all_contiguous(const ConstView* const (&in)[N], const View& out) {
  const auto fits = [&](const void* data, DType dtype, const Shape& shape, const Strides& strides) {
    return dtype == out.dtype && reinterpret_cast<std::uintptr_t>(data) % 16 == 0 &&
           is_contiguous(shape, strides);
  };
  if (compute_dtype(out.dtype) != DType::f32) return false;
  if (!fits(out.data, out.dtype, out.shape, out.strides)) return false;
  for (int k = 0; k < N; ++k) {
    if (!fits(in[k]->data, in[k]->dtype, in[k]->shape, in[k]->strides)) return false;
  }
  return true;
}

/// Runs `fn` over views of one shape, in float or (C) int64_t. reads_old: fn gets out's values.
template <class C, int N, class Fn>
void elementwise(const char* op, const ConstView* const (&in)[N], const View& out, bool reads_old,
                 Stream stream, Fn fn) {
  const std::int64_t n = out.numel();
  if (n == 0) return;
  Inputs<N> inputs;
  for (int k = 0; k < N; ++k) inputs.data[k] = in[k]->data;

  if constexpr (std::is_same_v<C, float>) {
    if (all_contiguous<N>(in, out)) {
      const auto run = [&]<class T>(T) {
        const dim3 grid = grid_for((n * static_cast<std::int64_t>(sizeof(T)) + 15) / 16);
        const auto kernel =
            reads_old ? contiguous_kernel<T, true, N, Fn> : contiguous_kernel<T, false, N, Fn>;
        gpu::launch(op, kernel, grid, dim3(kBlock), stream, inputs, out.data, n, fn);
      };
      switch (out.dtype) {
        case DType::f16:
          return run(__half());
        case DType::bf16:
          return run(__nv_bfloat16());
        default:
          return run(float());
      }
    }
  }

  const Strides* strides[N + 1] = {&out.strides};
  Geometry<N> g;
  g.dtypes[0] = out.dtype;
  for (int k = 0; k < N; ++k) {
    strides[k + 1] = &in[k]->strides;
    g.dtypes[k + 1] = in[k]->dtype;
  }
  const Walk walk(out.shape, strides, N + 1);
  g.rank = walk.rank();
  for (int d = 0; d < g.rank; ++d) {
    g.sizes[d] = walk.size(d);
    for (int v = 0; v <= N; ++v) g.strides[v][d] = walk.stride(v, d);
  }
  gpu::launch(op, strided_kernel<C, N, Fn>, grid_for(n), dim3(kBlock), stream, inputs, out.data, n,
              g, reads_old, fn);
}

/// f64 exists for gradient checks, which run on the CPU.
template <int N>
void refuse_f64(const char* op, const ConstView* const (&in)[N], const View& out) {
  bool wide = out.dtype == DType::f64;
  for (int k = 0; k < N; ++k) wide = wide || in[k]->dtype == DType::f64;
  if (wide) {
    throw DeviceError(op, "f64 is not computed on " + to_string(out.device),
                      "use f32, or move the operands to the CPU");
  }
}

}  // namespace firn::kernels::cuda
