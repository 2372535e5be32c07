// nn::MLP and mlp(): the same as Linear layers and activations in turn, in fewer launches.
#include <algorithm>
#include <cmath>
#include <vector>

#include "firn/firn.h"
#include "firn/runtime/graph.h"
#include "kernels/dense.h"
#include "kernels/settings/settings.h"
#include "message_of.h"
#include "support/catch.h"

using namespace firn;
using firn::testing::message_of;

namespace {

Tensor input(const Shape& shape, DType dtype) {
  Generator g(7);
  return randn(shape, {.dtype = dtype, .generator = &g});
}

Tensor activated(Activation a, const Tensor& x) {
  if (a == Activation::relu) return relu(x);
  if (a == Activation::gelu_tanh) return gelu_tanh(x);
  return x;
}

Tensor composed(const nn::MLP& net, Activation a, const Tensor& x) {
  Tensor h = x;
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    h = linear(h, net.layers[i].weight, net.layers[i].bias);
    if (i + 1 < net.layers.size()) h = activated(a, h);
  }
  return h;
}

/// Norm of the difference over the norm of `want`.
double distance(const Tensor& got, const Tensor& want) {
  REQUIRE(got.shape() == want.shape());
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(error) / (std::sqrt(size) + 1e-30);
}

std::vector<Tensor> gradients(const nn::MLP& net, const Tensor& x) {
  std::vector<Tensor> all;
  for (const Tensor& p : net.parameters()) {
    all.push_back(clone(p.grad()));
    p.set_grad({});
  }
  if (x.requires_grad()) {
    all.push_back(clone(x.grad()));
    x.set_grad({});
  }
  return all;
}

}  // namespace

TEST_CASE("MLP computes what its layers compute in turn, gradients too") {
  const DType dtype = GENERATE(f32, f64, f16, bf16);
  const Activation a = GENERATE(Activation::relu, Activation::gelu_tanh, Activation::none);
  const bool bias = GENERATE(true, false);
  // Five layers of rounding; the composed form rounds twice a layer.
  const double tolerance = 40 * epsilon_of(dtype);
  nn::MLP net({9, 20, 13, 4}, {.activation = a, .bias = bias, .dtype = dtype});
  for (const Shape& shape : {Shape{7, 9}, Shape{2, 3, 9}, Shape{9}}) {
    Tensor x = input(shape, dtype);
    x.set_requires_grad();
    const Tensor y = net(x), seed = input(y.shape(), dtype);
    backward(y, {.initial_gradient = seed});
    const auto got = gradients(net, x);
    const Tensor z = composed(net, a, x);
    CHECK(distance(y, z) <= tolerance);
    backward(z, {.initial_gradient = seed});
    const auto want = gradients(net, x);
    REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO(to_string(dtype) << " activation " << static_cast<int>(a) << " bias " << bias
                            << " gradient " << i);
      CHECK(got[i].dtype() == want[i].dtype());
      CHECK(distance(got[i], want[i]) <= tolerance);
    }
  }
}

TEST_CASE("MLP under autocast: f32 gradients of f32 parameters") {
  const DType low = GENERATE(f16, bf16);
  nn::MLP net({9, 20, 13, 4}, {.activation = Activation::relu});
  const Tensor x = input({7, 9}, f32);
  std::vector<std::vector<Tensor>> all;
  for (const bool fused : {true, false}) {
    Tensor y;
    {
      const Autocast guard(low);
      y = fused ? net(x) : composed(net, Activation::relu, x);
    }
    CHECK(y.dtype() == low);
    backward(y, {.initial_gradient = input(y.shape(), low)});
    all.push_back(gradients(net, x));
  }
  for (std::size_t i = 0; i < all[0].size(); ++i) {
    CHECK(all[0][i].dtype() == f32);
    CHECK(distance(all[0][i], all[1][i]) <= 40 * epsilon_of(low));
  }
}

TEST_CASE("MLP: frozen layers take no gradient, and those above still do") {
  nn::MLP net({9, 8, 7, 6, 5});
  const Tensor x = input({4, 9}, f32);
  backward(net(x), {.initial_gradient = input({4, 5}, f32)});
  std::vector<std::vector<float>> want;
  for (const Tensor& p : net.parameters()) {
    want.push_back(p.grad().to_vector<float>());
    p.set_grad({});
  }
  // All of the first layer, the weight of the second, the bias of the third.
  net.layers[0].weight.set_requires_grad(false);
  net.layers[0].bias.set_requires_grad(false);
  net.layers[1].weight.set_requires_grad(false);
  net.layers[2].bias.set_requires_grad(false);
  backward(net(x), {.initial_gradient = input({4, 5}, f32)});
  const auto parameters = net.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool frozen = i == 0 || i == 1 || i == 2 || i == 5;
    INFO("parameter " << i);
    CHECK(parameters[i].grad().defined() != frozen);
    if (!frozen) CHECK(parameters[i].grad().to_vector<float>() == want[i]);
  }
}

TEST_CASE("mlp accumulates gradients and refuses what was edited since") {
  nn::MLP net({3, 5, 2});
  const Tensor x = input({4, 3}, f32);
  net(x).sum().backward();
  const std::vector<double> once = net.layers[0].weight.grad().to_vector<double>();
  net(x).sum().backward();
  const std::vector<double> twice = net.layers[0].weight.grad().to_vector<double>();
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(twice[i] == Approx(2 * once[i]));

  const Tensor y = net(x).sum();
  {
    const NoGrad guard;
    mul_(net.layers[1].weight, 2);
  }
  CHECK(message_of([&] { y.backward(); }).find("[mlp]") == 0);
}

