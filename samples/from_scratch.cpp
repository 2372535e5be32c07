// A model from scratch: two spirals, told apart by a small network.
#include <cmath>
#include <cstdio>
#include <vector>

#include "firn/firn.h"

using namespace firn;

struct Net : nn::Module {
  nn::Linear in{2, 64}, hidden{64, 64}, out{64, 2};
  FIRN_MEMBERS(in, hidden, out)
  Tensor forward(const Tensor& x) override { return out(relu(hidden(relu(in(x))))); }
};

int main() {
  std::vector<float> points;
  std::vector<std::int64_t> classes;
  for (int i = 0; i < 400; ++i) {
    const float radius = 0.1f + 0.9f * static_cast<float>(i) / 400;
    const float angle = 9 * radius + (i % 2 == 0 ? 0.f : 3.14159f);
    points.push_back(radius * std::cos(angle));
    points.push_back(radius * std::sin(angle));
    classes.push_back(i % 2);
  }
  const Tensor x = tensor(points, {400, 2});
  const Tensor y = tensor(classes, {400});

  manual_seed(1);
  Net net;
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  for (int step = 1; step <= 200; ++step) {
    const Loss loss = cross_entropy(net(x), y);
    opt.backward(loss);
    opt.step();
    if (step == 1 || step % 50 == 0) std::printf("step %3d  loss %.4f\n", step, loss.item());
  }
  const NoGrad guard;
  std::printf("accuracy %.3f\n", eq(argmax(net(x)), y).to(f32).mean().item());
}
