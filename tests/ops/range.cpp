// Results where a formula that is right on paper loses them: large means, squares beyond f32,
// infinities, ties, and operations that are made of others in 16 bits.
#include <cmath>
#include <limits>
#include <vector>

#include "firn/grad.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::expect_close;
using firn::testing::make;
using firn::testing::rounded;
using firn::testing::values_of;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

/// The gradient of sum(f(x)).
template <class Fn>
Tensor gradient(Fn&& f, const Tensor& x) {
  Tensor leaf = x.clone().set_requires_grad();
  sum(f(leaf)).backward();
  return leaf.grad();
}

/// The derivative by `by` of the derivative of sum(y) by `of`.
double second(const Tensor& y, const Tensor& of, const Tensor& by) {
  const Tensor first = grad({sum(y)}, {of}, {.create_graph = true})[0];
  return grad({sum(first)}, {by})[0].item();
}

Tensor leaf(double value) { return full({1}, value, f64).set_requires_grad(); }

}  // namespace

TEST_CASE("variances keep their digits under a large mean", "[ops]") {
  firn::testing::Rng rng(7);
  for (const double mean : {0.0, 1e4, -3e6}) {
    Values v = rng.uniforms(300, -1, 1);
    for (double& x : v) x = mean + x * (mean == 0 ? 1 : std::fabs(mean) * 1e-6);
    const Tensor narrow = make(v, {3, 100}, f32), wide = narrow.to(f64);
    CAPTURE(mean);
    const auto near = [&](const char* what, const Tensor& got, const Tensor& want, double unit) {
      const Values w = values_of(want);
      expect_close(what, values_of(got), w, unit * firn::testing::largest(w));
    };
    near("var", var(narrow), var(wide), 1e-6);
    near("std of rows", firn::std(narrow, 1), firn::std(wide, 1), 1e-6);
    near("std of columns", firn::std(narrow, 0), firn::std(wide, 0), 1e-6);
    near("var_mean", var_mean(narrow).var, var_mean(wide).var, 1e-6);
    const auto deviation = [](const Tensor& x) { return firn::std(x, 1); };
    near("gradient", gradient(deviation, narrow), gradient(deviation, wide), 1e-6);
    const Tensor x = narrow.clone().set_requires_grad();
    near("recorded gradient", grad({sum(deviation(x))}, {x}, {.create_graph = true})[0].detach(),
         gradient(deviation, wide), 1e-6);
    // The mean is rounded to f32, so rows are moved as a whole.
    near("layer_norm", firn::std(layer_norm(narrow), 1), firn::std(layer_norm(wide), 1), 1e-6);
    near("cov", cov(narrow), cov(wide), 1e-5);
  }
}

TEST_CASE("equal values have variance 0, and a gradient of 0", "[ops]") {
  for (const DType t : {f32, f64, f16}) {
    const Tensor x = full({3, 37}, 1.1, t);
    CHECK(values_of(var(x)) == Values{0});
    CHECK(values_of(firn::std(x, 1)) == Values(3, 0.0));
    const auto deviation = [](const Tensor& y) { return firn::std(y, 1); };
    for (const double g : values_of(gradient(deviation, x))) CHECK(g == 0);
  }
}

TEST_CASE("std and norm have the whole range of f32", "[ops]") {
  for (const DType t : {f32, bf16})
    for (const double unit : {0x1p66, 0x1p63, 0x1p-66, 0x1p-76, 0x1p-80}) {
      CAPTURE(t, unit);
      const Tensor x = make({unit, 3 * unit, -unit}, {3}, t);
      CHECK(firn::std(x).item() == 2 * unit);
      CHECK(values_of(firn::std(x.reshape({1, 3}), 1)) == Values{2 * unit});
      CHECK(values_of(norm(x)) == rounded({std::sqrt(11.0) * unit}, t));
      CHECK(values_of(norm(x.reshape({3, 1}), 0)) == rounded({std::sqrt(11.0) * unit}, t));
      const auto deviation = [](const Tensor& y) { return firn::std(y); };
      expect_close("gradient", values_of(gradient(deviation, x)), {0, 0.5, -0.5}, 1e-2);
      const auto length = [](const Tensor& y) { return norm(y); };
      const double root = std::sqrt(11.0);
      expect_close("gradient", values_of(gradient(length, x)), {1 / root, 3 / root, -1 / root},
                   1e-2);
    }
}

