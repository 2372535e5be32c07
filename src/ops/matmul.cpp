// Matrix products. A weight's gradient is accumulated by the product itself (beta = 1 into the
// parameter's sink): no temporary, no addition pass.
#include <utility>

#include "kernels/gemm.h"
#include "ops/common.h"

namespace firn {

using namespace ops;

namespace {

/// The last two axes of `v` swapped.
ConstView transposed(ConstView v) {
  const int n = v.rank();
  std::swap(v.shape[n - 1], v.shape[n - 2]);
  std::swap(v.strides[n - 1], v.strides[n - 2]);
  return v;
}

/// t [batch..., m, n] broadcast to batch axes `batch` and those merged into one; a copy is made only
/// where they do not merge. Gradients of the copy flow back through `reshape` and `expand`.
Tensor merge_batch(const Tensor& t, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(t.size(-2));
  shape.push_back(t.size(-1));
  return reshape(expand(t, shape), {batch.product(), t.size(-2), t.size(-1)});
}

/// [m, k] x [k, n] or [batch, m, k] x [batch, k, n].
Tensor product(const Tensor& a, const Tensor& b) {
  Shape shape = a.shape();
  shape.back() = b.size(-1);
  Tensor y = empty(shape, a.dtype(), a.device());
  kernels::gemm(a.view(), b.view(), y.mutable_view(), kernels::GemmArgs{}, stream_of(y));
  return record("matmul", y, {&a, &b}, {Saved::input(0), Saved::input(1)}, [](Backward& back) {
    const ConstView dy = back.grad().view();
    if (back.needs(0)) {  // da = dy bᵀ
      const auto [da, beta] = back.sink(0);
      kernels::gemm(dy, transposed(back.saved(1).view()), da.mutable_view(),
                    kernels::GemmArgs{.beta = beta}, back.stream());
    }
    if (back.needs(1)) {  // db = aᵀ dy
      const auto [db, beta] = back.sink(1);
      kernels::gemm(transposed(back.saved(0).view()), dy, db.mutable_view(),
                    kernels::GemmArgs{.beta = beta}, back.stream());
    }
  });
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  require_floating("matmul", a);
  require_same("matmul", a, b);
  FIRN_CHECK(a.rank() >= 1 && b.rank() >= 1, "matmul", "multiply by a scalar with *",
             "a {}, b {}: a scalar has no inner axis", describe(a), describe(b));
  if (a.rank() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.rank() == 1 ? 0 : -2);
  if (b.rank() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  FIRN_CHECK(a.size(-1) == b.size(-2), "matmul", "transpose one of them",
             "inner sizes differ: a {}, b {}", describe(a), describe(b));
  if (a.rank() == 2 && b.rank() == 2) return product(a, b);
  Shape batch_a = a.shape(), batch_b = b.shape();
  for (Shape* s : {&batch_a, &batch_b}) {
    s->pop_back();
    s->pop_back();
  }
  Shape out = broadcast_shapes("matmul", batch_a, batch_b);
  const Tensor y = product(merge_batch(a, out), merge_batch(b, out));
  out.push_back(a.size(-2));
  out.push_back(b.size(-1));
  return reshape(y, out);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require_floating("linear", x);
  require_same("linear", x, weight);
  FIRN_CHECK(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1), "linear",
             "the last axis of x must be the weight's second: weight is [out, in]",
             "x {}, weight {}", describe(x), describe(weight));
  if (bias.defined()) {
    require_same("linear", x, bias);
    FIRN_CHECK(bias.shape() == Shape{weight.size(0)}, "linear", "bias is [out]",
               "bias {}, weight {}", describe(bias), describe(weight));
  }
  const Tensor rows = x.rank() == 2 ? x : reshape(x, {-1, x.size(-1)});
  Tensor y = empty({rows.size(0), weight.size(0)}, x.dtype(), x.device());
  kernels::GemmArgs args;
  if (bias.defined()) args.bias = bias.view();
  kernels::gemm(rows.view(), transposed(weight.view()), y.mutable_view(), args, stream_of(y));
  y = record("linear", y, {&rows, &weight, &bias}, {Saved::input(0), Saved::input(1)},
             [](Backward& b) {
               const ConstView dy = b.grad().view();
               if (b.needs(0)) {  // dx = dy w
                 const auto [dx, beta] = b.sink(0);
                 kernels::gemm(dy, b.saved(1).view(), dx.mutable_view(),
                               kernels::GemmArgs{.beta = beta}, b.stream());
               }
               if (b.needs(1)) {  // dw = dyᵀ x
                 const auto [dw, beta] = b.sink(1);
                 kernels::gemm(transposed(dy), b.saved(0).view(), dw.mutable_view(),
                               kernels::GemmArgs{.beta = beta}, b.stream());
               }
               if (b.needs(2)) accumulate_broadcast(b, 2, b.grad());
             });
  if (x.rank() == 2) return y;
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  return reshape(y, shape);
}

}  // namespace firn
