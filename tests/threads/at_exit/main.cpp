// A program that uses firn before main() and after it, and ends while another thread computes.
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "firn/firn.h"

namespace {

double compute() {
  const firn::Tensor a = firn::randn({64, 64}), x = firn::randn({4, 8, 12, 12});
  const firn::Tensor w = firn::randn({16, 8, 3, 3}).set_requires_grad();
  firn::conv2d(x, w).sum().backward();
  return firn::matmul(a, a).sum().item() + firn::dropout(w.grad(), 0.5).sum().item();
}

struct Global {
  Global() { before = compute(); }
  ~Global() {
    // Shapes that oneDNN has met, and one that it has not.
    const double after =
        compute() +
        firn::conv2d(firn::ones({2, 16, 9, 9}), firn::ones({16, 16, 3, 3})).sum().item();
    firn::warn("at_exit", "after main()");
    firn::release_cached_memory();
    std::printf("after main: %d\n", after != 0 && before != 0 ? 1 : 0);
  }
  double before = 0;
  firn::Tensor kept = firn::ones({1000});
};
Global global;

}  // namespace

int main() {
  firn::set_num_threads(4);
  firn::set_warning_handler([](const std::string& text) { std::puts(text.c_str()); });
  std::thread([] {
    for (;;) compute();
  }).detach();
  const double sum = compute();
  std::printf("main: %d\n", sum != 0 ? 1 : 0);
  return 0;
}
