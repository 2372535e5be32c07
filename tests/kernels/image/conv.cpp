// The three products of a convolution against plain loops in double: geometry, dtypes, orders in
// memory, what is added to, threads.
#include "kernels/conv.h"

#ifdef FIRN_HAS_ONEDNN
#include <dnnl.h>
#endif

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/convolution.h"
#include "support/threads.h"
#include "support/values.h"

using namespace firn;
using firn::testing::for_each_product;
using firn::testing::Sums;
using firn::testing::values_of;
using Case = firn::testing::ConvCase;
using Values = std::vector<double>;

namespace {

enum class Order { row_major, channels_last, stepped };

/// Normal numbers of one order in memory, on the default device.
Tensor normal(const Shape& shape, DType dtype, Order order, Generator& g) {
  const Tensor t =
      randn(shape, {.dtype = dtype, .device = Device::cpu(), .generator = &g}).to(default_device());
  if (order == Order::row_major) return t;
  if (order == Order::channels_last) return channels_last(t);
  Shape wider = shape;
  wider.back() *= 2;
  const Tensor all = full(wider, std::numeric_limits<double>::quiet_NaN(), dtype);
  const Tensor every_second = slice(all, -1, 0, wider.back(), 2);
  copy_(every_second, t);
  return every_second;
}

/// Rounding of a sum of `terms` products in f32 (f64 for f64), then to `out`; see gemm.cpp.
void check_close(const Tensor& got, const Sums& want, DType in, std::int64_t terms) {
  const double sum_unit = epsilon_of(compute_dtype(in)), unit = epsilon_of(got.dtype());
  const Values v = values_of(got);
  REQUIRE(v.size() == want.value.size());
  double worst = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const double bound =
        (4 * std::sqrt(static_cast<double>(terms)) + 4) * sum_unit * want.magnitude[i] +
        unit * std::abs(want.value[i]) + (got.dtype() == f16 ? 0x1p-25 : 1e-300);
    const double error = std::abs(v[i] - want.value[i]);
    worst = std::max(worst, std::isfinite(v[i]) ? error / bound : 1e300);
  }
  CHECK(worst <= 1);
}

Tensor old_value(const Shape& shape, DType dtype, Order order, float beta, Generator& g) {
  const Tensor t = normal(shape, dtype, order, g);
  if (beta == 0) fill_(t, std::numeric_limits<double>::quiet_NaN());
  return t;
}

void check_forward(const Case& a, DType dtype, Order order, bool with_bias, bool relu) {
  Generator g(1);
  const Tensor x = normal(a.x(), dtype, order, g), w = normal(a.weight(), dtype, order, g);
  const Tensor bias = normal({a.k}, dtype, Order::row_major, g);
  const Tensor y = old_value(a.y(), dtype, order, 0, g);
  kernels::conv_forward(x.view(), w.view(), with_bias ? bias.view() : ConstView{}, relu, a.geometry,
                        y.mutable_view(), current_stream(y.device()));
  const Values xs = values_of(x), ws = values_of(w), bs = values_of(bias);
  Sums want(Values(static_cast<std::size_t>(y.numel())));
  const std::int64_t pixels = a.out(0) * a.out(1);
  if (with_bias)
    for (std::int64_t i = 0; i < y.numel(); ++i)
      want.add(static_cast<std::size_t>(i), bs[static_cast<std::size_t>(i / pixels % a.k)]);
  for_each_product(a, [&](auto i, auto j, auto o) { want.add(o, xs[i] * ws[j]); });
  if (relu)
    for (double& v : want.value) v = std::max(v, 0.0);
  check_close(y, want, dtype, a.c * a.r * a.s);
}

