// An optimizer is given the parameters of a module; elements are written by copy_().
// at most 60 lines
// says: write net.parameters()
// says: write elements: x[0].copy_(y)
#include <firn/firn.h>

using namespace firn;

int main() {
  nn::Linear net(2, 2);
  optim::AdamW opt(net, {.lr = 1e-3});
  optim::SGD other(net);
  Tensor x = zeros({2, 2});
  const Tensor y = ones({2});
  x[0] = y;
  x[1] = x[0];
}
