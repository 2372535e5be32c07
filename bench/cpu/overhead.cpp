// What an op costs beside its arithmetic: tensors of 16 elements, one thread.
#include <firn/firn.h>

#include "../harness.h"

using namespace firn;

int main() {
  set_num_threads(1);
  manual_seed(1);
  const Tensor a = randn({16}), b = randn({16});
  Tensor w = randn({16});
  w.set_requires_grad();
  {
    const NoGrad guard;
    bench::report("add.no_grad", "ns", bench::nanoseconds([&] { Tensor y = a + b; }));
  }
  bench::report("add.recorded", "ns", bench::nanoseconds([&] { Tensor y = w + b; }));
  bench::report("chain10.forward_backward", "ns", bench::nanoseconds([&] {
                  Tensor y = w;
                  for (int i = 0; i < 10; ++i) y = y + b;
                  backward(y, {.seed = a});
                }));
  const Tensor x = randn({4, 4});
  nn::Linear fc(4, 4);
  const Tensor seed = randn({4, 4});
  bench::report("linear.forward_backward", "ns",
                bench::nanoseconds([&] { backward(fc(x), {.seed = seed}); }));
}
