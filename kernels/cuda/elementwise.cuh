// The driver of all elementwise kernels on CUDA devices. An op is a functor on values of the
// compute type; it is compiled once per dtype for contiguous views of that one dtype, read and
// written 16 bytes at a time, and once for views of any strides and dtypes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/element.cuh"
#include "kernels/walk.h"

namespace firn::kernels::cuda {

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
  constexpr int kWidth = Pack<T>::kWidth;
  T* const y = static_cast<T*>(out);
  const std::int64_t packs = n / kWidth;
  const std::int64_t first = global_thread(), step = grid_threads();
  for (std::int64_t p = first; p < packs; p += step) {
    Pack<T> x[N], result;
    for (int k = 0; k < N; ++k) x[k] = static_cast<const Pack<T>*>(in.data[k])[p];
    if constexpr (kOld) result = reinterpret_cast<const Pack<T>*>(y)[p];
    for (int j = 0; j < kWidth; ++j) {
      float values[N];
      for (int k = 0; k < N; ++k) values[k] = widen(x[k].lane[j]);
      narrow(fn(values, kOld ? widen(result.lane[j]) : 0.f), result.lane[j]);
    }
    reinterpret_cast<Pack<T>*>(y)[p] = result;
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
  const std::int64_t first = global_thread(), step = grid_threads();
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
        gpu::launch(op, kernel, grid, dim3(kBlock), 0, stream, inputs, out.data, n, fn);
      };
      return with_floating(out.dtype, run);
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
  gpu::launch(op, strided_kernel<C, N, Fn>, grid_for(n), dim3(kBlock), 0, stream, inputs, out.data,
              n, g, reads_old, fn);
}

template <int N>
void refuse_f64(const char* op, const ConstView* const (&in)[N], const View& out) {
  refuse_f64(op, out.device, out);
  for (int k = 0; k < N; ++k) refuse_f64(op, out.device, *in[k]);
}

}  // namespace firn::kernels::cuda
