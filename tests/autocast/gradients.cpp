// Gradients under autocast: dtypes, and the exactness of those of f32 operands of matrix products.
#include <cmath>
#include <functional>
#include <vector>

#include "autograd/node.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::make;
using firn::testing::Rng;
using firn::testing::rounded;
using firn::testing::values_of;

namespace {

using Values = std::vector<double>;

Tensor leaf(const Values& values, const Shape& shape, DType dtype = f32) {
  Tensor t = make(values, shape, dtype);
  t.set_requires_grad();
  return t;
}

/// aᵀ b for a [k, m] and b [k, n].
Values product(const Values& a, const Values& b, std::size_t k, std::size_t m, std::size_t n) {
  Values c(m * n);
  for (std::size_t p = 0; p < k; ++p)
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) c[i * n + j] += a[p * m + i] * b[p * n + j];
  return c;
}

double distance(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// A leaf of `t`'s shape whose gradients go to an arena of f32, as an optimizer's do.
Tensor arena_of(const Tensor& t) {
  const Tensor arena = zeros(t.shape());
  autograd::leaf_of(t)->arena = arena;
  return arena;
}

}  // namespace

TEST_CASE(
    "[S26] the gradient of an f32 weight is the f32 sum of 16-bit products, not rounded again") {
  for (const DType lower : {f16, bf16}) {
    Rng rng(3);
    const Values x = rng.uniforms(64 * 24, -1, 1), w = rng.uniforms(16 * 24, -1, 1),
                 bias = rng.uniforms(16, -1, 1), dy = rng.uniforms(64 * 16, -1, 1);
    const Tensor weight = leaf(w, {16, 24}), b = leaf(bias, {16}), input = leaf(x, {64, 24});
    {
      const Autocast guard(lower);
      const Tensor y = linear(input, weight, b);
      CHECK(y.dtype() == lower);
      backward(y, {.initial_gradient = make(dy, {64, 16}, lower)});
    }
    CHECK(weight.grad().dtype() == f32);
    CHECK(b.grad().dtype() == f32);
    CHECK(input.grad().dtype() == f32);

    const Values low_dy = rounded(dy, lower);
    const Values dw = product(low_dy, rounded(x, lower), 64, 16, 24);
    const double exact = distance(values_of(weight.grad()), dw);
    const double through_16_bits = distance(rounded(dw, lower), dw);
    INFO(to_string(lower) << ": " << exact << " against " << through_16_bits);
    CHECK(exact < 64 * epsilon_of(f32) * distance(dw, Values(dw.size())));
    CHECK(exact < 0.01 * through_16_bits);

    const Values db = product(low_dy, Values(64, 1), 64, 16, 1);
    CHECK(distance(values_of(b.grad()), db) < 64 * epsilon_of(f32) * distance(db, Values(16)));

    // Against the product in full precision: what rounding the operands costs, and no more.
    const Values full = product(dy, x, 64, 16, 24);
    CHECK(distance(values_of(weight.grad()), full) <
          4 * epsilon_of(lower) * std::sqrt(64.0) * std::sqrt(static_cast<double>(full.size())));
  }
}

TEST_CASE("[S26] an optimizer's arena takes the f32 sums over micro-batches under autocast") {
  Rng rng(4);
  const Tensor weight = leaf(rng.uniforms(8 * 12, -1, 1), {8, 12});
  const Tensor arena = arena_of(weight);
  Values expected(8 * 12);
  for (int micro = 0; micro < 5; ++micro) {
    const Values x = rng.uniforms(6 * 12, -1, 1), dy = rng.uniforms(6 * 8, -1, 1);
    const Autocast guard(f16);
    const Tensor y = linear(make(x, {6, 12}, f32), weight);
    backward(y, {.initial_gradient = make(dy, {6, 8}, f16)});
    const Values part = product(rounded(dy, f16), rounded(x, f16), 6, 8, 12);
    for (std::size_t i = 0; i < part.size(); ++i) expected[i] += part[i];
  }
  CHECK(distance(values_of(arena), expected) <
        64 * epsilon_of(f32) * distance(expected, Values(96)));
}

TEST_CASE(
    "[S26] gradients of both f32 factors of a matrix product stay f32, through views and batches") {
  Rng rng(5);
  const Values a = rng.uniforms(3 * 5 * 4, -1, 1), b = rng.uniforms(6 * 4, -1, 1),
               dy = rng.uniforms(3 * 5 * 6, -1, 1);
  const Tensor left = leaf(a, {3, 5, 4}), right = leaf(b, {6, 4});
  {
    const Autocast guard(f16);
    const Tensor y = matmul(left, transpose(right, 0, 1));
    REQUIRE(y.dtype() == f16);
    backward(y, {.initial_gradient = make(dy, {3, 5, 6}, f16)});
  }
  const Values low = rounded(dy, f16);
  const Values db = product(low, rounded(a, f16), 15, 6, 4);
  CHECK(right.grad().dtype() == f32);
  CHECK(distance(values_of(right.grad()), db) < 64 * epsilon_of(f32) * distance(db, Values(24)));
  // da = dy b, as (dyᵀ)ᵀ b.
  Values turned(6 * 15), b_low = rounded(b, f16);
  for (std::size_t i = 0; i < 15; ++i)
    for (std::size_t j = 0; j < 6; ++j) turned[j * 15 + i] = low[i * 6 + j];
  const Values da = product(turned, b_low, 6, 15, 4);
  CHECK(distance(values_of(left.grad()), da) < 64 * epsilon_of(f32) * distance(da, Values(60)));
}

