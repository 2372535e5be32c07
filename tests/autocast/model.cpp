// Autocast on models: the golden list of what runs in which dtype, the override of a module, and a
// training that comes out as in f32.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;

namespace {

struct Net : nn::Module {
  nn::Linear fc1{6, 8}, gate{8, 8, {.bias = false}}, fc2{8, 3};
  nn::LayerNorm norm{8};
  FIRN_MEMBERS(fc1, norm, gate, fc2)
  Tensor forward(const Tensor& x) override {
    const Tensor h = norm(relu(fc1(x)));
    return fc2(h * softmax(gate(h)));
  }
};

std::string trace_of(Net& net, std::optional<DType> mode) {
  const Tensor x = ones({4, 6}), labels = tensor<std::int64_t>({0, 1, 2, 0});
  std::optional<Autocast> guard;
  if (mode) guard.emplace(*mode);
  const DtypeTrace trace;
  const Loss loss = cross_entropy(net(x), labels);
  loss.sum.backward();
  return trace.text();
}

const char* const kPlain = R"(linear f32 f32 f32 -> f32
relu f32 -> f32
layer_norm f32 f32 f32 -> f32
linear f32 f32 -> f32
softmax f32 -> f32
mul f32 f32 -> f32
linear f32 f32 f32 -> f32
cross_entropy f32 -> f32
)";

const char* const kF16 = R"(cast f32 -> f16
cast f32 -> f16
cast f32 -> f16
linear f16 f16 f16 -> f16
relu f16 -> f16
cast f16 -> f32
layer_norm f32 f32 f32 -> f32
cast f32 -> f16
cast f32 -> f16
linear f16 f16 -> f16
cast f16 -> f32
softmax f32 -> f32
mul f32 f32 -> f32
cast f32 -> f16
cast f32 -> f16
cast f32 -> f16
linear f16 f16 f16 -> f16
cross_entropy f16 -> f32
)";

// Weights held in f16: only what runs in f32 is cast.
const char* const kF16Weights = R"(cast f32 -> f16
linear f16 f16 f16 -> f16
relu f16 -> f16
cast f16 -> f32
cast f16 -> f32
cast f16 -> f32
layer_norm f32 f32 f32 -> f32
cast f32 -> f16
linear f16 f16 -> f16
cast f16 -> f32
softmax f32 -> f32
mul f32 f32 -> f32
cast f32 -> f16
linear f16 f16 f16 -> f16
cross_entropy f16 -> f32
)";

std::string with_bf16(std::string text) {
  for (std::size_t at = 0; (at = text.find("f16", at)) != std::string::npos; at += 4)
    text.insert(at, "b");
  return text;
}

/// Two spirals of points, classes 0 and 1.
struct Spirals {
  Tensor x, y;
  Spirals() {
    firn::testing::Rng rng(1);
    std::vector<float> points;
    std::vector<std::int64_t> labels;
    for (int i = 0; i < 128; ++i) {
      const int c = i % 2;
      const double r = 0.2 + 0.8 * i / 128, angle = 3.5 * r + 3.14159265 * c;
      points.push_back(static_cast<float>(r * std::cos(angle) + rng.uniform(-0.02, 0.02)));
      points.push_back(static_cast<float>(r * std::sin(angle) + rng.uniform(-0.02, 0.02)));
      labels.push_back(c);
    }
    x = tensor(points, {128, 2});
    y = tensor(labels, {128});
  }
};

struct Curve {
  std::vector<double> losses;
  double accuracy = 0;
};

