// Linear regression: y = 3 a - 2 b + 0.5 + noise, learned by SGD. The weights are written as a
// NumPy array.
//
//   python3 -c 'import numpy; print(numpy.load("weights.npy"))'
#include <cmath>
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

int main() {
  manual_seed(1);
  const Tensor x = randn({500, 2});
  const Tensor truth = tensor({3.f, -2.f}, {1, 2});
  const Tensor y = linear(x, truth) + 0.5 + 0.1 * randn({500, 1});

  nn::Linear net(2, 1);
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  for (int step = 0; step < 200; ++step) {
    opt.backward(mse_loss(net(x), y));
    opt.step();
  }

  const NoGrad guard;
  const double a = net.weight[0][0].item(), b = net.weight[0][1].item(), c = net.bias[0].item();
  std::printf("y = %.2f a %+.2f b %+.2f, mean squared error %.4f\n", a, b, c,
              mse_loss(net(x), y).item());
  io::write_npy("weights.npy", net.weight);
  const Tensor back = io::read_npy("weights.npy");
  const bool same = eq(back, net.weight).to(f32).mean().item() == 1;
  return same && std::abs(a - 3) < 0.05 && std::abs(b + 2) < 0.05 && std::abs(c - 0.5) < 0.05 ? 0
                                                                                              : 1;
}