TEST_CASE("[S26] a weight used twice collects both gradients in f32") {
  Rng rng(6);
  const Values w = rng.uniforms(16, -1, 1), x = rng.uniforms(8, -1, 1);
  const auto gradient = [&](bool twice) {
    const Tensor weight = leaf(w, {4, 4});
    const Autocast guard(f16);
    const Tensor y = linear(make(x, {2, 4}, f32), weight);
    const Tensor z = twice ? linear(make(x, {2, 4}, f32), weight) : y;
    (twice ? sum(y) + sum(z) : 2.0 * sum(y)).backward();
    return values_of(weight.grad());
  };
  CHECK(distance(gradient(true), gradient(false)) < 1e-5);
}

TEST_CASE("[S26] gradients come back in each tensor's own dtype, by every policy") {
  Rng rng(7);
  const auto check = [&](const char* name,
                         const std::function<Tensor(const Tensor&, const Tensor&)>& op) {
    INFO(name);
    const Values a = rng.uniforms(16, 0.5, 1.5), b = rng.uniforms(16, 0.5, 1.5);
    const auto gradients = [&](bool cast_up) {
      const Tensor x = leaf(rounded(a, f16), {4, 4}, cast_up ? f32 : f16);
      const Tensor y = leaf(rounded(b, f16), {4, 4});
      std::optional<Autocast> guard;
      if (!cast_up) guard.emplace(f16);
      const Tensor z = op(x, y);
      backward(z, {.initial_gradient = full(z.shape(), 1, z.dtype())});
      CHECK(x.grad().dtype() == x.dtype());
      CHECK(y.grad().dtype() == f32);
      return std::pair(values_of(x.grad()), values_of(y.grad()));
    };
    const auto [dx, dy] = gradients(false);
    const auto [fx, fy] = gradients(true);
    CHECK(distance(dx, fx) <= 8 * epsilon_of(f16) * (1 + distance(fx, Values(16))));
    CHECK(distance(dy, fy) <= 8 * epsilon_of(f16) * (1 + distance(fy, Values(16))));
  };
  check("promote", [](auto& x, auto& y) { return x * y; });
  check("where", [](auto& x, auto& y) { return where(lt(x, y), x, y); });
  check("cat", [](auto& x, auto& y) { return cat({x, y}, 1); });
  check("fp32", [](auto& x, auto& y) { return softmax(x) + firn::exp(y); });
  check("pow", [](auto& x, auto& y) { return firn::pow(x, y); });
  check("norm", [](auto& x, auto& y) { return layer_norm(x, y[0], y[1]) * y; });
  check("reduction", [](auto& x, auto& y) { return sum(x, {0}) + mean(y, {0}) + var(x, {0}); });
  check("lower", [](auto& x, auto& y) { return matmul(x, y); });
  check("loss", [](auto& x, auto& y) { return mse_loss(x, y).sum; });
}

TEST_CASE(
    "[S26] an in-place sum brings its operand to the dtype it writes, and the gradient back") {
  const Tensor x = leaf({1, 2}, {2}), b = leaf({3, 4}, {2}, f16);
  const Autocast guard(f16);
  Tensor y = x * 2.0;
  add_(y, b);
  CHECK(y.dtype() == f32);
  CHECK(values_of(y) == Values{5, 8});
  sum(y * y).backward();
  CHECK(values_of(x.grad()) == Values{20, 32});
  CHECK(b.grad().dtype() == f16);
  CHECK(values_of(b.grad()) == Values{10, 16});
  Tensor z = x * 2.0;
  mul_(z, z);  // the operand itself
  CHECK(values_of(z) == Values{4, 16});
}

TEST_CASE("[S26] a cast lives no longer than the graph that saved it") {
  const Tensor w = leaf(Values(256 * 256, 0.5), {256, 256});
  const Tensor x = ones({8, 256});
  const auto in_use = [] { return memory_stats().total.current; };
  const auto before = in_use();
  {
    const Autocast guard(f16);
    Tensor y = linear(x, w);
    CHECK(in_use() >= before + 256 * 256 * 2);
    y = Tensor();
    CHECK(in_use() == before);
    y = sum(linear(x, w));
    y.backward();  // y and its graph stay, what they saved goes
    CHECK(in_use() < before + w.grad().bytes() + 4096);
  }
}

TEST_CASE("[S26] f64 gradients are the same inside and outside a guard") {
  Rng rng(8);
  const Values a = rng.uniforms(16, -1, 1), b = rng.uniforms(16, -1, 1);
  const auto gradient = [&](bool guarded) {
    const Tensor x = leaf(a, {4, 4}, f64), w = leaf(b, {4, 4}, f64);
    std::optional<Autocast> guard;
    if (guarded) guard.emplace(f16);
    sum(softmax(linear(x, w)) * x).backward();
    return std::pair(values_of(x.grad()), values_of(w.grad()));
  };
  CHECK(gradient(true) == gradient(false));
}