TEST_CASE("std and var are numbers where sums and distances of f32 are not", "[ops][host]") {
  const double most = 0x1.8p127;
  for (const DType t : {f32, bf16}) {
    CHECK(values_of(firn::std(full({4}, most, t))) == Values{0});
    CHECK(values_of(var(full({1000, 2}, most, t), 0)) == Values{0, 0});
    const Tensor x = make({most, most, most, -most}, {4}, t);
    CHECK(firn::std(x).item() == most);
    CHECK(values_of(firn::std(x.reshape({4, 1}), 0, 0)) == rounded({most * std::sqrt(0.75)}, t));
    CHECK(var(x).item() == kInf);
    CHECK(values_of(var_mean(full({4}, most, t)).var) == Values{0});
    CHECK(values_of(gradient([](const Tensor& y) { return var(y); }, full({4}, most, t))) ==
          Values(4, 0.0));
    CHECK(mean(x).item() == kInf);  // as PyTorch's
    CHECK(std::isnan(firn::std(make({kInf, most, 1}, {3}, t)).item()));
    // The other rows keep their bits.
    const Tensor row = randn({1, 100}).to(t), large = full({1, 100}, most, t);
    CHECK(values_of(var(cat({row, large, row}), 1)) == Values{var(row).item(), 0, var(row).item()});
  }
}

TEST_CASE("log-sum-exp and its scan have the gradients of infinite operands", "[ops]") {
  for (const DType t : {f64, f32}) {
    const Tensor x = make({0.3, kInf, -2.1}, {3}, t);
    const Values scan = values_of(gradient([](const Tensor& y) { return logcumsumexp(y, 0); }, x));
    CHECK(scan[0] == 1);  // the first result is the first operand; the others no longer see it
    CHECK(std::isnan(scan[1]));
    CHECK(scan[2] == 0);
    const Values all = values_of(gradient([](const Tensor& y) { return logsumexp(y); }, x));
    CHECK(all[0] == 0);
    CHECK(std::isnan(all[1]));
    CHECK(all[2] == 0);
    const Tensor none = make({-kInf, -kInf}, {2}, t);
    CHECK(values_of(gradient([](const Tensor& y) { return logsumexp(y); }, none)) == Values{0, 0});
  }
}

TEST_CASE("logsumexp: the gradient is a softmax, however the result is rounded", "[ops]") {
  for (const DType t : {f32, f16, bf16})
    for (const double value : {30.0, 256.0, 1000.0, 60000.0}) {
      CAPTURE(t, value);
      const Tensor x = full({2, 4}, value, t).set_requires_grad();
      logsumexp(x, 1).sum().backward();
      CHECK(values_of(x.grad()) == Values(8, 0.25));
      const Tensor y = full({4}, value, f32).to(t).set_requires_grad();
      const Tensor first = grad({logsumexp(y).to(f32)}, {y}, {.create_graph = true})[0];
      CHECK(values_of(first) == Values(4, 0.25));
      // The derivative of softmax by its own logit: 1/4 - 1/16.
      const Tensor own = grad({first.select(0, 0).to(f32)}, {y})[0];
      CHECK(own[0].to(f64).item() == 0.1875);
    }
}

TEST_CASE("a special case of a derivative has the second derivative of the formula", "[ops]") {
  {
    const Tensor a = leaf(0.7), b = leaf(0.7);
    CHECK(second(logaddexp(a, b), a, a) == 0.25);
    CHECK(second(logaddexp(a, b), a, b) == -0.25);
  }
  {  // infinities have no difference, and a derivative all the same
    const Tensor a = leaf(kInf), b = leaf(kInf);
    CHECK(grad({sum(logaddexp(a, b))}, {a})[0].item() == 0.5);
  }
  {  // d/db b a^(b - 1) at b = 0
    const Tensor a = leaf(4), b = leaf(0);
    CHECK(grad({sum(pow(a, b))}, {a})[0].item() == 0);
    CHECK(second(pow(a, b), a, b) == 0.25);
    CHECK(second(pow(a, b), b, a) == 0.25);
    CHECK(second(pow(a, b), a, a) == 0);
  }
  {
    const Tensor a = leaf(0), b = leaf(2);
    CHECK(second(pow(a, b), a, a) == 2);
    CHECK(second(pow(a, b), b, a) == 0);
    CHECK(second(pow(a, b), b, b) == 0);
  }
  for (const double base : {0.0, kInf}) {
    const Tensor a = leaf(base), b = leaf(0);
    CHECK(grad({sum(pow(a, b))}, {a})[0].item() == 0);
  }
  {  // no NaN from the side that is not taken
    const Tensor y = leaf(0), x = leaf(0);
    CHECK(second(atan2(y, x), y, y) == 0);
    const Tensor log_p = leaf(-1), target = leaf(0);
    CHECK(second(kl_div(log_p, target).sum, target, target) == 0);
  }
}

