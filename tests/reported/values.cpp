// Reports of wrong values, each as the short program that shows it: public headers alone. Tests
// of the parts look at the same matters at length.
#include <cmath>
#include <limits>
#include <vector>

#include "firn/firn.h"
#include "firn/grad.h"
#include "support/catch.h"

using namespace firn;

namespace {

std::vector<double> list(const Tensor& t) { return t.detach().to(f64).to_vector<double>(); }

Tensor leaf(const std::vector<double>& values) {
  return tensor(values, {static_cast<std::int64_t>(values.size())}).set_requires_grad();
}

/// The gradient of sum(f(x)) at `values`.
template <class Fn>
std::vector<double> slopes(const std::vector<double>& values, const Fn& f) {
  const Tensor x = leaf(values);
  backward(sum(f(x)));
  return list(x.grad());
}

bool near(double got, double right, double relative) {
  return std::abs(got - right) <= relative * std::abs(right);
}

}  // namespace

TEST_CASE("atan2_min: functions of subnormal numbers give f(x) or f(0)") {
  for (const float v : {1e-37f, 1.2e-38f, 1.1e-38f, 1e-40f, 1e-45f}) {
    const Tensor x = full({1}, v);
    const double angle = atan2(x, x).item();
    CHECK((near(angle, std::atan2(1, 1), 1e-6) || angle == 0));
    const double root = pow(x, full({1}, 0.5)).item();
    CHECK((near(root, std::sqrt(double{v}), 1e-6) || root == 0));
  }
  const double below = log(full({1}, 1e-310, f64)).item();
  CHECK((near(below, std::log(1e-310), 1e-12) || below == -HUGE_VAL));
  CHECK(near(log(full({1}, 2.3e-308, f64)).item(), std::log(2.3e-308), 1e-12));
}

TEST_CASE("ftz: a subnormal number counts as 0, or as itself, in each function") {
  const double logarithm = log(zeros({1}) + 1e-40).item();
  CHECK((logarithm == -HUGE_VAL || near(logarithm, std::log(1e-40), 1e-4)));
  const double root = sqrt(full({1}, 1e-310, f64)).item();
  CHECK((root == 0 || near(root, std::sqrt(1e-310), 1e-9)));
  const double tail = exp(full({1}, -90)).item();
  CHECK((tail == 0 || near(tail, std::exp(-90), 1e-4)));
  CHECK(log(full({1}, 6e-8, f16)).to(f32).item() < -16);  // f16 has no such limit
}

TEST_CASE("kink: clamp has one derivative at a bound, in both forms") {
  const std::vector<double> x = {-1, -0.5, 0.5, 0.7};
  const auto numbers = slopes(x, [](const Tensor& t) { return clamp(t, -1, 0.5); });
  const auto tensors =
      slopes(x, [](const Tensor& t) { return clamp(t, full({4}, -1, f64), full({4}, 0.5, f64)); });
  CHECK(numbers == std::vector<double>{0, 1, 0, 0});
  CHECK(tensors == numbers);
  const auto hinge = slopes({1, 2, 0}, [](const Tensor& t) {
    return hinge_embedding_terms(t, full({3}, -1, f64)).terms;
  });
  CHECK(hinge == std::vector<double>{0, 0, -1});
}

TEST_CASE("logaddexp_min: the second derivative of logaddexp at a = b is 0.25") {
  for (const double apart : {0.0, 1e-9}) {
    const Tensor a = leaf({0.7});
    const Tensor first =
        grad({sum(logaddexp(a, full({1}, 0.7 + apart, f64)))}, {a}, {.create_graph = true})[0];
    CHECK(near(grad({sum(first)}, {a})[0].item(), 0.25, 1e-6));
  }
}

TEST_CASE("logcumsumexp_inf: the gradient before an infinity, and after it") {
  const auto got =
      slopes({0.3, HUGE_VAL, -2.1}, [](const Tensor& t) { return logcumsumexp(t, 0); });
  CHECK(got[0] == 1);
  CHECK(std::isnan(got[1]));
  CHECK(got[2] == 0);
}

