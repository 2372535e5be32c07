// Seeds and gradients that a user gives: of which dtype they must be.
#include <functional>

#include "autograd/leaf.h"

using namespace firn;
using namespace firn::testing;

TEST_CASE("seed: one of another dtype is refused, and no gradient is zero", "[autograd]") {
  using Make = std::function<Tensor(const Tensor&)>;
  const Tensor target = tensor({std::int64_t{0}, std::int64_t{1}});
  const Tensor like = make({0.1, 0.2, 0.3, 0.4}, {2, 2}, f32);
  const std::vector<Make> outputs = {
      [&](const Tensor& x) { return cross_entropy(x, target).sum; },
      [&](const Tensor& x) { return nll_loss(log_softmax(x), target).sum; },
      [&](const Tensor& x) { return mse_loss(x, like).sum; },
      [&](const Tensor& x) { return l1_loss(x, like).sum; },
      [&](const Tensor& x) { return huber_loss(x, like).sum; },
      [&](const Tensor& x) { return bce_with_logits(x, like).sum; },
      [&](const Tensor& x) { return kl_div(log_softmax(x), like).sum; },
      [&](const Tensor& x) { return info_nce(x, like).sum; },
      [](const Tensor& x) { return softmax(x); },
      [](const Tensor& x) { return x * 2; },
      [](const Tensor& x) { return matmul(x, x); },
      [](const Tensor& x) {
        return cat({x, x});
      },
      [](const Tensor& x) { return x; },
  };
  for (const Make& output : outputs) {
    Tensor x = make({0.5, -1, 2, 0.25}, {2, 2}, f32);
    x.set_requires_grad();
    const Tensor y = output(x);
    for (DType t : {f64, f16, bf16, i32}) {
      const std::string message =
          error_of([&] { backward(y, {.initial_gradient = ones(y.shape(), t)}); });
      CHECK(holds(message, std::string("initial gradient ") + describe(ones(y.shape(), t))));
      CHECK(holds(message, "gradient.to(firn::f32)"));
      CHECK_FALSE(x.grad().defined());
    }
    // Refused before anything ran: the graph is whole.
    backward(y, {.initial_gradient =
                     make(Values(static_cast<std::size_t>(y.numel()), 0.5), y.shape(), f32)});
    REQUIRE(x.grad().defined());
    double largest = 0;
    for (double g : values_of(x.grad())) largest = std::max(largest, std::abs(g));
    if (y.numel() == 1) CHECK(largest > 0);  // of softmax with an even seed it is 0
  }
}

TEST_CASE("set_grad: another floating dtype is cast to the tensor's", "[autograd]") {
  Tensor x = leaf({1, 2}, f32);
  for (DType t : {f64, f16}) {
    const Tensor given = make({3, 4}, {2}, t);
    x.set_grad(given);
    CHECK(x.grad().dtype() == f32);
    sum(x * 0.1).backward();
    CHECK(values_of(x.grad()) == rounded({3.1f, 4.1f}, f32));
    CHECK(values_of(given) == Values{3, 4});
  }
}

TEST_CASE("set_grad: a gradient that is a view of the optimizer's own is taken as it was",
          "[autograd]") {
  Tensor w = make({1, 2, 3, 4}, {2, 2}, f32);
  w.set_requires_grad();
  optim::SGD opt({w}, {.lr = 1});
  opt.backward(sum(w * make({10, 20, 30, 40}, {2, 2}, f32)));
  w.set_grad(transpose(w.grad(), 0, 1));
  CHECK(values_of(w.grad()) == Values{10, 30, 20, 40});
}
