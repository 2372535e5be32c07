// The driver of all elementwise kernels on CUDA devices. An op is a functor on values of the
// compute type; it is compiled
//  - once per dtype for contiguous views of that one dtype, read and written 16 bytes at a time;
//  - once for views whose innermost axis is dense or repeated, of any dtypes computed in float,
//    eight elements at a time (a bias or a scale over a matrix, a sum of f16 into f32, a mask);
//  - once per compute type for views of any strides and dtypes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/coarse.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/strides.cuh"

namespace firn::kernels::cuda {

// ---- Kernels ----

/// Pointers of N inputs.
template <int N>
struct Inputs {
  const void* data[N];
};

/// Dtypes and strides of an output (view 0) and N inputs.
template <int N>
struct Geometry {
  DType dtypes[N + 1];
  StridedAxes<N + 1> axes;
};

/// The old value that an op gets if it does not read the output: x + -0 is x for every x, even -0.
template <class C>
inline constexpr C kNoOld = -C(0);

/// Functors that ask for Coarse if results have 16 bits.
template <class Fn>
concept CoarseIn16Bits = requires {
  typename Fn::In16Bits;
};
template <class T, class Fn>
using ValueOf = std::conditional_t<sizeof(T) == 2 && CoarseIn16Bits<Fn>, Coarse, float>;

/// Functors that never read the output.
template <class Fn>
concept WritesOnly = requires {
  typename Fn::WritesOnly;
};
/// Functors whose result is bool, so that views have one dtype only if all are integers.
template <class Fn>
concept GivesBool = requires {
  typename Fn::GivesBool;
};

/// Calls run(V()) with the V that every form of kernel computes in, so that views of any strides
/// give the same bits.
template <class C, class Fn, class Run>
void with_value_type(DType result, Run run) {
  if constexpr (std::is_same_v<C, float> && CoarseIn16Bits<Fn>) {
    if (size_of(result) == 2) return run(Coarse());
  }
  run(math::Arithmetic<C>());
}

/// Stores fn(x, old) for every element: x holds the inputs' values, old the output's, or kNoOld if
/// kOld is false. All views are contiguous, of dtype T and 16-byte aligned. A thread takes 16 bytes
/// at a time; the first threads take the elements that are left one by one.
template <class T, bool kOld, int N, class Fn>
static __global__ void contiguous_kernel(Inputs<N> in, void* out, std::int64_t n, Fn fn) {
  using V = ValueOf<T, Fn>;
  constexpr int kWidth = Pack<T>::kWidth;
  T* const y = static_cast<T*>(out);
  const std::int64_t packs = n / kWidth;
  const std::int64_t first = global_thread(), step = grid_threads();
  for (std::int64_t p = first; p < packs; p += step) {
    Pack<T> x[N], result;
    for (int k = 0; k < N; ++k) x[k] = lanes_at<Pack<T>>(in.data[k], p);
    if constexpr (kOld) result = lanes_at<Pack<T>>(y, p);
    for (int j = 0; j < kWidth; ++j) {
      V values[N];
      for (int k = 0; k < N; ++k) values[k] = V(widen(x[k].lane[j]));
      const V old(kOld ? widen(result.lane[j]) : kNoOld<float>);
      narrow(static_cast<float>(fn(values, old)), result.lane[j]);
    }
    lanes_at<Pack<T>>(y, p) = result;
  }
  for (std::int64_t i = packs * kWidth + first; i < n; i += step) {
    V values[N];
    for (int k = 0; k < N; ++k) values[k] = V(widen(static_cast<const T*>(in.data[k])[i]));
    V old(kNoOld<float>);
    if constexpr (kOld) old = V(widen(y[i]));
    narrow(static_cast<float>(fn(values, old)), y[i]);
  }
}

/// Number of adjacent elements, of any dtype, that a thread takes in the second form.
inline constexpr int kGroup = 8;

template <class T>
using Group = Lanes<T, kGroup>;

template <class T>
__device__ void load_lanes(const void* p, std::int64_t i, float (&x)[kGroup]) {
  const auto group = lanes_at<Group<T>>(static_cast<const T*>(p) + i);
  for (int j = 0; j < kGroup; ++j) {
    if constexpr (std::is_integral_v<T>) {
      x[j] = group.lane[j];
    } else {
      x[j] = widen(group.lane[j]);
    }
  }
}
/// Loads elements i to i+7 of f16, bf16, f32, u8 or bool.
__device__ inline void load_group(const void* p, DType dtype, std::int64_t i, float (&x)[kGroup]) {
  switch (dtype) {
    case DType::f16:
      return load_lanes<__half>(p, i, x);
    case DType::bf16:
      return load_lanes<__nv_bfloat16>(p, i, x);
    case DType::f32:
      return load_lanes<float>(p, i, x);
    default:
      return load_lanes<std::uint8_t>(p, i, x);
  }
}
template <class T>
__device__ void store_lanes(const float (&x)[kGroup], void* p, std::int64_t i) {
  Group<T> group;
  for (int j = 0; j < kGroup; ++j) narrow(x[j], group.lane[j]);
  lanes_at<Group<T>>(static_cast<T*>(p) + i) = group;
}
__device__ inline void store_group(const float (&x)[kGroup], void* p, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::f16:
      return store_lanes<__half>(x, p, i);
    case DType::bf16:
      return store_lanes<__nv_bfloat16>(x, p, i);
    case DType::f32:
      return store_lanes<float>(x, p, i);
    default: {  // bool, the result of a comparison
      Group<std::uint8_t> group;
      for (int j = 0; j < kGroup; ++j) group.lane[j] = x[j] != 0.f;
      *reinterpret_cast<Group<std::uint8_t>*>(static_cast<std::uint8_t*>(p) + i) = group;
    }
  }
}

