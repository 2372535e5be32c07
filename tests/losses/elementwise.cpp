// Losses of pairs of elements: values computed by hand, kinks, wide sums, refusals.
#include <cmath>

#include "firn/ops/losses.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using PairLoss = Loss (*)(const Tensor&, const Tensor&);

struct Result {
  double sum, weight;
  std::vector<double> da, db;
};
template <class Fn>
Result run(Fn loss_of, const std::vector<double>& a, const std::vector<double>& b,
           const Shape& shape) {
  Tensor x = make(a, shape), y = make(b, shape);
  x.set_requires_grad();
  y.set_requires_grad();
  const Loss loss = loss_of(x, y);
  loss.sum.backward();
  return {loss.sum.item(), loss.weight.item(), values_of(x.grad()), values_of(y.grad())};
}

TEST_CASE("mse_loss and l1_loss: sums, and gradients of both operands") {
  const Result mse = run(mse_loss, {1, 2, -3, 0}, {0, 4, -3, 0.5}, {2, 2});
  CHECK(mse.sum == 1 + 4 + 0 + 0.25);
  CHECK(mse.weight == 4);
  expect_same("d prediction", mse.da, {2, -4, 0, -1});
  expect_same("d target", mse.db, {-2, 4, 0, 1});

  const Result l1 = run(l1_loss, {1, 2, -3, 0}, {0, 4, -3, 0.5}, {2, 2});
  CHECK(l1.sum == 3.5);
  expect_same("d prediction", l1.da, {1, -1, 0, -1});
  expect_same("d target", l1.db, {-1, 1, 0, 1});
}

TEST_CASE("huber_loss is quadratic up to delta and linear beyond") {
  const Result one = run([](const Tensor& a, const Tensor& b) { return huber_loss(a, b); },
                         {0.5, 1, -3, 0}, {0, 0, 0, 0}, {4});
  CHECK(one.sum == 0.125 + 0.5 + 2.5);
  expect_same("d prediction", one.da, {0.5, 1, -1, 0});
  const Result half = run([](const Tensor& a, const Tensor& b) { return huber_loss(a, b, 0.5); },
                          {0.25, 1}, {0, 0}, {2});
  CHECK(half.sum == 0.03125 + 0.5 * 0.75);
  expect_same("d prediction", half.da, {0.25, 0.5});
}

TEST_CASE("bce_with_logits is stable at both ends and gives sigmoid - target") {
  const Result r = run(PairLoss{bce_with_logits}, {0, 1000, -1000, 1000, 2}, {1, 1, 0, 0, 0.25}, {5});
  CHECK(r.sum == Approx(std::log(2.0) + 0 + 0 + 1000 + std::log1p(std::exp(2.0)) - 0.5));
  CHECK(r.weight == 5);
  expect_close("d logits", r.da, {-0.5, 0, 0, 1, 1 / (1 + std::exp(-2.0)) - 0.25}, 1e-15);
  expect_same("d target", r.db, {-0.0, -1000, 1000, -1000, -2});
}

TEST_CASE("kl_div: zero targets count nothing, and the weight is the number of rows") {
  const std::vector<double> p = {0.5, 0.5, 0.25, 0.75}, q = {0, 1, 0.5, 0.5};
  std::vector<double> lp;
  for (double v : p) lp.push_back(std::log(v));
  const Result r = run(kl_div, lp, q, {2, 2});
  CHECK(r.sum == Approx(std::log(2.0) + 0.5 * std::log(2.0) + 0.5 * std::log(0.5 / 0.75)));
  CHECK(r.weight == 2);
  expect_same("d log p", r.da, {-0.0, -1, -0.5, -0.5});
  CHECK(r.db[0] == 0);
  CHECK(run(kl_div, {0, 0, 0, 0, 0, 0}, {1, 1, 1, 1, 1, 1}, {3, 1, 2}).weight == 3);
}

TEST_CASE("elementwise losses of f16 are computed and summed in f32") {
  // 300^2 is more than an f16 holds, and so is the sum of 70000 ones.
  Tensor x = full({4}, 300, f16);
  x.set_requires_grad();
  const Loss loss = mse_loss(x, zeros({4}, f16));
  CHECK(loss.sum.dtype() == f32);
  CHECK(loss.sum.item() == 360'000);
  CHECK(loss.item() == 90'000);
  loss.backward();
  CHECK(x.grad().dtype() == f16);
  expect_same("gradient of the mean", values_of(x.grad()), {150, 150, 150, 150});
  CHECK(l1_loss(ones({70'000}, bf16), zeros({70'000}, bf16)).sum.item() == 70'000);
  // Targets may stay in f32.
  CHECK(mse_loss(ones({2}, f16), full({2}, 0.5, f32)).sum.item() == 0.5);
}

TEST_CASE("elementwise losses of views, of a tensor with itself, and of nothing") {
  Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3});
  x.set_requires_grad();
  const Tensor t = make({1, 1, 1, 1, 1, 1}, {3, 2}, f64, Layout::expanded);
  const Loss loss = mse_loss(transpose(x, 0, 1), t);
  CHECK(loss.sum.item() == 0 + 1 + 4 + 9 + 16 + 25);
  loss.sum.backward();
  expect_same("gradient", values_of(x.grad()), {0, 2, 4, 6, 8, 10});

  Tensor y = make({1, 2}, {2});
  y.set_requires_grad();
  mse_loss(y, y).sum.backward();
  expect_same("with itself", values_of(y.grad()), {0, 0});

  for (const PairLoss f :
       {PairLoss{mse_loss}, PairLoss{l1_loss}, PairLoss{bce_with_logits}, PairLoss{kl_div}}) {
    Tensor none = empty({0, 3});
    none.set_requires_grad();
    const Loss empty_loss = f(none, zeros({0, 3}));
    CHECK(empty_loss.item() == 0);
    CHECK(empty_loss.mean().item() == 0);
    empty_loss.backward();
    CHECK(none.grad().shape() == Shape{0, 3});
  }
}

TEST_CASE("elementwise losses refuse operands that do not fit", "[host]") {
  CHECK(error_of([] {
          mse_loss(zeros({2, 1}), zeros({2}));
        }) ==
        "[mse_loss] shapes differ: prediction [2, 1] f32 cpu, target [2] f32 cpu; hint: a loss "
        "does not "
        "broadcast: reshape or expand one of them");
  CHECK(error_of([] { l1_loss(zeros({2}), zeros({2}, i64)); }) ==
        "[l1_loss] needs a floating dtype, got [2] i64 cpu; hint: cast it: x.to(firn::f32)");
  CHECK(error_of([] { bce_with_logits(zeros({2}), zeros({2}, f64)); }) ==
        "[bce_with_logits] dtypes or devices differ: prediction [2] f32 cpu, target [2] f64 cpu; "
        "hint: cast "
        "or move the target");
  CHECK(error_of([] { huber_loss(zeros({2}), zeros({2}), 0); }) ==
        "[huber_loss] delta = 0; hint: delta is a positive distance");
}

}  // namespace
}  // namespace firn::testing