/// Momentum descent, by hand, on a loss times `scale`.
Curve run_training(std::optional<DType> mode, double scale) {
  manual_seed(3);
  const Spirals data;
  nn::Sequential net(nn::Linear(2, 32), nn::Tanh(), nn::LayerNorm(32), nn::Linear(32, 32),
                     nn::ReLU(), nn::Linear(32, 2));
  std::vector<Tensor> velocity;
  for (const Tensor& p : net.parameters()) velocity.push_back(zeros_like(p));
  Curve curve;
  for (int step = 0; step < 150; ++step) {
    net.zero_grad();
    Loss loss;
    {
      std::optional<Autocast> guard;
      if (mode) guard.emplace(*mode);
      loss = nn::cross_entropy(net(data.x), data.y);
    }
    curve.losses.push_back(loss.item());
    const Tensor mean = loss.mean();
    backward(mean, {.initial_gradient = full({}, scale)});
    const NoGrad guard;
    std::size_t i = 0;
    for (const Tensor& p : net.parameters()) {
      REQUIRE(p.grad().dtype() == f32);
      Tensor& v = velocity[i++];
      v = v * 0.9 + p.grad() / scale;
      copy_(p, p - v * 0.05);
    }
  }
  const Tensor found = argmax(net(data.x));
  curve.accuracy = eq(found, data.y).to(f32).mean().item();
  return curve;
}

}  // namespace

TEST_CASE("[S26] a model's trace of dtypes without autocast, under f16 and under bf16") {
  Net net;
  CHECK(trace_of(net, {}) == kPlain);
  CHECK(trace_of(net, f32) == kPlain);
  CHECK(trace_of(net, f16) == kF16);
  CHECK(trace_of(net, bf16) == with_bf16(kF16));
  net.to(f16);
  CHECK(trace_of(net, f16) == kF16Weights);
}

TEST_CASE("[S26] a module's own mode holds for its calls") {
  Net net;
  net.gate.set_autocast(f32);
  CHECK(net.gate.autocast() == f32);
  const std::string text = trace_of(net, f16);
  CHECK(text.find("layer_norm f32 f32 f32 -> f32\nlinear f32 f32 -> f32\nsoftmax f32 -> f32") !=
        std::string::npos);
  net.gate.set_autocast(std::nullopt);
  CHECK(trace_of(net, f16) == kF16);

  // A 16-bit input of a module that runs in f32 is cast up, and its gradient comes back in 16 bits.
  nn::Linear layer(4, 2);
  layer.set_autocast(f32);
  Tensor h = ones({3, 4}, f16);
  h.set_requires_grad();
  {
    const Autocast guard(f16);
    const Tensor y = layer(h);
    CHECK(y.dtype() == f32);
    sum(y).backward();
    CHECK(autocast_dtype() == f16);
  }
  CHECK(h.grad().dtype() == f16);
  CHECK(layer.weight.grad().dtype() == f32);
}

TEST_CASE(
    "[S26] a module's mode covers what it calls, goes with copies, and ends by an exception") {
  Net net;
  net.set_autocast(bf16);
  CHECK(trace_of(net, {}) == with_bf16(kF16));
  Net copy = net;
  CHECK(copy.autocast() == bf16);
  const Net moved = std::move(copy);
  CHECK(moved.autocast() == bf16);
  net.set_autocast(std::nullopt);
  CHECK(moved.autocast() == bf16);
  CHECK(trace_of(net, {}) == kPlain);

  net.set_autocast(f16);
  CHECK_THROWS_AS(net(ones({4, 5})), Error);
  CHECK(!autocast_dtype());
  CHECK(error_of([&] { net.set_autocast(f64); }).rfind("[Autocast] cannot run in f64", 0) == 0);
  CHECK(net.autocast() == f16);
}

TEST_CASE("[S26] training under autocast follows the training in f32", "[long]") {
  const Curve plain = run_training({}, 1), half = run_training(f16, 1024),
              brain = run_training(bf16, 1);
  REQUIRE(plain.losses.back() < 0.15);
  CHECK(plain.accuracy > 0.95);
  const auto follows = [&](const Curve& c, double tolerance) {
    double worst = 0;
    for (std::size_t i = 0; i < c.losses.size(); ++i)
      worst = std::max(worst, std::abs(c.losses[i] - plain.losses[i]));
    INFO("largest difference of the loss: " << worst << ", accuracy " << c.accuracy);
    CHECK(worst < tolerance);
    CHECK(worst > 0);  // it ran in another dtype
    CHECK(std::abs(c.accuracy - plain.accuracy) <= 2.0 / 128);
  };
  follows(half, 0.002);
  follows(brain, 0.01);
}