/// Stores fn(x, old) for groups, which g.axes numbers, in V. Bit v of `repeated` is set if view v
/// has one element for a whole group.
template <class V, int N, class Fn>
static __global__ void grouped_kernel(Inputs<N> in, void* out, std::int64_t groups, Geometry<N> g,
                                      unsigned repeated, bool reads_old, Fn fn) {
  const std::int64_t first = global_thread(), step = grid_threads();
  for (std::int64_t i = first; i < groups; i += step) {
    std::int64_t offsets[N + 1];
    g.axes.offsets(i, offsets);
    float x[N][kGroup], result[kGroup];
    for (int j = 0; j < kGroup; ++j) result[j] = kNoOld<float>;
    for (int k = 0; k < N; ++k) {
      if (repeated >> (k + 1) & 1) {
        x[k][0] = load_element<float>(in.data[k], g.dtypes[k + 1], offsets[k + 1]);
        for (int j = 1; j < kGroup; ++j) x[k][j] = x[k][0];
      } else {
        load_group(in.data[k], g.dtypes[k + 1], offsets[k + 1], x[k]);
      }
    }
    if (reads_old) load_group(out, g.dtypes[0], offsets[0], result);
    for (int j = 0; j < kGroup; ++j) {
      V values[N];
      for (int k = 0; k < N; ++k) values[k] = V(x[k][j]);
      result[j] = static_cast<float>(fn(values, V(result[j])));
    }
    store_group(result, out, g.dtypes[0], offsets[0]);
  }
}

/// Stores fn(x, old) for any strides and dtypes, in compute type C by arithmetic of V.
template <class C, class V, int N, class Fn>
static __global__ void strided_kernel(Inputs<N> in, void* out, std::int64_t n, Geometry<N> g,
                                      bool reads_old, Fn fn) {
  const std::int64_t first = global_thread(), step = grid_threads();
  for (std::int64_t i = first; i < n; i += step) {
    std::int64_t offsets[N + 1];
    g.axes.offsets(i, offsets);
    V values[N];
    for (int k = 0; k < N; ++k) {
      values[k] = V(load_element<C>(in.data[k], g.dtypes[k + 1], offsets[k + 1]));
    }
    const V old(reads_old ? load_element<C>(out, g.dtypes[0], offsets[0]) : kNoOld<C>);
    const auto result = fn(values, old);
    if constexpr (std::is_same_v<V, Coarse>) {
      store_element(result.value, out, g.dtypes[0], offsets[0]);
    } else {
      store_element(math::plain(result), out, g.dtypes[0], offsets[0]);
    }
  }
}

// ---- Launch ----

/// True if one 16-byte path serves all views: f16, bf16 or f32 throughout, in one order, aligned.
template <int N>
bool all_contiguous(const ConstView* const (&in)[N], const View& out) {
  if (compute_dtype(out.dtype) != DType::f32 || !is_aligned(out.data)) return false;
  for (int k = 0; k < N; ++k) {
    if (in[k]->dtype != out.dtype || !is_aligned(in[k]->data) || !in_one_order(out, *in[k]))
      return false;
  }
  return true;
}

