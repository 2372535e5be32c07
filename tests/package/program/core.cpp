// What a user of the module core alone writes: a model, a loss and an optimizer. Prints what
// consumer.cpp prints, so that the same test reads both.
#include <firn/core.h>

#include <cstdint>
#include <iostream>

using namespace firn;

struct Net : nn::ModuleOf<Net> {
  nn::Linear hidden{2, 16}, out{16, 2};
  FIRN_MEMBERS(hidden, out)

  Tensor forward(const Tensor& x) { return out(tanh(hidden(x))); }
};

int main() {
  manual_seed(1);
  // Exclusive or, which no linear model learns.
  const Tensor x = tensor({0.f, 0.f, 0.f, 1.f, 1.f, 0.f, 1.f, 1.f}, {4, 2});
  const Tensor y = tensor<std::int64_t>({0, 1, 1, 0}, {4});
  Net net;
  optim::Adam opt(net.parameters(), {.lr = 0.05});
  for (int step = 0; step < 200; ++step) {
    opt.backward(cross_entropy(net(x), y));
    if (!opt.step()) return 1;
  }
  net.eval();
  const Tensor logits = net(x);
  const double loss = cross_entropy(logits, y).mean().item();
  if (!equal(logits.argmax(-1), y) || !(loss < 0.1)) {
    std::cerr << "the loss is " << loss << ", of\n" << logits << "\n";
    return 1;
  }
  std::cout << "loss 12, gradient 24\n";
}
