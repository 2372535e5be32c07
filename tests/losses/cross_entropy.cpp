// Cross-entropy and negative log-likelihood: values computed by hand, options, refusals.
#include <cmath>
#include <sstream>

#include "firn/ops/losses.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

// Rows with probabilities 1/2 1/4 1/4 and 1/10 1/5 7/10, as logits with offsets of their own.
const std::vector<double> kProbabilities = {0.5, 0.25, 0.25, 0.1, 0.2, 0.7};
Tensor logits(DType t = f64) {
  std::vector<double> x;
  for (std::size_t i = 0; i < 6; ++i) x.push_back(std::log(kProbabilities[i]) + (i < 3 ? 3 : -2));
  return make(x, {2, 3}, t);
}
Tensor log_probabilities() {
  std::vector<double> x;
  for (double p : kProbabilities) x.push_back(std::log(p));
  return make(x, {2, 3}, f64);
}
Tensor targets(std::vector<std::int64_t> t) {
  return tensor(t, {static_cast<std::int64_t>(t.size())});
}

TEST_CASE("cross_entropy: sum, weight, mean and gradient of two rows") {
  for (const DType t : {f32, f64}) {
    Tensor x = logits(t);
    x.set_requires_grad();
    const Loss loss = cross_entropy(x, targets({0, 2}));
    const double eps = t == f64 ? 1e-14 : 1e-6;
    CHECK(loss.sum.shape() == Shape{});
    CHECK(loss.sum.dtype() == t);
    CHECK(loss.sum.item() == Approx(-std::log(0.5) - std::log(0.7)).epsilon(eps));
    CHECK(loss.weight.item() == 2);
    CHECK(loss.item() == Approx(-std::log(0.35) / 2).epsilon(eps));
    loss.sum.backward();
    expect_close("p - 1 at the target", values_of(x.grad()), {-0.5, 0.25, 0.25, 0.1, 0.2, -0.3},
                 eps);
  }
}

TEST_CASE("targets of every index dtype, and logits with leading axes or none") {
  const double want = cross_entropy(logits(), targets({1, 2})).sum.item();
  for (const DType t : {i32, u8})
    CHECK(cross_entropy(logits(), make({1, 2}, {2}, t)).sum.item() == want);
  CHECK(cross_entropy(logits().reshape({2, 1, 3}), targets({1, 2}).reshape({2, 1})).sum.item() ==
        want);
  const Loss one = cross_entropy(make({0, 0}, {2}), make({1}, {}, i64));
  CHECK(one.sum.item() == Approx(std::log(2.0)));
  CHECK(one.weight.item() == 1);
  // Rows and targets with strides of their own.
  const Tensor wide = make(values_of(logits()), {2, 3}, f64, Layout::transposed);
  CHECK(cross_entropy(wide, make({1, 2}, {2}, i64, Layout::stepped)).sum.item() == want);
}

TEST_CASE("[S03] ignored rows count for nothing: neither in the sum nor in the weight") {
  Tensor x = logits();
  x.set_requires_grad();
  const Loss loss = cross_entropy(x, targets({-100, 1}));
  CHECK(loss.sum.item() == Approx(-std::log(0.2)));
  CHECK(loss.weight.item() == 1);
  loss.sum.backward();
  expect_close("gradient", values_of(x.grad()), {0, 0, 0, 0.1, -0.8, 0.7}, 1e-14);
  // A class may be the ignored one.
  const Loss no_zero =
      cross_entropy(logits(), targets({0, 1}), {.ignore_index = 0, .class_weights = {}});
  CHECK(no_zero.weight.item() == 1);
  CHECK(no_zero.sum.item() == Approx(-std::log(0.2)));
}

TEST_CASE("[S03] with all rows ignored sum, weight, mean and gradient are 0, not NaN") {
  for (const DType t : {f16, f32, f64}) {
    Tensor x = make({1, std::nan(""), 3, 4, 5, 6}, {2, 3}, t);
    x.set_requires_grad();
    const Loss loss = cross_entropy(x, targets({-100, -100}));
    CHECK(loss.sum.item() == 0);
    CHECK(loss.weight.item() == 0);
    CHECK(loss.item() == 0);
    CHECK(loss.mean().item() == 0);
    loss.backward();
    expect_same("gradient", values_of(x.grad()), std::vector<double>(6, 0.0));
  }
  const Loss none = cross_entropy(empty({0, 3}), empty({0}, i64));
  CHECK(none.sum.item() == 0);
  CHECK(none.item() == 0);
}

