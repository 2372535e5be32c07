// Random tensors and dropout. All numbers come from a Generator's stream of Philox words: the same
// seed gives the same numbers for any number of threads.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "kernels/copy.h"
#include "kernels/math/philox.h"
#include "kernels/random.h"
#include "ops/common.h"
#include "ops/gradient/again.h"

namespace firn {
namespace {

using namespace ops;

/// Reports that a recording cannot repeat the op: it would have the numbers of this one run.
void drawing(const char* op) {
  if (autograd::wants_attributes()) [[unlikely]]
    thread_context.attributes->cannot_repeat(
        op, "it draws random numbers",
        "call model.eval(), and give random numbers to the model as an input");
}

/// Reserves one number for each element of `x`.
RandomKey key_for(const char* op, const View& x, Generator& generator) {
  drawing(op);
  return runtime::reserve_random(generator, x.device, static_cast<std::uint64_t>(x.numel()));
}

Generator& generator_of(Generator* given) { return given ? *given : default_generator(); }

void require_writable(const char* op, const Tensor& x) {
  require_floating(op, x);
  autograd::check_overwrite(op, x);
}

/// Calls draw(view) on x if it is row-major, else on a row-major tensor that is then copied to x.
template <class Draw>
void draw_into(const char* op, const Tensor& x, Draw&& draw) {
  if (x.is_contiguous()) {
    draw(x.mutable_view());
  } else {
    const Tensor t = empty(x.shape(), x.dtype(), x.device());
    draw(t.mutable_view());
    kernels::copy(t.view(), x.mutable_view(), stream_of(x));
  }
  x.storage()->bump_version(op);
  ended(op);
}

void check_range(const char* op, DType dtype, double low, double high) {
  FIRN_CHECK(std::isfinite(low) && std::isfinite(high) && low < high, op,
             "low must be less than high, both finite", "low {}, high {}", low, high);
  require_holds(op, dtype, low);
  require_holds(op, dtype, high);
  const DType compute = compute_dtype(dtype);
  FIRN_CHECK(high - low <= max_of(compute), op, "take a narrower range or a wider dtype",
             "low {}, high {}: the width is infinite as {}", low, high, compute);
}

void check_normal(const char* op, DType dtype, double mean, double stddev) {
  FIRN_CHECK(std::isfinite(mean) && std::isfinite(stddev) && stddev >= 0, op,
             "stddev must be 0 or more, both finite", "mean {}, stddev {}", mean, stddev);
  constexpr double kFarthest = 6.67;  // in standard deviations: see math::box_muller
  FIRN_CHECK(std::abs(mean) + kFarthest * stddev <= max_of(dtype), op,
             "take a smaller stddev or a wider dtype",
             "mean {}, stddev {}: numbers {} stddev from the mean are infinite as {}", mean, stddev,
             kFarthest, dtype);
}

void fill_uniform(const char* op, const Tensor& x, double low, double high, Generator& g) {
  check_range(op, x.dtype(), low, high);
  draw_into(op, x, [&](const View& v) {
    kernels::uniform(v, low, high, key_for(op, v, g), stream_of(x));
  });
}

void fill_normal(const char* op, const Tensor& x, double mean, double stddev, Generator& g) {
  check_normal(op, x.dtype(), mean, stddev);
  draw_into(op, x, [&](const View& v) {
    kernels::normal(v, mean, stddev, key_for(op, v, g), stream_of(x));
  });
}

}  // namespace

void uniform_(const Tensor& x, double low, double high, Generator& g) {
  require_writable("uniform_", x);
  fill_uniform("uniform_", x, low, high, g);
}

void normal_(const Tensor& x, double mean, double stddev, Generator& g) {
  require_writable("normal_", x);
  fill_normal("normal_", x, mean, stddev, g);
}

Tensor rand(const Shape& shape, const RandOptions& options) {
  FIRN_CHECK(is_floating(options.dtype), "rand", "draw in f32 and cast", "dtype {}", options.dtype);
  require_creatable("rand", shape, options.dtype);
  Tensor x = empty(shape, options.dtype, options.device);
  fill_uniform("rand", x, options.low, options.high, generator_of(options.generator));
  return x;
}

Tensor randn(const Shape& shape, const RandnOptions& options) {
  FIRN_CHECK(is_floating(options.dtype), "randn", "draw in f32 and cast", "dtype {}",
             options.dtype);
  require_creatable("randn", shape, options.dtype);
  Tensor x = empty(shape, options.dtype, options.device);
  fill_normal("randn", x, options.mean, options.stddev, generator_of(options.generator));
  return x;
}

Tensor rand_like(const Tensor& x, Generator& generator) {
  require_floating("rand_like", x);
  const Tensor y = empty_like(x);
  fill_uniform("rand_like", y, 0, 1, generator);
  return y;
}

Tensor randn_like(const Tensor& x, Generator& generator) {
  require_floating("randn_like", x);
  const Tensor y = empty_like(x);
  fill_normal("randn_like", y, 0, 1, generator);
  return y;
}

Tensor randperm(std::int64_t n, Generator& generator) {
  FIRN_CHECK(n >= 0, "randperm", "an empty permutation has n = 0", "n = {} is negative", n);
  require_creatable("randperm", {n}, i64);
  drawing("randperm");
  const Tensor order = empty({n}, i64, Device::cpu());
  auto* p = order.data<std::int64_t>();
  for (std::int64_t i = 0; i < n; ++i) p[i] = i;
  // Fisher & Yates, downwards; position i takes a 64-bit number, words 2i and 2i+1 of the stream.
  const RandomKey key =
      runtime::reserve_random(generator, Device::cpu(), 2 * static_cast<std::uint64_t>(n));
  // Partners are drawn some positions ahead, so that they are in the cache when they are swapped.
  constexpr std::int64_t kAhead = 64;
  std::array<std::uint64_t, kAhead> partner;
  for (std::int64_t last = n - 1; last > 0; last -= kAhead) {
    const std::int64_t count = std::min(kAhead, last);
    math::PhiloxBlock b{};
    for (std::int64_t k = 0; k < count; ++k) {
      const auto u = static_cast<std::uint64_t>(last - k);
      if (k == 0 || u % 2 == 1) b = math::philox(key.offset + u / 2, key.seed);
      const std::uint64_t low = b.word[2 * (u % 2)], high = b.word[2 * (u % 2) + 1];
      std::uint64_t& chosen = partner[static_cast<std::size_t>(k)];
      chosen = math::bounded(high << 32 | low, u + 1);
      __builtin_prefetch(p + chosen, 1);
    }
    for (std::int64_t k = 0; k < count; ++k)
      std::swap(p[last - k], p[partner[static_cast<std::size_t>(k)]]);
  }
  return to_device(order, default_device());
}

Tensor dropout(const Tensor& x, double p, bool training, Generator& generator) {
  require_floating("dropout", x);
  FIRN_CHECK(p >= 0 && p < 1, "dropout", "p is the probability of a zero, in [0, 1)", "p = {}", p);
  if (!training || p == 0) return x;
  const Tensor input = x.is_channels_last() ? x : contiguous(x);
  const Tensor y = empty_like(input);
  const RandomKey key = key_for("dropout", y.mutable_view(), generator);
  kernels::dropout(input.view(), y.mutable_view(), p, key, 0, stream_of(y));
  const auto backward = [p, key](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    const Tensor dy =
        dx.is_contiguous() ? contiguous(b.grad()) : channels_last(b.grad());  // element by element
    kernels::dropout(dy.view(), dx.mutable_view(), p, key, beta, b.stream());
  };
  const auto again = [p, key, format = format_of(y.shape(), y.strides())](GraphBackward& b) {
    const Tensor &dy = b.grad(), mask = empty(dy.shape(), dy.dtype(), dy.device(), format);
    kernels::fill(mask.mutable_view(), 1, stream_of(mask));
    kernels::dropout(mask.view(), mask.mutable_view(), p, key, 0, stream_of(mask));
    b.add(0, mul(dy, mask));
  };
  return record("dropout", y, {&input}, {}, with_again(backward, again));
}

}  // namespace firn