/// True if all views can be accessed in groups of adjacent elements; then `g` gets the axes of the
/// groups.
template <int N>
bool make_groups(const Walk& walk, const Inputs<N>& in, const void* out, Geometry<N>& g,
                 unsigned& repeated) {
  const int inner = walk.rank() - 1;
  if (walk.size(inner) % kGroup != 0 || walk.stride(0, inner) != 1) return false;
  StridedAxes<N + 1> axes;
  repeated = 0;
  for (int v = 0; v <= N; ++v) {
    const DType t = g.dtypes[v];
    if (t != DType::f16 && t != DType::bf16 && t != DType::f32 && size_of(t) != 1) return false;
    if (walk.stride(v, inner) == 0) {
      repeated |= 1u << v;
      continue;
    }
    if (walk.stride(v, inner) != 1 || !is_aligned(v == 0 ? out : in.data[v - 1])) return false;
    for (int d = 0; d < inner; ++d)
      if (walk.stride(v, d) % kGroup != 0) return false;
  }
  for (int d = 0; d <= inner; ++d) {
    std::int64_t strides[N + 1];
    for (int v = 0; v <= N; ++v) strides[v] = walk.stride(v, d) * (d == inner ? kGroup : 1);
    axes.push_back(d == inner ? walk.size(d) / kGroup : walk.size(d), strides);
  }
  axes.finish();
  g.axes = axes;
  return true;
}

/// Runs `fn` over views of one shape, in float, double or int64_t. If reads_old, fn gets out's
/// values.
template <class C, int N, class Fn>
void elementwise(const char* op, const ConstView* const (&in)[N], const View& out, bool reads_old,
                 Stream stream, Fn fn) {
  const std::int64_t n = out.numel();
  if (n == 0) return;
  Inputs<N> inputs;
  for (int k = 0; k < N; ++k) inputs.data[k] = in[k]->data;

  if constexpr (std::is_same_v<C, float> && !GivesBool<Fn>) {
    if (all_contiguous<N>(in, out)) {
      const auto run = [&]<class T>(T) {
        const dim3 grid = grid_for((n * static_cast<std::int64_t>(sizeof(T)) + 15) / 16);
        auto kernel = contiguous_kernel<T, false, N, Fn>;
        if constexpr (!WritesOnly<Fn>) {
          if (reads_old) kernel = contiguous_kernel<T, true, N, Fn>;
        }
        gpu::launch(op, kernel, grid, dim3(kBlock), 0, stream, inputs, out.data, n, fn);
      };
      return with_float_class(out.dtype, run);
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
  if constexpr (std::is_same_v<C, float>) {
    unsigned repeated;
    if (make_groups<N>(walk, inputs, out.data, g, repeated)) {
      const std::int64_t groups = n / kGroup;
      return with_value_type<C, Fn>(out.dtype, [&]<class V>(V) {
        gpu::launch(op, grouped_kernel<V, N, Fn>, grid_for(groups), dim3(kBlock), 0, stream, inputs,
                    out.data, groups, g, repeated, reads_old, fn);
      });
    }
  }
  g.axes = StridedAxes<N + 1>(walk);
  with_value_type<C, Fn>(out.dtype, [&]<class V>(V) {
    gpu::launch(op, strided_kernel<C, V, N, Fn>, grid_for(n), dim3(kBlock), 0, stream, inputs,
                out.data, n, g, reads_old, fn);
  });
}

/// Returns the compute type of an op on these operands, which are of one class: the widest, for any
/// output.
template <int N>
DType class_of(const ConstView* const (&in)[N]) {
  for (int k = 0; k < N; ++k) {
    if (in[k]->dtype == DType::f64) return DType::f64;
  }
  return compute_dtype(in[0]->dtype);
}

/// Runs `fn` in float or double, as the operands require.
template <int N, class Fn>
void elementwise_floating(const char* op, const ConstView* const (&in)[N], const View& out,
                          bool reads_old, Stream stream, Fn fn) {
  if (class_of<N>(in) == DType::f64) {
    elementwise<double, N>(op, in, out, reads_old, stream, fn);
  } else {
    elementwise<float, N>(op, in, out, reads_old, stream, fn);
  }
}

}  // namespace firn::kernels::cuda
