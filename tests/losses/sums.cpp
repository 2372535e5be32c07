// Loss + Loss, the denominators they share or do not share, and the axis of the classes.
#include <cmath>

#include "ops/refusals/refused.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Values = std::vector<double>;

Tensor scores(DType t = f64) { return make({1, 2, 0, -1, 0.5, 3}, {2, 3}, t); }
Tensor classes() { return tensor({2LL, 0LL}); }

TEST_CASE("losses of one denominator add up: the sums add, the weight stays") {
  for (const DType t : {f64, f32, f16}) {
    const double eps = t == f64 ? 1e-13 : 1e-5;
    Tensor a = make({1, 2, 3, 4}, {2, 2}, t).set_requires_grad();
    const Tensor zero = zeros({2, 2}, t);
    const Loss squares = mse_loss(a, zero), distances = l1_loss(a, zero);
    const Loss both = squares + 0.5 * distances;
    CHECK(both.weight.item() == 4);
    CHECK(both.item() == Approx((30 + 0.5 * 10) / 4).epsilon(eps));
    CHECK((squares - distances / 2).item() == Approx((30 - 5) / 4.0).epsilon(eps));
    Loss total = squares;
    total += squares;  // the very same weight
    CHECK(total.item() == Approx(15).epsilon(eps));
    both.backward();
    expect_close("2a + 1/2 over 4", values_of(a.grad()), {0.625, 1.125, 1.625, 2.125}, eps);
  }
}

TEST_CASE("two heads on one target add up: they count the same class numbers") {
  Tensor x = scores().set_requires_grad();
  const Tensor y = tensor({2LL, -100LL}), w = make({1, 2, 4}, {3});
  const Loss main = cross_entropy(x, y), other = cross_entropy(2 * x, y);
  const Loss both = main + 0.4 * other;
  CHECK(both.weight.item() == 1);  // one row is ignored
  CHECK(both.item() == Approx(main.item() + 0.4 * other.item()));
  CHECK((cross_entropy(x, y, {.class_weights = w}) +
         nll_loss(log_softmax(x), y, {.class_weights = w}))
            .weight.item() == 4);

  const char* const differ = "not known to be divided by the same number";
  const auto refuses = [&](const Loss& a, const Loss& b) {
    refused("Loss + Loss", {differ, "mean_per", "per(a)"}, [&] { a + b; });
  };
  const Tensor t = classes();
  refuses(cross_entropy(x, t), cross_entropy(x, t, {.ignore_index = -1}));
  refuses(main, cross_entropy(x, y, {.class_weights = w}));
  refuses(main, cross_entropy(x, y.clone()));
  const NoGrad guard;
  fill_(y, 1);  // what was counted is no longer what is there
  refuses(main, cross_entropy(x, y));
}

TEST_CASE("an empty Loss is no zero: the message says how a sum begins") {
  const Tensor x = scores();
  const Loss first = mse_loss(x, zeros({2, 3}, f64));
  Loss total;
  refused("Loss + Loss", {"the first operand is an empty Loss", "Loss total = first"},
          [&] { total += first; });
  refused("Loss + Loss", {"the second operand is an empty Loss"}, [&] { first + Loss(); });
  total = first;
  total += first;
  CHECK(total.item() == Approx(2 * first.item()));
}

TEST_CASE("losses of two denominators: refused, unless the caller says per or mean_per") {
  Tensor x = scores().set_requires_grad(), r = make({1, 2, 3, 4}, {2, 2}).set_requires_grad();
  const Loss ce = cross_entropy(x, classes());
  const Loss mse = mse_loss(r, zeros({2, 2}, f64));
  refused("Loss + Loss",
          {"by the same number", "the classes counted in [2] i64 cpu", ", and 4", "b.mean_per(a)"},
          [&] { ce + 0.1 * mse; });
  refused("Loss + Loss", {"4, and 6"}, [&] { mse + mse_loss(x, zeros({2, 3}, f64)); });

  const Loss means = ce + 0.1 * mse.mean_per(ce);
  CHECK(means.weight.item() == 2);
  CHECK(means.item() == Approx(ce.item() + 0.1 * mse.item()));
  means.backward();
  expect_close("0.1 * 2 r / 4", values_of(r.grad()), {0.05, 0.1, 0.15, 0.2}, 1e-14);

  const Loss sums = ce + mse.per(ce);
  CHECK(sums.weight.item() == 2);
  CHECK(sums.item() == Approx(ce.item() + 30.0 / 2));
  // Nothing counted: the mean is 0, not NaN.
  const Loss none = cross_entropy(x, tensor({-100LL, -100LL}));
  CHECK(mse.mean_per(none).sum.item() == 0);
  CHECK((mse + none.mean_per(mse)).item() == Approx(7.5));
}

