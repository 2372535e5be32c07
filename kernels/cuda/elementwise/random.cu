// Random numbers and dropout on CUDA devices. A thread draws one Philox block and makes four
// elements from its words. For any grid, the words equal the CPU's.
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/lanes.cuh"
#include "kernels/math/philox.h"
#include "kernels/plan/uniform_range.h"
#include "kernels/random.h"

namespace firn::kernels::cuda {
namespace {

/// Returns the start of a kernel's words. In a captured graph, device memory holds the base.
__device__ RandomKey start_of(const RandomKey& key) {
  if (key.base == nullptr) return key;
  return {key.base[0], key.base[1] + key.offset, nullptr};
}

/// Loads the first `count` of four elements, and zeros. If `whole`, four may be loaded at once.
template <class T, class C>
__device__ void load_four(const T* x, int count, bool whole, C (&out)[4]) {
  if (count < 4) {
    for (int j = 0; j < 4; ++j) out[j] = j < 3 && j < count ? static_cast<C>(widen(x[j])) : C(0);
  } else if (whole) {
    const Quad<T> four = lanes_at<Quad<T>>(x);
    for (int j = 0; j < 4; ++j) out[j] = widen(four.lane[j]);
  } else {
    for (int j = 0; j < 4; ++j) out[j] = widen(x[j]);
  }
}
template <class T, class C>
__device__ void store_four(const C (&values)[4], T* y, int count, bool whole) {
  if (count < 4) {
    for (int j = 0; j < 3; ++j)
      if (j < count) narrow(values[j], y[j]);
  } else if (whole) {
    Quad<T> four;
    for (int j = 0; j < 4; ++j) narrow(values[j], four.lane[j]);
    lanes_at<Quad<T>>(y) = four;
  } else {
    for (int j = 0; j < 4; ++j) narrow(values[j], y[j]);
  }
}

/// Calls fn(i, words, count) for each of this thread's Philox blocks, whose words make `count` of
/// the n elements, from i on.
template <class Fn>
__device__ void for_each_block(const RandomKey& start, std::int64_t n, Fn fn) {
  for (std::int64_t b = global_thread(); 4 * b < n; b += grid_threads()) {
    const auto block = math::philox(start.offset + static_cast<std::uint64_t>(b), start.seed);
    const std::int64_t left = n - 4 * b;
    fn(4 * b, block.word, left < 4 ? static_cast<int>(left) : 4);
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
  for_each_block(start_of(key), n, [&](std::int64_t i, const std::uint32_t(&words)[4], int count) {
    C values[4];
    make(words, values);
    store_four(values, y + i, count, whole);
  });
}

/// X is x's dtype, and Y is y's.
template <class X, class Y, class C>
__global__ void drop(const X* x, Y* y, std::int64_t n, bool whole, RandomKey key,
                     std::uint32_t threshold, C scale, bool adds) {
  for_each_block(start_of(key), n, [&](std::int64_t i, const std::uint32_t(&words)[4], int count) {
    C in[4], out[4] = {};
    load_four(x + i, count, whole, in);
    if (adds) load_four(y + i, count, whole, out);
    for (int j = 0; j < 4; ++j) {
      const C kept = words[j] >= threshold ? in[j] * scale : C(0);
      out[j] = adds ? out[j] + kept : kept;
    }
    store_four(out, y + i, count, whole);
  });
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
