// ../cpu/overhead.cpp with LibTorch.
#include <torch/torch.h>

#include "../harness.h"

int main() {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  const auto a = torch::randn({16}), b = torch::randn({16});
  auto w = torch::randn({16});
  w.requires_grad_();
  {
    const torch::NoGradGuard guard;
    bench::report("add.no_grad", "ns", bench::nanoseconds([&] { auto y = a + b; }));
  }
  bench::report("add.recorded", "ns", bench::nanoseconds([&] { auto y = w + b; }));
  bench::report("chain10.forward_backward", "ns", bench::nanoseconds([&] {
                  torch::Tensor y = w;
                  for (int i = 0; i < 10; ++i) y = y + b;
                  y.backward(a);
                }));
  const auto x = torch::randn({4, 4});
  torch::nn::Linear fc(4, 4);
  const auto seed = torch::randn({4, 4});
  bench::report("linear.forward_backward", "ns", bench::nanoseconds([&] { fc(x).backward(seed); }));
}
