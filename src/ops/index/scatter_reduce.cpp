// Reduces elements with the elements that an index sends to them.
#include <algorithm>

#include "firn/ops/elementwise.h"
#include "firn/ops/index.h"
#include "kernels/index.h"
#include "ops/common.h"
#include "ops/gradient/again.h"
#include "ops/index/positions.h"

namespace firn {

using namespace ops;
using kernels::Meeting;

namespace {

/// Number of elements of the index that lead to each place, plus `base`; in `dtype`.
Tensor counts_of(const char* op, const Tensor& x, const Tensor& index, int axis, double base,
                 DType dtype) {
  // Along axes on which the index is repeated, all counts are equal.
  Shape own = index.shape(), table = x.shape();
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis && index.strides()[i] == 0 && index.size(i) == x.size(i))
      own[i] = table[i] = std::min<std::int64_t>(1, x.size(i));
  const Tensor counts = full(table, base, TensorOptions{.dtype = i64, .device = x.device()});
  const Tensor one = expand(ones({}, i64, x.device()), own);
  kernels::put(op, one.view(), index.as_strided(own, index.strides()).view(), counts.mutable_view(),
               axis, Meeting::sum, stream_of(x));
  return cast(counts, dtype);
}

Tensor met(const char* op, const Tensor& x, const Tensor& index, const Tensor& src, int axis,
           Meeting meeting) {
  const Tensor y = clone(x.detach());
  kernels::put(op, src.view(), index.view(), y.mutable_view(), axis, meeting, stream_of(x));
  return y;
}

/// The derivative of a product y by each factor f: the product of the others. `zeros` and `rest`
/// are the number of factors that are 0 and the product of those that are not.
Tensor of_factor(const Tensor& f, const Tensor& y, const Tensor& zeros, const Tensor& rest) {
  const Tensor zero = eq(f, 0), without = div(y, where(zero, 1, f));
  return where(zero, where(eq(zeros, 1), rest, 0), without);
}

Tensor product_at(const char* op, const Tensor& x, const Tensor& index, const Tensor& src,
                  int axis) {
  const Tensor y = met(op, x, index, src, axis, Meeting::prod);
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"axis", axis}, {"index", &index}});
  return record(
      op, y, {&x, &src}, {Saved::input(0), Saved::input(1), Saved::other(index), Saved::output()},
      [op, axis](Backward& b) {
        const Tensor &f = b.saved(0), &g = b.saved(1), &at = b.saved(2), &out = b.saved(3);
        const Tensor zeros =
            met(op, cast(eq(f, 0), i64), at, cast(eq(g, 0), i64), axis, Meeting::sum);
        const Tensor rest =
            met(op, where(eq(f, 0), 1, f), at, where(eq(g, 0), 1, g), axis, Meeting::prod);
        const auto there = [&](const Tensor& t) { return gather(t, axis, at); };
        if (b.needs(0)) b.accumulate(0, b.grad() * of_factor(f, out, zeros, rest));
        if (b.needs(1))
          b.accumulate(1, there(b.grad()) * of_factor(g, there(out), there(zeros), there(rest)));
      });
}

/// True where elements are equal, or both NaN.
Tensor same(const Tensor& a, const Tensor& b) {
  return logical_or(eq(a, b), logical_and(ne(a, a), ne(b, b)));
}

Tensor extremum_at(const char* op, const Tensor& x, const Tensor& index, const Tensor& src,
                   int axis, Meeting meeting, bool include_self) {
  Tensor base = x.detach();
  // Without x's own element the last of the others is the start: meeting it twice changes nothing.
  if (!include_self) base = met(op, base, index, src, axis, Meeting::last);
  const Tensor y = met(op, base, index, src, axis, meeting);
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"axis", axis}, {"index", &index}});
  const auto backward = [op, axis, include_self](auto& b, const auto& add) {
    const Tensor &f = b.saved(0), &g = b.saved(1), &at = b.saved(2), &out = b.saved(3);
    const Tensor& dy = b.grad();
    Tensor mine, theirs, equals;
    {
      const NoGrad guard;
      mine = include_self ? same(f, out)
                          : expand(eq(counts_of(op, f, at, axis, 0, i64), 0), f.shape());
      theirs = same(g, gather(out, axis, at));
      equals = met(op, cast(mine, i64), at, cast(theirs, i64), axis, Meeting::sum);
    }
    const Tensor share = div(dy, cast(equals, dy.dtype()));
    if (b.needs(0)) add(0, where(mine, share, 0));
    if (b.needs(1)) add(1, where(theirs, gather(share, axis, at), 0));
  };
  return record(op, y, {&x, &src},
                {Saved::input(0), Saved::input(1), Saved::other(index), Saved::output()},
                with_again(
                    [backward](Backward& b) {
                      const OwnerScope owner(Owner::workspace);
                      backward(b, [&b](int i, const Tensor& t) { b.accumulate(i, t); });
                    },
                    [backward](GraphBackward& b) {
                      backward(b, [&b](int i, const Tensor& t) { b.add(i, t); });
                    }));
}

/// Reduces in the dtype given, which is wide enough.
Tensor reduced_at(const char* op, const Tensor& x, const Tensor& index, const Tensor& src, int axis,
                  ScatterReduce how, bool include_self) {
  if (how == ScatterReduce::amax || how == ScatterReduce::amin)
    return extremum_at(op, x, index, src, axis,
                       how == ScatterReduce::amax ? Meeting::max : Meeting::min, include_self);
  Tensor base = x;
  if (!include_self) {
    const double neutral = how == ScatterReduce::prod ? 1 : 0;
    base = put_at(op, x, index,
                  expand(full({}, neutral, TensorOptions{.dtype = x.dtype(), .device = x.device()}),
                         index.shape()),
                  axis);
  }
  if (how == ScatterReduce::prod) return product_at(op, base, index, src, axis);
  const Tensor sum = add_at(op, base, index, src, axis);
  if (how == ScatterReduce::sum) return sum;
  return div(sum, maximum(counts_of(op, x, index, axis, include_self ? 1 : 0, x.dtype()), 1));
}

Tensor reduced(const char* op, const Placed& at, ScatterReduce how, bool include_self) {
  require_named(op, "ScatterReduce", how, ScatterReduce::amin);
  require_numbers(op, at.x);
  const DType dtype = at.x.dtype();
  if (how == ScatterReduce::mean) require_floating(op, at.x);
  // Sums of 16-bit numbers are rounded once already.
  const DType wide = is_floating(dtype) && how != ScatterReduce::sum ? compute_dtype(dtype) : dtype;
  return at.back(cast(
      reduced_at(op, cast(at.x, wide), at.index, cast(at.src, wide), at.axis, how, include_self),
      dtype));
}

}  // namespace

const char* to_string(ScatterReduce how) noexcept {
  constexpr const char* names[] = {"sum", "prod", "mean", "amax", "amin"};
  return how <= ScatterReduce::amin ? names[static_cast<int>(how)] : "unknown reduction";
}

Tensor scatter_reduce(const Tensor& x, std::int64_t axis, const Tensor& index, const Tensor& src,
                      ScatterReduce how, bool include_self) {
  constexpr const char* kOp = "scatter_reduce";
  return reduced(kOp, elements_at(kOp, x, axis, index, src), how, include_self);
}

Tensor index_reduce(const Tensor& x, std::int64_t axis, const Tensor& index, const Tensor& src,
                    ScatterReduce how, bool include_self) {
  constexpr const char* kOp = "index_reduce";
  return reduced(kOp, slices_at(kOp, x, axis, index, src), how, include_self);
}

}  // namespace firn
