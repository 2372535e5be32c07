// What leaves hold after a backward() that throws: what was added before the failing op, and
// nothing of memory that no kernel has written.
#include "autograd/leaf.h"
#include "firn/ops/losses.h"
#include "firn/optim/optim.h"

using namespace firn;
using namespace firn::testing;

namespace {

/// square(x) whose backward() throws: x was edited since.
Tensor spoiled_square(Tensor& x) {
  const Tensor y = square(x);
  const NoGrad guard;
  add_(x, 1);
  return y;
}

void expect_error(const Tensor& loss, const char* part) {
  const std::string message = error_of([&] { loss.backward(); });
  CAPTURE(message);
  CHECK(holds(message, part));
}

}  // namespace

TEST_CASE("failure: a leaf that only the failing op reaches has the gradient of before",
          "[autograd]") {
  Tensor x = leaf({1, 2});
  expect_error(sum(spoiled_square(x)), "[square]");
  CHECK_FALSE(x.grad().defined());
  sum(x * 3).backward();
  expect_error(sum(spoiled_square(x)), "[square]");
  CHECK(values_of(x.grad()) == Values{3, 3});
}

TEST_CASE("failure: a leaf that is an input twice has the gradient of before", "[autograd]") {
  Tensor x = leaf({1, 2});
  const Tensor y = x * x;
  {
    const NoGrad guard;
    add_(x, 1);
  }
  expect_error(sum(y), "[mul]");
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("failure: what the ops before the failing one have added stays", "[autograd]") {
  Tensor x = leaf({1, 2});
  const Tensor first = spoiled_square(x);  // recorded first: its backward runs second
  expect_error(sum(first + x * 3), "[square]");
  CHECK(values_of(x.grad()) == Values{3, 3});
  x.set_grad({});
  const Tensor before = x * 3;
  expect_error(sum(before + spoiled_square(x)), "[square]");
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("failure: a custom function that throws leaves its inputs' gradients alone",
          "[autograd]") {
  enum class Does { throws, returns_a_wrong_shape };
  const auto function = [](const Tensor& a, const Tensor& b, Does does) {
    Tensor y;
    {
      const NoGrad guard;
      y = a * b;
    }
    return custom("mine", {a, b}, y, {}, [does](const CustomBackward& c) -> std::vector<Tensor> {
      if (does == Does::throws) throw Error("mine", "no");
      return {c.grad, zeros({7}, f64)};  // that of `a` is written before the other is looked at
    });
  };
  const Does does = GENERATE(Does::throws, Does::returns_a_wrong_shape);
  Tensor a = leaf({1, 2}), b = leaf({3, 4});
  expect_error(sum(function(a, b, does)), "[mine]");
  CHECK_FALSE(a.grad().defined());
  CHECK_FALSE(b.grad().defined());
  sum(b * 5).backward();
  expect_error(sum(function(a, b, does)), "[mine]");
  CHECK_FALSE(a.grad().defined());
  CHECK(values_of(b.grad()) == Values{5, 5});
}

TEST_CASE("failure: anomaly mode leaves no gradient that is not finite", "[autograd]") {
  Tensor x = leaf({0});
  const AnomalyMode on;
  expect_error(sum(sqrt(x)), "[sqrt] the backward pass produced inf");
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("failure: many leaves of one op", "[autograd]") {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 9; ++i) leaves.push_back(leaf({1.0 * i}));
  const Tensor y = cat(leaves, 0);
  Tensor all;
  {
    const NoGrad guard;
    all = y * 1.0;
  }
  const Tensor bad = custom("bad", leaves, all, {}, [](const CustomBackward&) {
    std::vector<Tensor> grads(8, ones({1}, f64));
    grads.push_back(ones({2}, f64));
    return grads;
  });
  expect_error(sum(bad), "[bad]");
  for (const Tensor& t : leaves) CHECK_FALSE(t.grad().defined());
}

TEST_CASE("failure: a parameter of an optimizer has no gradient, and its state shows zeros",
          "[autograd]") {
  Tensor w = leaf({1, 2}, f32);
  optim::SGD opt({w}, {.lr = 1});
  const auto backward = [&] { opt.backward(sum(spoiled_square(w)), 1); };
  CHECK(holds(error_of(backward), "[square]"));
  CHECK_FALSE(w.grad().defined());
  for (const optim::NamedState& s : opt.state())
    if (s.name.ends_with(".gradient")) CHECK(values_of(s.tensor) == Values{0, 0});
  CHECK(holds(error_of([&] { opt.step(); }), "zero_grad()"));
  opt.zero_grad();
  opt.backward(sum(w * 2), 1);
  REQUIRE(opt.step());
  CHECK(values_of(w) == Values{0, 1});

  // A pass that is not the optimizer's and adds nothing leaves its cycle alone.
  expect_error(sum(spoiled_square(w)), "[square]");
  opt.backward(sum(w * 2), 1);
  REQUIRE(opt.step());
  CHECK(values_of(w) == Values{-1, 0});
}
