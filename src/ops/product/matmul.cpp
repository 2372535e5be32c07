// Matrix products. The GEMM of a weight gradient accumulates into the parameter's sink (beta = 1),
// without a temporary or an addition pass. Under autocast both products run in the guard's dtype.
#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "kernels/dense.h"
#include "kernels/gemm.h"
#include "kernels/settings/settings.h"
#include "ops/common.h"
#include "ops/gradient/again.h"
#include "ops/product/dense.h"
#include "ops/switch.h"

namespace firn {

using namespace ops;

namespace {

/// Broadcasts t [batch..., m, n] to the batch axes `batch` and merges these into one; copies only
/// if they cannot be merged. Gradients flow back through `reshape` and `expand`.
Tensor merge_batch(const Tensor& t, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(t.size(-2));
  shape.push_back(t.size(-1));
  return reshape(expand(t, shape), {batch.product(), t.size(-2), t.size(-1)});
}

/// Returns the broadcast batch axes of a and b.
Shape batch_of(const Tensor& a, const Tensor& b) {
  Shape x = a.shape(), y = b.shape();
  for (Shape* s : {&x, &y}) {
    s->pop_back();
    s->pop_back();
  }
  const int common = std::min(x.size(), y.size());
  for (int i = 1; i <= common; ++i) {
    const std::int64_t m = x[x.size() - i], n = y[y.size() - i];
    FIRN_CHECK(m == n || m == 1 || n == 1, "matmul",
               "sizes must be equal or 1; insert axes with unsqueeze",
               "batch axes {} and {} do not broadcast: a {}, b {}", x, y, describe(a), describe(b));
  }
  return broadcast_shapes("matmul", x, y);
}

/// True if the gradient of `t` is to be computed transposed: t has contiguous columns of more than
/// one element. False for 16 bits, where product and sum are to be rounded once together.
bool turns_gradient(const Tensor& t) {
  const int n = t.rank();
  return t.size(-2) > 1 && t.strides()[n - 2] == 1 && t.strides()[n - 1] >= t.size(-2) &&
         size_of(t.dtype()) > 2;
}

/// Adds x y to the gradient of input i. For a transposed view it computes (yᵀ xᵀ)ᵀ, which has the
/// operand's layout and is contiguous outside of the view.
void accumulate_product(Backward& back, int i, bool turns, const ConstView& x, const ConstView& y) {
  if (!turns) {
    const auto [grad, beta] = back.sink(i);
    kernels::gemm(x, y, grad.mutable_view(), kernels::GemmArgs{.beta = beta}, back.stream());
    return;
  }
  const ConstView left = transposed(y), right = transposed(x);
  Shape shape = left.shape;
  shape.back() = right.shape.back();
  const Tensor grad = empty(shape, back.grad().dtype(), back.grad().device());
  kernels::gemm(left, right, grad.mutable_view(), kernels::GemmArgs{}, back.stream());
  back.accumulate(i, transpose(grad, -1, -2));
}

/// [m, k] x [k, n] or [batch, m, k] x [batch, k, n]. Casts are applied here, after all views, so
/// that the gradient of an f32 operand is f32 from the product on.
Tensor product(const Tensor& left, const Tensor& right) {
  const Autocasted in(Policy::lower, left, right);
  const Tensor &a = in[0], &b = in[1];
  Shape shape = a.shape();
  shape.back() = b.size(-1);
  checked_elements("matmul", shape);
  const double work = static_cast<double>(shape.product()) * static_cast<double>(a.size(-1));
  const Tensor y = autograd::product(work, autograd::ReadsResult::no, [&] {
    Tensor made = empty(shape, a.dtype(), a.device());
    kernels::gemm(a.view(), b.view(), made.mutable_view(), kernels::GemmArgs{}, stream_of(made));
    return made;
  });
  const bool turns_a = turns_gradient(a), turns_b = turns_gradient(b);
  const auto backward = [=](Backward& back) {
    const ConstView dy = back.grad().view();
    if (back.needs(0)) accumulate_product(back, 0, turns_a, dy, transposed(back.saved(1).view()));
    if (back.needs(1)) accumulate_product(back, 1, turns_b, transposed(back.saved(0).view()), dy);
  };
  return record("matmul", y, {&a, &b}, {Saved::input(0), Saved::input(1)},
                with_again(backward, [](GraphBackward& back) {
                  const Tensor& dy = back.grad();
                  if (back.needs(0)) back.add(0, matmul(dy, transpose(back.input(1, 1), -1, -2)));
                  if (back.needs(1)) back.add(1, matmul(transpose(back.input(0, 0), -1, -2), dy));
                }));
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  require_floating("matmul", a);
  require_factors("matmul", a, b);
  FIRN_CHECK(a.rank() >= 1 && b.rank() >= 1, "matmul", "multiply by a scalar with *",
             "a {}, b {}: a scalar has no inner axis", describe(a), describe(b));
  if (a.rank() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.rank() == 1 ? 0 : -2);
  if (b.rank() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  FIRN_CHECK(a.size(-1) == b.size(-2), "matmul", "transpose one of them",
             "inner sizes differ: a {}, b {}", describe(a), describe(b));
  if (a.rank() == 2 && b.rank() == 2) return product(a, b);
  Shape out = batch_of(a, b);
  const Tensor y = product(merge_batch(a, out), merge_batch(b, out));
  out.push_back(a.size(-2));
  out.push_back(b.size(-1));
  return reshape(y, out);
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b) {
  require_dense("linear", x, w, b);
  const Tensor x_rows = as_matrix(x);
  const Autocasted in(Policy::lower, x_rows, w, b);
  const Tensor &rows = in[0], &weight = in[1], &bias = in[2];
  const double work = static_cast<double>(rows.numel()) * static_cast<double>(weight.size(0));
  Tensor y = autograd::product(work, autograd::ReadsResult::no, [&] {
    Tensor made = empty({rows.size(0), weight.size(0)}, rows.dtype(), x.device());
    kernels::dense_forward(rows.view(), weight.view(), bias.defined() ? bias.view() : ConstView{},
                           Activation::none, made.mutable_view(), View{}, stream_of(made));
    return made;
  });
  const auto backward = [](Backward& back) {
    if (back.needs(0)) {  // dx = dy w
      const auto [dx, beta] = back.sink(0);
      kernels::gemm(back.grad().view(), back.saved(1).view(), dx.mutable_view(),
                    kernels::GemmArgs{.beta = beta}, back.stream());
    }
    accumulate_dense(back, 1, 2, back.grad(), back.saved(0));
  };
  y = record("linear", y, {&rows, &weight, &bias}, {Saved::input(0), Saved::input(1)},
             with_again(backward, [](GraphBackward& back) {
               const Tensor& dy = back.grad();
               if (back.needs(0)) back.add(0, matmul(dy, back.input(1, 1)));
               if (back.needs(1)) back.add(1, matmul(transpose(dy, 0, 1), back.input(0, 0)));
               if (back.needs(2)) back.add(2, sum(dy, {0}));
             }));
  if (x.rank() == 2) return y;
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  return reshape(y, shape);
}

void allow_tf32(bool on) noexcept { ops::set_switch(kernels::tf32_switch(), on); }
bool tf32_allowed() noexcept { return kernels::tf32_allowed(); }
void allow_bf16x3(bool on) noexcept { ops::set_switch(kernels::bf16x3_switch(), on); }
bool bf16x3_allowed() noexcept { return kernels::bf16x3_allowed(); }
void require_batch_invariance(bool on) noexcept {
  ops::set_switch(kernels::batch_invariance_switch(), on);
}
bool batch_invariance_required() noexcept { return kernels::batch_invariance_required(); }

}  // namespace firn
