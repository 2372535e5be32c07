// What a user of an installed firn writes.
#include <firn/firn.h>

#include <iostream>

int main() {
  firn::Tensor x = firn::ones({2, 3}).set_requires_grad();
  firn::Tensor loss = firn::matmul(x, x.transpose(0, 1)).sum();
  loss.backward();
  std::cout << "loss " << loss.item() << ", gradient " << x.grad().sum().item() << "\n";
}