TEST_CASE("clamp has derivative 0 at a bound, by numbers and by tensors", "[ops]") {
  const Values at = {-1, -0.5, 0.5, 0.7};
  for (const DType t : {f64, f32, f16}) {
    const Tensor x = make(at, {4}, t);
    const auto numbers = [](const Tensor& y) { return clamp(y, -1, 0.5); };
    CHECK(values_of(gradient(numbers, x)) == Values{0, 1, 0, 0});
    Tensor low = make({-1, -1, -1, -1}, {4}, t).set_requires_grad();
    Tensor high = make({0.5, 0.5, 0.5, 0.5}, {4}, t).set_requires_grad();
    const auto tensors = [&](const Tensor& y) { return clamp(y, low, high); };
    CHECK(values_of(gradient(tensors, x)) == Values{0, 1, 0, 0});
    CHECK(values_of(low.grad()) == Values{1, 0, 0, 0});
    CHECK(values_of(high.grad()) == Values{0, 0, 1, 1});
    // Where bounds are equal or cross, the upper one wins.
    Tensor bound = make({0.5, 0.5, 0.5, 0.5}, {4}, t).set_requires_grad();
    const auto equal = [&](const Tensor& y) { return clamp(y, bound, high); };
    high = make({0.5, 0.5, 0.5, 0.5}, {4}, t).set_requires_grad();
    CHECK(values_of(gradient(equal, x)) == Values{0, 0, 0, 0});
    CHECK(values_of(bound.grad()) == Values{1, 1, 0, 0});
    CHECK(values_of(high.grad()) == Values{0, 0, 1, 1});
  }
}

TEST_CASE("hinge losses have derivative 0 at the margin", "[ops]") {
  const Tensor x = make({1, 2, 0}, {3}), minus = full({3}, -1, f64), plus = full({3}, 1, f64);
  const auto embedding = [&](const Tensor& y) { return hinge_embedding_terms(y, minus).terms; };
  CHECK(values_of(gradient(embedding, x)) == Values{0, 0, -1});
  const auto hinge = [&](const Tensor& y) { return hinge_terms(y, plus).terms; };
  CHECK(values_of(gradient(hinge, x)) == Values{0, 0, -1});
  const auto ranking = [&](const Tensor& y) {
    return margin_ranking_terms(y, zeros({3}, f64), plus, 1).terms;
  };
  CHECK(values_of(gradient(ranking, x)) == Values{0, 0, -1});
}

TEST_CASE("operations made of others round once in 16 bits", "[ops]") {
  for (const DType t : {f16, bf16}) {
    CAPTURE(t);
    const Tensor at = zeros({1}, i64);
    const auto only = [&](double v) { return full({1}, v, t); };
    CHECK(values_of(index_add(only(-60000), 0, at, only(30000), 4)) ==
          rounded({4 * rounded({30000}, t)[0] + rounded({-60000}, t)[0]}, t));
    const double x = rounded({0.01}, t)[0];
    const double shrunk = values_of(tanhshrink(only(0.01)))[0];
    CHECK(std::fabs(shrunk - (x - std::tanh(x))) <
          2e-9 + 0x1p-8 * shrunk + (t == f16 ? 0x1p-25 : 0));
    CHECK(values_of(trapezoid(full({100}, 1000, t), 0.01)) == rounded({990}, t));
    CHECK(values_of(trapezoid(make({300, 300, 300}, {3}, t), make({-300, 300, -300}, {3}, t))) ==
          Values{0});
    const Tensor pair = make({300, -300, 200, 300, -300, 200}, {2, 3}, t);
    for (const double r : values_of(corrcoef(pair))) CHECK(r == 1);
    CHECK(values_of(diff(make({40000, -10000, 40000}, {3}, t), 2)) ==
          rounded({rounded({40000}, t)[0] * 2 - rounded({-10000}, t)[0] * 2}, t));
  }
}