void check_data(const Case& a, DType dtype, DType out, Order order, float beta) {
  Generator g(2);
  const Tensor dy = normal(a.y(), dtype, order, g), w = normal(a.weight(), dtype, order, g);
  const Tensor dx = old_value(a.x(), out, order, beta, g);
  Sums want(beta != 0 ? values_of(dx) : Values(static_cast<std::size_t>(dx.numel())));
  kernels::conv_data_gradient(dy.view(), w.view(), a.geometry, dx.mutable_view(), beta,
                              current_stream(dx.device()));
  const Values dys = values_of(dy), ws = values_of(w);
  for_each_product(a, [&](auto i, auto j, auto o) { want.add(i, dys[o] * ws[j]); });
  check_close(dx, want, dtype, a.k * a.r * a.s);
}

void check_weight(const Case& a, DType dtype, DType out, Order order, float beta) {
  Generator g(3);
  const Tensor dy = normal(a.y(), dtype, order, g), x = normal(a.x(), dtype, order, g);
  const Tensor dw = old_value(a.weight(), out, order, beta, g);
  Sums want(beta != 0 ? values_of(dw) : Values(static_cast<std::size_t>(dw.numel())));
  kernels::conv_weight_gradient(dy.view(), x.view(), a.geometry, dw.mutable_view(), beta,
                                current_stream(dw.device()));
  const Values dys = values_of(dy), xs = values_of(x);
  for_each_product(a, [&](auto i, auto j, auto o) { want.add(j, dys[o] * xs[i]); });
  check_close(dw, want, dtype, a.n * a.out(0) * a.out(1));
}

void check_all(const Case& a, DType dtype, Order order) {
  INFO(a.name() << " " << to_string(dtype) << " order " << static_cast<int>(order));
  check_forward(a, dtype, order, true, false);
  check_forward(a, dtype, order, false, true);
  for (const float beta : {0.0f, 1.0f}) {
    INFO("beta " << beta);
    check_data(a, dtype, dtype, order, beta);
    check_weight(a, dtype, dtype, order, beta);
  }
}

const std::vector<Case> kCases = {
    {1, 1, 1, 1, 1, 1, 1},
    {2, 3, 5, 4, 5, 1, 1},
    {2, 3, 7, 6, 5, 3, 2},
    {3, 1, 9, 9, 4, 3, 3},
    {1, 2, 1, 12, 3, 1, 5},
    {1, 2, 12, 1, 3, 5, 1},
    {2, 3, 6, 7, 4, 3, 3, {.before = {1, 1}, .after = {1, 1}}},
    // More below than above, more to the left than to the right.
    {2, 3, 6, 7, 4, 4, 3, {.before = {1, 2}, .after = {2, 0}}},
    {2, 3, 8, 9, 4, 3, 3, {.stride = {2, 3}, .before = {1, 0}, .after = {0, 2}}},
    {2, 2, 9, 8, 3, 3, 2, {.before = {2, 1}, .after = {1, 3}, .dilation = {2, 3}}},
    {2,
     2,
     9,
     11,
     3,
     2,
     3,
     {.stride = {2, 1}, .before = {0, 3}, .after = {1, 0}, .dilation = {3, 2}}},
    // Padding wider than the kernel: outputs that see zeros alone.
    {1, 2, 3, 3, 2, 2, 2, {.before = {3, 3}, .after = {4, 3}}},
    // The stride jumps over the end, and over whole taps.
    {2, 3, 7, 8, 2, 2, 1, {.stride = {3, 4}}},
    {2, 4, 6, 5, 6, 3, 3, {.before = {1, 1}, .after = {1, 1}, .groups = 2}},
    {2, 6, 5, 5, 3, 2, 2, {.dilation = {2, 1}, .groups = 3}},
    {2, 5, 6, 7, 5, 3, 3, {.stride = {2, 1}, .before = {1, 2}, .after = {1, 0}, .groups = 5}},
    {2, 3, 6, 5, 6, 3, 2, {.before = {1, 1}, .after = {1, 0}, .groups = 3}},
    {2, 4, 5, 5, 4, 1, 1, {.groups = 2}},
    {2, 3, 5, 5, 4, 1, 1, {.stride = {2, 2}}},
    {2, 3, 3, 3, 4, 1, 1, {.before = {1, 0}, .after = {0, 1}}},
};
/// Enough channels for what takes only many.
const std::vector<Case> kWideCases = {
    {3, 16, 9, 8, 32, 3, 3, {.before = {1, 1}, .after = {1, 1}}},
    {2, 16, 9, 8, 16, 3, 3, {.stride = {2, 2}, .before = {0, 1}, .after = {1, 0}}},
    {2, 16, 10, 9, 24, 2, 3, {.before = {2, 1}, .after = {0, 2}, .dilation = {2, 2}}},
    {2, 19, 7, 7, 21, 3, 3, {.before = {1, 1}, .after = {1, 1}}},
    {2, 32, 6, 6, 32, 3, 3, {.before = {1, 1}, .after = {1, 1}, .groups = 2}},
    {2, 32, 7, 6, 32, 3, 3, {.stride = {1, 2}, .before = {1, 1}, .after = {1, 0}, .groups = 32}},
    {2, 32, 6, 5, 40, 1, 1},
    {2, 32, 7, 5, 16, 1, 1, {.stride = {2, 2}}},
    {1, 16, 1, 30, 16, 1, 5, {.before = {0, 2}, .after = {0, 2}}},
};

}  // namespace

