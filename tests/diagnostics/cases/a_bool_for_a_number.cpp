// Python's keepdim, unbiased, descending or retain_graph where firn has a number.
// at most 240 lines
// says: var(x, axes, correction, keepdims)
// says: x.var(axes, correction, keepdims)
// says: std(x, {}, correction, keepdims)
// says: std(x, axes, correction, keepdims)
// says: var_mean(x, axes, correction, keepdims)
// says: cov(x, correction)
// says: argmax(x, axis, keepdims)
// says: sort(x, -1, {.descending = true})
// says: topk(x, k, -1, {.largest = false})
// says: dropout(x, p, training)
// says: it has no size_average
// says: full(shape, 1, boolean), or f32
// says: the condition itself is bool
// says: backward(sum, weight, {.retain_graph = true})
#include <firn/firn.h>

using namespace firn;

int main() {
  const Tensor x = zeros({2, 3});
  (void)var(x, 1, true), (void)x.var(1, true), (void)firn::std(x, false),
      (void)firn::std(x, 1, true);
  (void)var_mean(x, 1, true), (void)cov(x, true), (void)argmax(x, true), (void)x.argmin(true);
  (void)sort(x, true), (void)topk(x, 2, false), (void)median(x, true), (void)kthvalue(x, 1, true);
  (void)dropout(x, true), (void)smooth_l1_loss(x, x, false), (void)full({2}, true);
  (void)where(x > 0, true, false);
  nn::Linear net(2, 2);
  optim::SGD opt(net.parameters(), {.lr = 1e-3});
  opt.backward(x.sum(), true);
}
