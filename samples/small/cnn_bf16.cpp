// A convolutional network in bf16 that finds the bright spot in an image. Weights are f32,
// convolutions and products run in bf16 under Autocast. BatchNorm takes its statistics from whole
// steps.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

struct Net : nn::Module {
  nn::Conv2d first{1, 8, 3, {.padding = kSamePadding, .bias = false}};
  nn::BatchNorm2d norm{8, {.accumulation = nn::BatchNormMode::per_step}};
  nn::Conv2d second{8, 16, 3, {.stride = 2, .padding = 1, .activation = Activation::relu}};
  nn::Linear out{16 * 4 * 4, 4};
  FIRN_MEMBERS(first, norm, second, out)
  Tensor forward(const Tensor& x) override {
    return out(max_pool2d(second(relu(norm(first(x)))), 2).flatten(1));
  }
};

// Returns noise of 16 x 16 pixels with a spot of 3 x 3 in one quadrant, which is the label.
static std::pair<Tensor, Tensor> spots(std::int64_t n) {
  Tensor x = 0.5 * randn({n, 1, 16, 16});
  const Tensor label = argmax(rand({n, 4}));
  const std::vector<std::int64_t> quadrant = label.to_vector<std::int64_t>();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t q = quadrant[static_cast<std::size_t>(i)];
    const std::int64_t top = 1 + 8 * (q / 2) + i % 4, left = 1 + 8 * (q % 2) + i % 3;
    x[i].slice(1, top, top + 3).slice(2, left, left + 3).fill_(1.5);
  }
  return {x, label};
}

int main() {
  manual_seed(1);
  const auto [x, y] = spots(256);
  const auto [test_x, test_y] = spots(200);
  Net net;
  optim::AdamW opt(net.parameters(), {.lr = 5e-3});
  for (int step = 0; step < 60; ++step) {
    const std::int64_t at = 64 * (step % 4);
    std::optional<Autocast> guard(bf16);
    const Loss loss = cross_entropy(net(x.slice(0, at, at + 64)), y.slice(0, at, at + 64));
    guard.reset();
    opt.backward(loss);
    opt.step();
  }
  net.eval();
  const NoGrad no_grad;
  const Autocast guard(bf16);
  const double right = eq(argmax(net(test_x)), test_y).to(f32).mean().item();
  std::printf("%.1f %% of the spots are found\n", 100 * right);
  return right > 0.9 ? 0 : 1;
}