TEST_CASE("MLP: two launches a layer at most, but for separate gradients") {
  if (default_device().is_cpu()) return;
  const bool fused = GENERATE(true, false);
  const auto activation = GENERATE(Activation::relu, Activation::gelu_tanh);
  const auto before = kernels::epilogues().exchange(fused ? kernels::Epilogues::fused
                                                          : kernels::Epilogues::unfused);
  const DType dtype = GENERATE(f16, f32);
  nn::MLP net({9, 20, 13, 4}, {.activation = activation, .dtype = dtype});
  const Tensor x = input({7, 9}, dtype), seed = input({7, 4}, dtype);
  const auto work = [&] {
    for (const Tensor& p : net.parameters()) p.set_grad({});
    backward(net(x), {.initial_gradient = seed});
  };
  work();
  const auto graph = graph::Graph::capture(default_device(), work);
  kernels::epilogues() = before;
  INFO(graph.summary());
#ifdef FIRN_HAS_CUSIM
  const std::string w = "dense_weight_gradient", d = "dense_data_gradient";
  std::vector<std::string> names;
  for (int layer = 0; layer < 2; ++layer) {
    if (activation == Activation::relu) names.insert(names.end(), {"gemm", "dense activation"});
    if (activation == Activation::gelu_tanh) names.emplace_back("dense_forward");
  }
  names.insert(names.end(), {"gemm", w, d, w, d, w});
  if (fused) {
    CHECK(graph.names() == names);
  } else {  // forward 2 + 2 + 1; each weight gradient 2, each data gradient 2
    CHECK(graph.nodes() == 15);
  }
#else
  // cuBLASLt may lack an epilogue for these sizes, or take several kernels for a product.
  CHECK(graph.nodes() >= 8);
#endif
}

TEST_CASE("MLP trains as its layers do: gradients stored first and added after, masters in f32") {
  const DType dtype = GENERATE(f32, f16);
  const std::int64_t accumulate = GENERATE(1, 3);
  std::vector<std::vector<double>> weights;
  for (const bool fused : {true, false}) {
    manual_seed(11);
    nn::MLP net({9, 20, 4}, {.activation = Activation::gelu_tanh, .dtype = dtype});
    optim::SGD opt(net.parameters(), {.lr = 0.2, .momentum = 0.9}, {.accumulate = accumulate});
    Generator g(13);
    for (int i = 0; i < 6; ++i) {
      const Tensor x = randn({5, 9}, {.dtype = dtype, .generator = &g});
      const Tensor y = fused ? net(x) : composed(net, Activation::gelu_tanh, x);
      opt.backward(mse_loss(y, full({5, 4}, 0.5, dtype)));
      opt.step();
    }
    weights.emplace_back();
    for (const Tensor& p : net.parameters())
      for (const double v : p.to_vector<double>()) weights.back().push_back(v);
  }
  double worst = 0;
  for (std::size_t i = 0; i < weights[0].size(); ++i)
    worst = std::max(worst, std::abs(weights[0][i] - weights[1][i]));
  CHECK(worst <= 20 * epsilon_of(dtype));
}

TEST_CASE("MLP starts as Linear layers do, with their names") {
  manual_seed(5);
  nn::MLP net({6, 4, 3});
  manual_seed(5);
  nn::Linear first(6, 4), second(4, 3);
  const auto named = net.named_parameters();
  REQUIRE(named.size() == 4);
  CHECK(named[0].name == "layers.0.weight");
  CHECK(named[1].name == "layers.0.bias");
  CHECK(named[2].name == "layers.1.weight");
  CHECK(named[3].name == "layers.1.bias");
  CHECK(named[0].tensor.to_vector<float>() == first.weight.to_vector<float>());
  CHECK(named[3].tensor.to_vector<float>() == second.bias.to_vector<float>());
  CHECK(net.extra_repr() == "activation = relu");
}

TEST_CASE("mlp names what does not fit") {
  CHECK_THROWS_AS(nn::MLP({3}), Error);
  CHECK_THROWS_AS(nn::MLP({3, 0}), Error);
  nn::MLP net({3, 5, 2});
  CHECK(message_of([&] { net(zeros({4, 6})); }).find("[MLP] input [4, 6]") == 0);
  const Tensor x = zeros({4, 3}), w = zeros({5, 3}), v = zeros({2, 5});
  const auto refused = [&](const std::vector<Tensor>& ws, const std::vector<Tensor>& bs) {
    return message_of([&] { mlp(x, ws, bs); });
  };
  CHECK(refused({}, {}).find("no weights") != std::string::npos);
  CHECK(refused({w, w}, {}).find("layer 1 gets 5 features") != std::string::npos);
  CHECK(refused({w, v}, {zeros({5})}).find("2 weights and 1 biases") != std::string::npos);
  CHECK(refused({w, v}, {zeros({5}), zeros({3})}).find("layer 1") != std::string::npos);
  CHECK(refused({w.to(f64), v}, {}).find("dtypes differ") != std::string::npos);
  CHECK(mlp(x, std::vector<Tensor>{w, v}, std::vector<Tensor>{Tensor(), zeros({2})}).shape() ==
        Shape{4, 2});
}

TEST_CASE("TF32 is off until it is allowed") {
  CHECK_FALSE(tf32_allowed());
  allow_tf32(true);
  CHECK(tf32_allowed());
  const Tensor y = matmul(ones({4, 5}), ones({5, 3}));
  CHECK(y.to_vector<float>() == std::vector<float>(12, 5));
  allow_tf32(false);
  CHECK_FALSE(tf32_allowed());
}
