// One process trains in f32 on the CPU, and lines are counted in one call of opt.step() alone.
#include <firn/autograd.h>
#include <firn/nn/layers/linear.h>
#include <firn/ops/losses.h>
#include <firn/ops/ops.h>
#include <firn/optim/optim.h>

#include <cstdlib>

extern "C" void __gcov_reset();
extern "C" void __gcov_dump();

int main() {
  firn::nn::Linear layer(4, 2);
  firn::optim::Adam opt(layer.parameters(), {.lr = 0.01});
  const firn::Tensor x = firn::ones({3, 4}), y = firn::zeros({3, 2});
  for (int step = 0; step < 3; ++step) {
    opt.backward(firn::mse_loss(layer(x), y));
    if (step == 2) __gcov_reset();
    opt.step();
  }
  __gcov_dump();
  std::_Exit(EXIT_SUCCESS);  // what ends the program does not count
}
