// An axis is a number for operations over one and over several.
// compiles
#include <firn/firn.h>

using namespace firn;

int main() {
  const Tensor x = zeros({2, 3});
  (void)sum(x, 1), (void)softmax(x, 1), (void)argmax(x, 1), (void)x.max(1);
  (void)max_with_indices(x, 1), (void)cat({x, x}, 1), (void)quantile(x, 0.5, {.axes = 1});
  (void)cross_entropy(x, zeros({2}, i64), {.axis = 1});
}