TEST_CASE("conv: every geometry against plain loops") {
  const DType dtype = GENERATE(f32, f64);
  for (const Case& a : kCases) check_all(a, dtype, Order::channels_last);
}

TEST_CASE("conv: many channels against plain loops") {
  const DType dtype = GENERATE(f32, f64, bf16);
  for (const Case& a : kWideCases) check_all(a, dtype, Order::channels_last);
}

TEST_CASE("conv: operands and results of any order in memory") {
  const DType dtype = GENERATE(f32, f16);
  const Order order = GENERATE(Order::row_major, Order::stepped);
  for (const std::size_t i : {2u, 7u, 13u, 15u}) check_all(kCases[i], dtype, order);
  check_all(kWideCases[0], dtype, order);
}

TEST_CASE("conv: 16-bit operands sum in f32, and gradients may be added to f32") {
  const DType dtype = GENERATE(f16, bf16);
  for (const Case& a : {kCases[6], kCases[13], kCases[15], kWideCases[0]}) {
    INFO(a.name() << " " << to_string(dtype));
    check_all(a, dtype, Order::channels_last);
    for (const float beta : {0.0f, 1.0f}) {
      check_data(a, dtype, f32, Order::channels_last, beta);
      check_weight(a, dtype, f32, Order::channels_last, beta);
      check_weight(a, dtype, f32, Order::row_major, beta);
    }
  }
}

TEST_CASE("conv: rows that no output reaches get no gradient") {
  // As conv_transpose2d with output padding: h and w are larger than p and q stand for.
  Case a{2, 3, 8, 9, 4, 2, 2, {.stride = {3, 4}, .after = {-2, -4}}};
  REQUIRE(a.out(0) == 2);
  REQUIRE(a.out(1) == 1);
  for (const float beta : {0.0f, 1.0f}) {
    check_data(a, f32, f32, Order::channels_last, beta);
    check_weight(a, f64, f64, Order::channels_last, beta);
  }
  check_forward(a, f32, Order::channels_last, true, false);
}

TEST_CASE("conv: nothing to sum gives the bias, and leaves or clears gradients") {
  check_all({0, 3, 5, 5, 4, 3, 3}, f32, Order::channels_last);
  check_all({2, 0, 5, 5, 4, 3, 3}, f32, Order::channels_last);
  check_all({2, 3, 5, 5, 0, 3, 3}, f32, Order::channels_last);
  check_all({2, 0, 5, 5, 0, 1, 1}, f16, Order::channels_last);
  // No positions but those of the padding.
  for (const auto& [h, w] : {std::pair{0, 5}, {4, 0}})
    check_all({2, 16, h, w, 16, 2, 3, {.before = {1, 2}, .after = {2, 1}}}, f32,
              Order::channels_last);
}