TEST_CASE("[S03] class weights: the weight is the sum of the targets' weights") {
  Tensor x = logits();
  x.set_requires_grad();
  const Loss loss =
      cross_entropy(x, targets({0, 2}), {.class_weights = tensor<double>({2.0, 1.0, 0.5})});
  CHECK(loss.weight.item() == 2.5);
  CHECK(loss.sum.item() == Approx(-2 * std::log(0.5) - 0.5 * std::log(0.7)));
  loss.backward();
  expect_close("gradient of the mean", values_of(x.grad()), {-0.4, 0.2, 0.2, 0.02, 0.04, -0.06},
               1e-14);
  const Tensor zero = tensor<double>({0.0, 1.0, 0.0});
  const Loss nothing = cross_entropy(logits(), targets({0, 2}), {.class_weights = zero});
  CHECK(nothing.sum.item() == 0);
  CHECK(nothing.mean().item() == 0);
}

TEST_CASE("[S03] row weights multiply a row's term and its part of the denominator") {
  for (const bool nll : {false, true}) {
    Tensor x = nll ? log_probabilities() : logits();
    x.set_requires_grad();
    const CrossEntropyOptions options{.class_weights = tensor<double>({2.0, 1.0, 0.5}),
                                      .row_weights = tensor<float>({3.0f, 0.25f})};
    const Loss loss =
        nll ? nll_loss(x, targets({0, 2}), options) : cross_entropy(x, targets({0, 2}), options);
    CHECK(loss.weight.item() == 3 * 2 + 0.25 * 0.5);
    CHECK(loss.sum.item() == Approx(-6 * std::log(0.5) - 0.125 * std::log(0.7)));
    loss.sum.backward();
    expect_close("gradient", values_of(x.grad()),
                 nll ? std::vector<double>{-6, 0, 0, 0, 0, -0.125}
                     : std::vector<double>{-3, 1.5, 1.5, 0.0125, 0.025, -0.0375},
                 1e-14);
  }
  // [n, C, h]: a weight for each position, here only the last one.
  Tensor image = logits().reshape({1, 2, 3}).set_requires_grad();
  const Loss last =
      cross_entropy(image, targets({0, 1, 1}).reshape({1, 3}),
                    {.axis = 1, .row_weights = tensor<double>({0.0, 0.0, 2.0}, {1, 3})});
  CHECK(last.weight.item() == 2);
  last.sum.backward();
  const std::vector<double> grad = values_of(image.grad());
  CHECK(grad[2] != 0);
  for (const std::size_t i : {0u, 1u, 3u, 4u}) CHECK(grad[i] == 0);
}

TEST_CASE("[S03] a row of weight 0 is left out, whatever its logits are") {
  Tensor x = make({std::nan(""), 1, 2, 3, 4, 5}, {2, 3}, f64).set_requires_grad();
  const Loss loss = cross_entropy(
      x, targets({0, 2}),
      {.label_smoothing = 0.1, .row_weights = tensor<double>({0.0, 1.0}), .z_loss = 0.1});
  CHECK(loss.weight.item() == 1);
  CHECK(std::isfinite(loss.sum.item()));
  loss.sum.backward();
  const std::vector<double> grad = values_of(x.grad());
  for (std::size_t i = 0; i < 3; ++i) CHECK(grad[i] == 0);
  for (std::size_t i = 3; i < 6; ++i) CHECK(std::isfinite(grad[i]));
}

TEST_CASE("z-loss adds the square of the log-sum, which class weights do not multiply") {
  // log sum e^x of the two rows is their offset: 3 and -2.
  Tensor x = logits();
  x.set_requires_grad();
  const Loss loss = cross_entropy(
      x, targets({0, -100}), {.class_weights = tensor<double>({2.0, 1.0, 0.5}), .z_loss = 0.01});
  CHECK(loss.weight.item() == 2);
  CHECK(loss.sum.item() == Approx(-2 * std::log(0.5) + 0.01 * 9));
  loss.sum.backward();
  // 2 (p - [c = t]) + 2 z lse p
  expect_close("gradient", values_of(x.grad()), {-1 + 0.03, 0.515, 0.515, 0, 0, 0}, 1e-14);
}

TEST_CASE("a z-loss below 0 counts too, for any form of the target") {
  const Tensor x = logits(), t = targets({0, 1});
  const CrossEntropyOptions plain, below{.z_loss = -0.01};
  const double lost = -0.01 * (9 + 4);
  CHECK(cross_entropy(x, t, below).sum.item() ==
        Approx(cross_entropy(x, t, plain).sum.item() + lost));
  CHECK(cross_entropy_terms(x, t, below).loss().sum.item() ==
        Approx(cross_entropy_terms(x, t, plain).loss().sum.item() + lost));
  const Tensor p = full({2, 3}, 1.0 / 3, f64);
  CHECK(cross_entropy(x, p, below).sum.item() ==
        Approx(cross_entropy(x, p, plain).sum.item() + lost));
}

