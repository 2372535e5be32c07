// The order of the walk: a node runs after everything that was computed from it, and once, however
// it was recorded. Operations with a list of inputs are recorded in another way than the others.
#include "autograd/leaf.h"
#include "autograd/node.h"

using namespace firn;
using namespace firn::testing;

namespace {

using Combine = Tensor (*)(const Tensor&);

Tensor through_cat(const Tensor& x) { return cat({x, x * 3.0}); }
Tensor through_stack(const Tensor& x) { return stack({x, x}); }
Tensor through_custom(const Tensor& x) {
  Tensor y;
  {
    const NoGrad guard;
    y = x + x;
  }
  return custom("twice", {x, x}, y, {}, [](const CustomBackward& b) {
    return std::vector<Tensor>{b.grad, b.grad};
  });
}
Tensor through_mlp(const Tensor& x) {
  const Tensor weight = make({1, 2, 3, 4}, {2, 2});
  const std::vector<Tensor> weights{weight, weight};
  return mlp(reshape(x, {1, 2}), weights);
}

/// d(sum(f(x)))/dx at {1, 2}, computed with nothing else in the graph.
Values alone(Combine f) {
  Tensor x = leaf({1, 2});
  sum(f(x)).backward();
  return values_of(x.grad());
}

/// Every node below `t` has a smaller number than the nodes that read it.
void check_order(const autograd::Node& node) {
  for (int i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i]) continue;
    CHECK(node.inputs[i]->sequence < node.sequence);
    check_order(*node.inputs[i]);
  }
}

}  // namespace

TEST_CASE("order: what feeds an op with a list of inputs may branch elsewhere", "[autograd]") {
  const Combine f = GENERATE(through_cat, through_stack, through_custom, through_mlp);
  const Values direct = alone(f);
  // Plain ops before and after it, on one side or the other of the sum.
  for (const bool list_first : {false, true}) {
    Tensor w = leaf({0.5, 1});
    const Tensor h = w * 2.0;  // {1, 2}
    Tensor a, b;
    if (list_first) {
      b = sum(f(h));
      a = sum(square(h));
    } else {
      a = sum(square(h));
      b = sum(f(h));
    }
    const Tensor loss = a + b;
    check_order(*autograd::node_of(loss));
    loss.backward();
    CHECK(values_of(w.grad()) == Values{2 * (2 * 1 + direct[0]), 2 * (2 * 2 + direct[1])});
  }
}

TEST_CASE("order: a residual around an MLP trains", "[autograd]") {
  nn::Residual block{nn::MLP({4, 8, 4})};
  nn::Linear first(3, 4);
  const Tensor x = ones({2, 3});
  const Tensor h = first(x);
  sum(block(h)).backward();
  CHECK(first.weight.grad().defined());
  for (const auto& [name, p] : block.named_parameters()) {
    INFO(name);
    CHECK(p.grad().defined());
  }
}

TEST_CASE("order: with retain_graph a node runs once and its hook sees the whole gradient",
          "[autograd]") {
  const Combine f = GENERATE(through_cat, through_stack, through_custom, through_mlp);
  const Values direct = alone(f);
  Tensor w = leaf({0.5, 1});
  const Tensor h = w * 2.0;
  std::vector<Values> seen;
  add_hook(h, [&](const Tensor& g) {
    seen.push_back(values_of(g));
    return Tensor();
  });
  const Tensor loss = sum(square(h)) + sum(f(h));
  for (int pass = 1; pass <= 2; ++pass) {
    backward(loss, {.initial_gradient = {}, .retain_graph = true});
    REQUIRE(seen.size() == static_cast<std::size_t>(pass));
    CHECK(seen.back() == Values{2 + direct[0], 4 + direct[1]});
  }
}