TEST_CASE("conv: a NaN goes through relu, and reaches what it is a part of only") {
  const DType dtype = GENERATE(f32, bf16, f16);
  const Case a{1, 16, 6, 6, 16, 3, 3};
  Generator g(5);
  const Tensor x = normal(a.x(), dtype, Order::channels_last, g);
  const Tensor w = normal(a.weight(), dtype, Order::channels_last, g);
  fill_(slice(slice(x, 2, 0, 1), 3, 0, 1), std::numeric_limits<double>::quiet_NaN());
  const Tensor y = empty(a.y(), dtype, default_device(), MemoryFormat::channels_last);
  kernels::conv_forward(x.view(), w.view(), ConstView{}, true, a.geometry, y.mutable_view(),
                        current_stream(y.device()));
  const Values v = values_of(y);
  for (std::size_t i = 0; i < v.size(); ++i) {
    CHECK(std::isnan(v[i]) == (i % 16 == 0));
    CHECK_FALSE((v[i] < 0 || (v[i] == 0 && std::signbit(v[i]))));
  }
}

#ifdef FIRN_HAS_ONEDNN
TEST_CASE("conv: oneDNN keeps no primitives, so a failure in making one cannot stay", "[host]") {
  const Tensor x = ones({1, 16, 8, 8}), w = ones({16, 16, 3, 3});
  conv2d(x, w);
  int capacity = -1;
  REQUIRE(dnnl_get_primitive_cache_capacity(&capacity) == 0);
  CHECK(capacity == 0);
}
#endif

TEST_CASE("conv: the same bits for any number of threads", "[once]") {
  const DType dtype = GENERATE(f32, bf16, f64);
  if (default_device().is_cuda() && dtype != f32) return;  // threads are of the CPU
  const std::vector<Case> cases = {{13, 24, 20, 20, 48, 3, 3, {.before = {1, 1}, .after = {1, 1}}},
                                   {37, 1, 28, 28, 32, 3, 3},
                                   {11, 64, 30, 30, 64, 3, 3, {.stride = {2, 2}, .groups = 64}},
                                   {9, 64, 24, 24, 96, 1, 1},
                                   {7, 24, 24, 24, 36, 3, 3, {.groups = 3}}};
  for (const Case& a : cases) {
    INFO(a.name() << " " << to_string(dtype));
    Generator g(4);
    const Tensor x = normal(a.x(), dtype, Order::channels_last, g);
    const Tensor w = normal(a.weight(), dtype, Order::channels_last, g);
    const Tensor dy = normal(a.y(), dtype, Order::channels_last, g);
    const DType sum_dtype = compute_dtype(dtype);
    std::optional<std::vector<Values>> first;
    for (const int n : {1, 2, 3}) {
      const testing::Threads threads(n);
      const Tensor y = empty(a.y(), dtype, default_device(), MemoryFormat::channels_last);
      const Tensor dx = empty(a.x(), dtype, default_device(), MemoryFormat::channels_last);
      const Tensor dw = ones(a.weight(), sum_dtype);
      const Stream stream = current_stream(default_device());
      kernels::conv_forward(x.view(), w.view(), ConstView{}, true, a.geometry, y.mutable_view(),
                            stream);
      kernels::conv_data_gradient(dy.view(), w.view(), a.geometry, dx.mutable_view(), 0, stream);
      kernels::conv_weight_gradient(dy.view(), x.view(), a.geometry, dw.mutable_view(), 1, stream);
      const std::vector<Values> now{values_of(y), values_of(dx), values_of(dw)};
      if (!first) first = now;
      CHECK(now == *first);
    }
  }
}