TEST_CASE("label smoothing spreads its part over all classes, with their weights") {
  const double s = 0.3;
  const std::vector<double> w = {2, 1, 0.5};
  for (const bool weighted : {false, true}) {
    Tensor x = logits();
    x.set_requires_grad();
    CrossEntropyOptions options{.label_smoothing = s, .class_weights = {}};
    if (weighted) options.class_weights = tensor(w, {3});
    const Loss loss = cross_entropy(x, targets({1, 2}), options);
    double sum = 0, weight = 0;
    std::vector<double> grad(6);
    for (std::size_t r = 0; r < 2; ++r) {
      const std::size_t t = r + 1;
      double q_sum = 0;
      std::vector<double> q(3);  // the weighted target distribution
      for (std::size_t c = 0; c < 3; ++c) {
        q[c] = (c == t ? 1 - s : 0) + s / 3;
        // Smoothing is weighted by each class, the hit by the target's.
        q[c] = (c == t ? (1 - s) * (weighted ? w[t] : 1) : 0) + s / 3 * (weighted ? w[c] : 1);
        q_sum += q[c];
        sum -= q[c] * std::log(kProbabilities[3 * r + c]);
      }
      for (std::size_t c = 0; c < 3; ++c)
        grad[3 * r + c] = q_sum * kProbabilities[3 * r + c] - q[c];
      weight += weighted ? w[t] : 1;
    }
    CHECK(loss.sum.item() == Approx(sum));
    CHECK(loss.weight.item() == Approx(weight));
    loss.sum.backward();
    expect_close("gradient", values_of(x.grad()), grad, 1e-14);
  }
}

TEST_CASE("nll_loss of log_softmax is cross_entropy, value and gradient, with every option") {
  for (const double s : {0.0, 0.2}) {
    const CrossEntropyOptions options{.label_smoothing = s,
                                      .class_weights = tensor<double>({2.0, 1.0, 0.5})};
    Tensor a = logits(), b = logits();
    a.set_requires_grad();
    b.set_requires_grad();
    const Loss fused = cross_entropy(a, targets({2, -100}), options);
    const Loss split = nll_loss(log_softmax(b), targets({2, -100}), options);
    CHECK(fused.sum.item() == Approx(split.sum.item()));
    CHECK(fused.weight.item() == split.weight.item());
    fused.backward();
    split.backward();
    expect_close("gradient", values_of(a.grad()), values_of(b.grad()), 1e-14);
  }
  CHECK(nll_loss(log_probabilities(), targets({0, 0})).sum.item() == Approx(-std::log(0.05)));
}

TEST_CASE("cross_entropy of large f16 logits is finite and exact") {
  Tensor x = make({65504, -65504, 60000, 60000, 60000, -60000}, {2, 3}, f16);
  x.set_requires_grad();
  const Loss loss = cross_entropy(x, targets({1, 0}));
  CHECK(loss.sum.dtype() == f32);
  CHECK(loss.sum.item() == Approx(131008 + std::log(2.0)));  // more than an f16 holds
  loss.sum.backward();
  CHECK(x.grad().dtype() == f16);
  expect_close("gradient", values_of(x.grad()), {1, -1, 0, -0.5, 0.5, 0}, 1e-3);
}

TEST_CASE("gradients keep their digits where all logits are large") {
  // log sum e^x of 30000 + x, rounded to f32, would be off by up to 1e-3.
  std::vector<double> x = {30000, 30000.5, 30001}, p;
  double sum = 0;
  for (double v : x) sum += std::exp(v - 30000);
  for (double v : x) p.push_back(std::exp(v - 30000) / sum);
  p[0] -= 1;
  Tensor t = make(x, {1, 3}, f32);
  t.set_requires_grad();
  cross_entropy(t, targets({0})).sum.backward();
  expect_close("gradient", values_of(t.grad()), p, 1e-6);
}

TEST_CASE("a large batch is summed without loss, by any number of threads", "[long]") {
  const std::int64_t n = 100'003;
  const int before = num_threads();
  const auto sum = [&](int threads) {
    set_num_threads(threads);
    return cross_entropy(zeros({n, 10}), zeros({n}, i64)).sum.item();
  };
  const double one = sum(1), two = sum(2);
  set_num_threads(before);
  CHECK(one == two);
  CHECK(one == Approx(static_cast<double>(n) * std::log(10.0)).epsilon(2e-7));
}

