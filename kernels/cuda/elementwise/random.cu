// Random numbers and dropout on CUDA devices. A thread draws one Philox block and makes four
// elements from its words, which are those of the CPU for any grid.
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/lanes.cuh"
#include "kernels/math/philox.h"
#include "kernels/plan/uniform_range.h"
#include "kernels/random.h"

namespace firn::kernels::cuda {
namespace {

/// The start of a kernel's words. In a captured graph, device memory holds the base.
__device__ RandomKey start_of(const RandomKey& key) {
  if (key.base == nullptr) return key;
  return {key.base[0], key.base[1] + key.offset, nullptr};
}

/// The up to four elements from `first` on, as values. Elements past n are 0.
template <class T, class C>
__device__ void load_four(const T* x, std::int64_t first, std::int64_t n, bool whole, C (&out)[4]) {
  if (whole && first + 4 <= n) {
    const Quad<T> four = *reinterpret_cast<const Quad<T>*>(x + first);
    for (int j = 0; j < 4; ++j) out[j] = widen(four.lane[j]);
  } else {
    for (int j = 0; j < 4; ++j) out[j] = first + j < n ? static_cast<C>(widen(x[first + j])) : C(0);
  }
}
template <class T, class C>
__device__ void store_four(const C (&values)[4], T* y, std::int64_t first, std::int64_t n,
                           bool whole) {
  if (whole && first + 4 <= n) {
    Quad<T> four;
    for (int j = 0; j < 4; ++j) narrow(values[j], four.lane[j]);
    *reinterpret_cast<Quad<T>*>(y + first) = four;
  } else {
    for (int j = 0; j < 4; ++j) {
      if (first + j < n) narrow(values[j], y[first + j]);
    }
  }
}

// ---- Kernels: `make(words, values)` turns the words of a block into four values ----

template <class C>
struct Uniform {
  C low, width, least, most;
  __device__ void operator()(const std::uint32_t (&words)[4], C (&values)[4]) const {
    for (int j = 0; j < 4; ++j) {
      values[j] = math::scaled_uniform(words[j], low, width, least, most);
    }
  }
};

template <class C>
struct Normal {
  C mean, stddev;
  __device__ void operator()(const std::uint32_t (&words)[4], C (&values)[4]) const {
    for (int j = 0; j < 4; j += 2) {
      math::box_muller(words[j], words[j + 1], values[j], values[j + 1]);
    }
    for (int j = 0; j < 4; ++j) values[j] = std::fma(values[j], stddev, mean);
  }
};

template <class T, class C, class Make>
__global__ void draw(T* y, std::int64_t n, bool whole, RandomKey key, Make make) {
  const RandomKey start = start_of(key);
  const std::int64_t blocks = (n + 3) / 4, step = grid_threads();
  for (std::int64_t b = global_thread(); b < blocks; b += step) {
    const auto block = math::philox(start.offset + static_cast<std::uint64_t>(b), start.seed);
    C values[4];
    make(block.word, values);
    store_four(values, y, 4 * b, n, whole);
  }
}

/// X: x's dtype, Y: y's.
template <class X, class Y, class C>
__global__ void drop(const X* x, Y* y, std::int64_t n, bool whole, RandomKey key,
                     std::uint32_t threshold, C scale, bool adds) {
  const RandomKey start = start_of(key);
  const std::int64_t blocks = (n + 3) / 4, step = grid_threads();
  for (std::int64_t b = global_thread(); b < blocks; b += step) {
    const auto block = math::philox(start.offset + static_cast<std::uint64_t>(b), start.seed);
    C in[4], out[4] = {};
    load_four(x, 4 * b, n, whole, in);
    if (adds) load_four(y, 4 * b, n, whole, out);
    for (int j = 0; j < 4; ++j) {
      const C kept = block.word[j] >= threshold ? in[j] * scale : C(0);
      out[j] = adds ? out[j] + kept : kept;
    }
    store_four(out, y, 4 * b, n, whole);
  }
}

// ---- Launches ----

dim3 grid_for_blocks(std::int64_t n) { return grid_for((n + 3) / 4); }

/// The host's type for UniformRange.
template <class T>
struct HostType {
  using type = T;
};
template <>
struct HostType<__half> {
  using type = half;
};
template <>
struct HostType<__nv_bfloat16> {
  using type = bfloat16;
};

}  // namespace

void uniform(const View& dst, double low, double high, RandomKey key, Stream stream) {
  const std::int64_t n = dst.numel();
  if (n == 0) return;
  with_floating(dst.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const UniformRange<typename HostType<T>::type> range(low, high);
    const Uniform<C> make{static_cast<C>(low), static_cast<C>(high - low),
                          static_cast<C>(range.least), static_cast<C>(range.most)};
    gpu::launch("uniform", draw<T, C, Uniform<C>>, grid_for_blocks(n), dim3(kBlock), 0, stream,
                dst.as<T>(), n, takes_quads<T>(dst.data), key, make);
  });
}

void normal(const View& dst, double mean, double stddev, RandomKey key, Stream stream) {
  const std::int64_t n = dst.numel();
  if (n == 0) return;
  with_floating(dst.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const Normal<C> make{static_cast<C>(mean), static_cast<C>(stddev)};
    gpu::launch("normal", draw<T, C, Normal<C>>, grid_for_blocks(n), dim3(kBlock), 0, stream,
                dst.as<T>(), n, takes_quads<T>(dst.data), key, make);
  });
}

void dropout(const ConstView& x, const View& y, double p, RandomKey key, float beta,
             Stream stream) {
  const std::int64_t n = x.numel();
  if (n == 0) return;
  const std::uint32_t threshold = math::dropout_threshold(p);
  const auto run = [&]<class X, class Y, class C>(X, Y, C) {
    gpu::launch("dropout", drop<X, Y, C>, grid_for_blocks(n), dim3(kBlock), 0, stream, x.as<X>(),
                y.as<Y>(), n, takes_quads<X>(x.data) && takes_quads<Y>(y.data), key, threshold,
                static_cast<C>(1 / (1 - p)), beta != 0);
  };
  if (x.dtype == DType::f64) return run(double(), double(), double());
  with_float_class(x.dtype, [&]<class X>(X) {
    with_float_class(y.dtype, [&]<class Y>(Y) { run(X(), Y(), float()); });
  });
}

}  // namespace firn::kernels::cuda
