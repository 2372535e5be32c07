// A second axis, or PyTorch's norm(x, p, dim), where firn has keepdims.
// at most 60 lines
// says: sum(x, {0, 1}, true)
// says: x.mean({0, 1}, true)
// says: norm(x, axes): it has no p
// says: logsumexp(x, {0, 1}, true)
// says: matrix_norm(x, norm, {-2, -1}, keepdims)
#include <firn/firn.h>

using namespace firn;

int main() {
  const Tensor x = zeros({2, 3});
  (void)sum(x, 0, 1), (void)x.mean(0, 1), (void)norm(x, 2, 1), (void)logsumexp(x, 0, 1);
  (void)linalg::matrix_norm(x, 2, -2, -1);
}
