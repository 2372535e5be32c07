// Modules in use: a network that learns, written with nothing but modules, losses and backward().
#include "firn/firn.h"
#include "support/catch.h"

using namespace firn;

namespace {

struct Mlp : nn::Module {
  nn::Linear hidden, out;
  Mlp(std::int64_t in, std::int64_t width, std::int64_t classes)
      : hidden(in, width), out(width, classes) {}
  FIRN_MEMBERS(hidden, out)
  Tensor forward(const Tensor& x) override { return out(firn::tanh(hidden(x))); }
};

/// One step of gradient descent by hand.
void descend(const nn::Module& net, double lr) {
  const NoGrad guard;
  for (const Tensor& p : net.parameters()) copy_(p, p - p.grad() * lr);
}

}  // namespace

TEST_CASE("a two-layer network learns exclusive or by plain gradient descent") {
  manual_seed(11);
  const Tensor x = tensor(std::vector<float>{0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const std::vector<std::int64_t> labels = {0, 1, 1, 0};
  const Tensor y = tensor(labels, {4});
  Mlp net(2, 16, 2);
  const double first = nn::cross_entropy(net(x), y).item();
  CHECK(first == Approx(std::log(2)).epsilon(0.5));
  for (int step = 0; step < 500; ++step) {
    net.zero_grad();
    nn::cross_entropy(net(x), y).backward();
    descend(net, 0.5);
  }
  CHECK(nn::cross_entropy(net(x), y).item() < 0.05);
  CHECK(argmax(net(x)).to_vector<std::int64_t>() == labels);
}

TEST_CASE("a trained copy of the elements computes the same to the bit") {
  manual_seed(12);
  Mlp a(3, 5, 2);
  const Tensor x = randn({7, 3});
  square(a(x)).sum().backward();
  descend(a, 0.1);
  Mlp b(3, 5, 2);
  CHECK(a(x).to_vector<float>() != b(x).to_vector<float>());
  b.copy_from(a);
  CHECK(a(x).to_vector<float>() == b(x).to_vector<float>());
}

TEST_CASE("tied weights collect the gradients of both uses") {
  struct Tied : nn::Module {
    nn::Linear a{3, 3, {.bias = false}}, b = a;  // a copy holds the same weight
    FIRN_MEMBERS(a, b)
    Tensor forward(const Tensor& x) override { return b(a(x)); }
  } net;
  REQUIRE(net.parameters().size() == 1);
  {
    const NoGrad guard;
    copy_(net.a.weight, eye(3) * 2.0);
  }
  // y = W W x, d(sum y)/dW at W = 2I: 2 (1 xᵀ) + 2 (1 xᵀ).
  sum(net(tensor({1.f, 2.f, 3.f}))).backward();
  CHECK(net.a.weight.grad().to_vector<float>() == std::vector<float>{4, 8, 12, 4, 8, 12, 4, 8, 12});
}

TEST_CASE("a frozen layer passes the gradient on") {
  Mlp net(3, 4, 2);
  net.out.set_requires_grad(false);
  Tensor x = ones({2, 3});
  x.set_requires_grad();
  sum(net(x)).backward();
  CHECK_FALSE(net.out.weight.grad().defined());
  CHECK(net.hidden.weight.grad().defined());
  CHECK(x.grad().defined());
}

TEST_CASE("a module of several inputs has a function of its own") {
  struct Mixer : nn::Module {
    nn::Linear a{2, 3}, b{4, 3};
    FIRN_MEMBERS(a, b)
    using nn::Module::forward;
    Tensor forward(const Tensor& x, const Tensor& y) { return a(x) + b(y); }
  } mixer;
  CHECK(mixer.forward(ones({5, 2}), ones({5, 4})).shape() == Shape{5, 3});
  CHECK_THROWS_AS(mixer(ones({5, 2})), Error);
}