TEST_CASE("min_index_add: 16-bit composites are rounded once") {
  for (const DType t : {f16, bf16}) {
    const Tensor at = zeros({1}, i64);
    const Tensor added = index_add(full({1}, -60000, t), 0, at, full({1}, 30000, t), 4);
    CHECK(near(added.to(f32).item(), 60000, 0.004));
    CHECK(near(tanhshrink(full({1}, 0.01, t)).to(f32).item(), 3.3e-7, 0.1));
    CHECK(near(trapezoid(full({100}, 1000, t), 0.01).to(f32).item(), 990, 0.004));
    const Tensor there = tensor({-300.f, 300.f, -300.f}, {3}).to(t);
    CHECK(trapezoid(full({3}, 300, t), there).to(f32).item() == 0);
    const Tensor rows = tensor({300.f, -300.f, 200.f, 300.f, -300.f, 200.f}, {2, 3}).to(t);
    CHECK(near(corrcoef(rows)[0][1].to(f32).item(), 1, 0.004));
  }
}

TEST_CASE("std_range: std and norm of tiny and huge numbers") {
  for (const float v : {1e20f, 1e19f, 1e-20f, 1e-22f, 1e-24f}) {
    const Tensor x = tensor(std::vector<float>{v, 3 * v, -v}, {3}).set_requires_grad();
    const Tensor deviation = firn::std(x);
    CHECK(near(deviation.item(), 2.0 * v, 1e-6));
    CHECK(near(norm(x.detach()).item(), std::sqrt(11.0) * v, 1e-6));
    backward(deviation);
    CHECK(near(list(x.grad())[1], 0.5, 1e-6));
  }
  for (const double v : {1e20, 1e-22}) {
    const Tensor w = zeros({2}).set_requires_grad();
    optim::SGD opt({w}, {.lr = 1}, {.clip_norm = 1});
    opt.backward(sum(w * full({2}, v)));
    CHECK(near(opt.step().norm(), std::sqrt(2.0) * v, 1e-6));
  }
}

TEST_CASE("var_offset: var of f32 numbers with a large mean") {
  manual_seed(7);
  const Tensor x = (0.01 * randn({300}, f64) + 10000.0).to(f32);
  CHECK(near(var(x).item(), var(x.to(f64)).item(), 1e-6));
  CHECK(near(firn::std(layer_norm(x.reshape({1, 300}))).item(), std::sqrt(300.0 / 299), 0.06));
}

TEST_CASE("conv3d_bf16_minimal: bf16 convolutions read no unwritten memory") {
  manual_seed(3);
  {
    std::vector<Tensor> dirt;
    for (std::int64_t n = 1; n < 3000; n = n * 3 / 2 + 1) dirt.push_back(full({64 * n}, 7.0));
  }
  const Tensor x = randn({2, 16, 3, 3, 3}).to(bf16);
  const Tensor w = randn({16, 16, 3, 3, 3}).to(bf16).set_requires_grad();
  const Tensor right = w.detach().to(f64).clone().set_requires_grad();
  backward(sum(conv3d(x, w, {}, {.stride = 2, .padding = 1}).to(f32)));
  backward(sum(conv3d(x.to(f64), right, {}, {.stride = 2, .padding = 1})));
  CHECK(max(abs(w.grad().to(f64) - right.grad())).item() < 0.01 * max(abs(right.grad())).item());
}

TEST_CASE("perm_min: neighbours of a shuffled order are no nearer than chance has them") {
  const data::TensorDataset set({arange(128)});
  data::Loader loader(set, {.batch = 128, .shuffle = true, .seed = 1});
  constexpr int kEpochs = 2000;
  double beside = 0;
  for (int e = 0; e < kEpochs; ++e)
    for (const auto& b : loader.epoch(e)) {
      const auto ids = b.ids.to_vector<std::int64_t>();
      for (std::size_t i = 0; i + 2 < ids.size(); ++i) beside += std::abs(ids[i + 2] - ids[i]) == 1;
    }
  // The expectation is 2 * 126 / 128 an epoch; one standard deviation of the mean is 0.03.
  CHECK(std::abs(beside / kEpochs - 2.0 * 126 / 128) < 0.15);
}