TEST_CASE("a sum of losses goes through the optimizer, in f16 and over uneven micro-batches") {
  for (const DType t : {f64, f32, f16}) {
    // One step on five samples, and the same in micro-batches of three and two: equal parameters.
    const auto train = [&](const std::vector<std::pair<std::int64_t, std::int64_t>>& parts) {
      Tensor w = make({0.5, -0.25, 1, 0.125, 0.75, -0.5}, {3, 2}, t).set_requires_grad();
      optim::SGD opt({w}, {.lr = 0.5},
                     {.accumulate = static_cast<std::int64_t>(parts.size()),
                      .loss_scale = optim::LossScale::none()});
      const Tensor x = make({1, 2, 0.5, -1, 0, 1, -2, 0.25, 1, 1}, {5, 2}, t);
      const Tensor y = tensor({0LL, 2LL, 1LL, 1LL, 0LL});
      for (const auto& [from, to] : parts) {
        const Tensor h = linear(x.slice(0, from, to), w);
        const Loss ce = cross_entropy(h, y.slice(0, from, to));
        const Loss mse = mse_loss(h, zeros_like(h));
        opt.backward(ce + 0.1 * mse.mean_per(ce));
        opt.step();
      }
      return values_of(w);
    };
    expect_close("two micro-batches", train({{0, 3}, {3, 5}}), train({{0, 5}}),
                 t == f64   ? 1e-14
                 : t == f32 ? 1e-6
                            : 2e-3);
  }
}

TEST_CASE("info_nce refuses a temperature whose logits would be infinite", "[host]") {
  const Tensor q = eye(3);
  for (const double t : {1e-300, 1e-38, 0.0, -1.0, 1e39, static_cast<double>(NAN)}) {
    CAPTURE(t);
    const std::string text = error_of([&] { info_nce(q, q, t); });
    CHECK(text.find("[info_nce] temperature = ") == 0);
    CHECK(text.find("hint: temperatures lie around 0.07") != std::string::npos);
  }
  for (const double t : {1.2e-38, 1e38}) CHECK(std::isfinite(info_nce(q, q, t).item()));
  CHECK(std::isfinite(info_nce(q.to(f64), q.to(f64), 1e-300).item()));
}

TEST_CASE("cross_entropy and nll_loss take the classes on any axis") {
  Rng rng(5);
  const Tensor images = make(rng.uniforms(2 * 4 * 3 * 5, -2, 2), {2, 4, 3, 5});
  std::vector<std::int64_t> numbers;
  for (int i = 0; i < 30; ++i) numbers.push_back(rng.below(4));
  const Tensor y = tensor(numbers, {2, 3, 5});
  for (const bool last : {false, true}) {
    Tensor a = (last ? channels_last(images) : images).detach().set_requires_grad();
    Tensor b = images.permute({0, 2, 3, 1}).contiguous().set_requires_grad();
    const Loss one = cross_entropy(a, y, {.label_smoothing = 0.1, .axis = 1});
    const Loss two = cross_entropy(b, y, {.label_smoothing = 0.1});
    CHECK(one.item() == Approx(two.item()).epsilon(1e-14));
    CHECK(one.weight.item() == 30);
    one.backward();
    two.backward();
    expect_close("gradient", values_of(a.grad().permute({0, 2, 3, 1})), values_of(b.grad()), 1e-15);
    CHECK(nll_loss(log_softmax(a, 1), y, {.axis = -3}).item() ==
          Approx(cross_entropy(b, y).item()).epsilon(1e-14));
  }
}

TEST_CASE("classes on another axis, or on one that cannot be told: the error names both") {
  const Tensor y = zeros({2, 3, 5}, i64);
  refused("cross_entropy", {"axis 3", "[2, 4, 3, 5]", "say {.axis = 1}"}, [&] {
    cross_entropy(zeros({2, 4, 3, 5}), y);
  });
  refused("nll_loss", {"axis 1", "say {.axis = 2}"}, [&] {
    nll_loss(zeros({2, 3, 5}), zeros({2, 3}, i64), {.axis = 1});
  });
  // [n, c, l] with c = l: both would do.
  const Tensor square = zeros({2, 3, 3}), t = zeros({2, 3}, i64);
  refused("cross_entropy", {"axis 1 or on axis 2", "{.axis = 1} or {.axis = 2}"},
          [&] { cross_entropy(square, t); });
  CHECK(cross_entropy(square, t, {.axis = 1}).weight.item() == 6);
  CHECK(cross_entropy(square, t, {.axis = -1}).weight.item() == 6);
  CHECK(cross_entropy(zeros({3, 3}), zeros({3}, i64)).weight.item() == 3);  // rows, as ever
}

TEST_CASE("one-hot targets of integers: the error says argmax") {
  refused("cross_entropy", {"[2, 3] i64", "argmax(target"}, [] {
    cross_entropy(zeros({2, 3}), one_hot(classes(), 3, i64));
  });
  refused("cross_entropy", {"[2] f32", "target.to(firn::i64)"}, [] {
    cross_entropy(zeros({2, 3}), zeros({2}));
  });
}

}  // namespace
}  // namespace firn::testing