TEST_CASE("the mean's gradient and a factor on a loss") {
  Tensor x = logits();
  x.set_requires_grad();
  const Loss loss = 3 * cross_entropy(x, targets({0, 2}));
  CHECK(loss.weight.item() == 2);
  CHECK(loss.item() == Approx(-1.5 * std::log(0.35)));
  (loss * 2.0).mean().backward();
  expect_close("gradient", values_of(x.grad()), {-1.5, 0.75, 0.75, 0.3, 0.6, -0.9}, 1e-14);
  std::ostringstream text;
  text << cross_entropy(make({0, 0}, {1, 2}), targets({0}));
  CHECK(text.str() == "0.693147");
}

TEST_CASE("a bad target is refused with its row, value and the number of classes", "[host]") {
  CHECK(error_of([] {
          cross_entropy(logits(), targets({0, 3}));
        }) ==
        "[cross_entropy] target 3 of row 1 is not one of 3 classes; hint: targets are 0 to 2, or "
        "ignore_index (-100)");
  CHECK(error_of([] {
          nll_loss(logits(), targets({-1, 0}));
        }) ==
        "[nll_loss] target -1 of row 0 is not one of 3 classes; hint: targets are 0 to 2, or "
        "ignore_index (-100)");
}

TEST_CASE("losses over classes refuse operands that do not fit", "[host]") {
  CHECK(error_of([] {
          cross_entropy(logits(), targets({0, 1, 2}));
        }) ==
        "[cross_entropy] target [3] i64 cpu for [2, 3] f64 cpu: expected shape [2]; hint: give one "
        "class "
        "number per row, without a class axis");
  CHECK(error_of([] { cross_entropy(logits(), zeros({2})); }) ==
        "[cross_entropy] class numbers are integers, target is [2] f32 cpu; hint: cast it: "
        "target.to(firn::i64)");
  CHECK(error_of([] {
          cross_entropy(logits(), targets({0, 1}), {.label_smoothing = 1, .class_weights = {}});
        }) == "[cross_entropy] label_smoothing = 1; hint: label_smoothing is in [0, 1)");
  CHECK(
      error_of([] {
        cross_entropy(logits(), targets({0, 1}), {.class_weights = ones({2})});
      }) ==
      "[cross_entropy] class_weights [2] f32 cpu for [2, 3] f64 cpu: expected shape [3]; hint: one "
      "floating weight per class, on the device of the logits");
  CHECK(error_of([] {
          cross_entropy(logits(), targets({0, 1}), {.row_weights = ones({2, 1})});
        }) ==
        "[cross_entropy] row_weights [2, 1] f32 cpu for target [2] i64 cpu; hint: one floating "
        "weight per target, on the device of the logits");
  CHECK(error_of([] {
          nll_loss(logits(), targets({0, 1}), {.z_loss = 1e-4});
        }) ==
        "[nll_loss] z_loss = 0.0001, but log-probabilities have no sum that could drift; hint: "
        "give the logits to cross_entropy");
  CHECK(error_of([] {
          cross_entropy(logits(f32), targets({0, 1}), {.z_loss = 1e300});
        }) ==
        "[cross_entropy] z_loss = 1e+300 is not finite in f32; hint: 1e-4 is usual, 0 is off");
}

TEST_CASE("cross_entropy: a borrowed target that changes after the loss is checked again") {
  const Device cpu = Device::cpu();
  std::vector<std::int64_t> buffer(5, 0);
  const Tensor target = from_memory(buffer.data(), {5});
  const Tensor w = ones({4, 3}, f32, cpu);
  const auto losses = [&](const Tensor& x, int i) {
    return i == 0   ? cross_entropy(x, target)
           : i == 1 ? nll_loss(x, target)
                    : linear_cross_entropy(slice(x, 1, 0, 3), w, target);
  };
  for (int i = 0; i < 3; ++i) {
    for (const std::int64_t wrong : {7, 1000000000, -3}) {
      const Tensor x = ones({5, 4}, f32, cpu).set_requires_grad();
      const Loss loss = losses(x, i);
      buffer[4] = wrong;
      const std::string message = error_of([&] { loss.backward(); });
      INFO(message);
      CHECK(message.find("target " + std::to_string(wrong) + " of row 4 is not one of 4 classes") !=
            std::string::npos);
      CHECK_FALSE(x.grad().defined());
      buffer[4] = 0;
    }
  }
}

}  // namespace
}  // namespace firn::testing
