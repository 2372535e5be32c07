// Writes at positions that tensors hold, by one kernel, in which the last element stays.
#include <algorithm>

#include "firn/ops/index.h"
#include "firn/ops/rearrange.h"
#include "firn/ops/reduce.h"
#include "kernels/index.h"
#include "ops/common.h"
#include "ops/gradient/again.h"
#include "ops/index/positions.h"

namespace firn {

using namespace ops;

namespace {

/// A number of x's dtype, repeated to `shape` without memory.
Tensor everywhere(const char* op, const Tensor& x, double value, const Shape& shape) {
  require_holds(op, x.dtype(), value);
  return expand(full({}, value, TensorOptions{.dtype = x.dtype(), .device = x.device()}), shape);
}

/// Returns one element of each axis along which the index is repeated, but for `axis`.
Tensor distinct(const Tensor& index, int axis) {
  Shape shape = index.shape();
  for (int i = 0; i < index.rank(); ++i)
    if (i != axis && index.strides()[i] == 0) shape[i] = std::min<std::int64_t>(1, shape[i]);
  return index.as_strided(shape, index.strides());
}

/// True where an element of src stays: no later one has its target. It has the index's shape.
Tensor stays(const char* op, const Tensor& index, int axis, std::int64_t places) {
  const Tensor own = distinct(index, axis);
  Shape list = Dims::filled(own.rank(), 1), table = own.shape();
  list[axis] = own.size(axis);
  table[axis] = places;
  const Tensor number = expand(reshape(arange(own.size(axis), index.device()), list), own.shape());
  const Tensor last = zeros(table, i64, index.device());
  const Stream stream = stream_of(index);
  kernels::put(op, number.view(), own.view(), last.mutable_view(), axis, kernels::Meeting::last,
               stream);
  const Tensor winner = empty(own.shape(), i64, index.device());
  kernels::gather(op, last.view(), own.view(), winner.mutable_view(), axis, stream);
  return expand(eq(winner, number), index.shape());
}

/// These are the gradients of x and of src.
Tensor of_x(const char* op, const Tensor& dy, const Tensor& index, int axis) {
  return put_at(op, dy, index, everywhere(op, dy, 0, index.shape()), axis);
}
Tensor of_src(const Tensor& dy, const Tensor& index, const Tensor& staying, int axis) {
  return where(staying, gather(dy, axis, index), 0);
}

}  // namespace

Placed ops::elements_at(const char* op, const Tensor& x, std::int64_t axis, const Tensor& index,
                        const Tensor& src) {
  require_computed(op, x);
  require_same(op, x, src, false);
  require_index(op, index);
  require_same_device(op, x, index);
  const bool lists = x.rank() <= 1 && index.rank() <= 1 && src.rank() <= 1;
  const auto list = [&](const Tensor& t) { return lists && t.rank() == 0 ? unsqueeze(t, 0) : t; };
  Placed at{list(x), list(index), list(src), 0, lists && x.rank() == 0};
  at.axis = normalize_axis(op, axis, at.x.rank());
  bool fits = at.index.rank() == at.x.rank() && at.src.rank() == at.x.rank();
  for (int i = 0; fits && i < at.x.rank(); ++i)
    fits = at.index.size(i) <= at.src.size(i) && (i == at.axis || at.index.size(i) <= at.x.size(i));
  FIRN_CHECK(fits, op, "unsqueeze or slice the index",
             "the index is at most as large as src, and off axis {} as x: x {}, index {}, src {}",
             at.axis, describe(x), describe(index), describe(src));
  for (int i = 0; i < at.x.rank(); ++i)
    if (at.index.size(i) < at.src.size(i)) at.src = slice(at.src, i, 0, at.index.size(i));
  return at;
}

Placed ops::slices_at(const char* op, const Tensor& x, std::int64_t axis, const Tensor& index,
                      const Tensor& src) {
  require_computed(op, x);
  require_same(op, x, src, false);
  require_index(op, index);
  require_same_device(op, x, index);
  FIRN_CHECK(index.rank() <= 1, op, "flatten the index", "the index is 1-D, got {}",
             describe(index));
  const bool scalar = x.rank() == 0;
  Placed at{scalar ? unsqueeze(x, 0) : x, index, src, 0, scalar};
  at.axis = normalize_axis(op, axis, at.x.rank());
  Shape wanted = at.x.shape(), own = Dims::filled(at.x.rank(), 1);
  wanted[at.axis] = own[at.axis] = index.numel();
  if (src.rank() < at.x.rank() && index.numel() == 1 && src.rank() + 1 == at.x.rank())
    at.src = unsqueeze(src, at.axis);
  FIRN_CHECK(at.src.shape() == wanted, op, "one slice of src for each index",
             "src {} for x {} and {} indices on axis {}: expected shape {}", describe(src),
             describe(x), index.numel(), at.axis, wanted);
  at.index = expand(reshape(index, own), wanted);
  return at;
}

void ops::require_numbers(const char* op, const Tensor& x) {
  require_defined(op, x);
  FIRN_CHECK(x.dtype() != DType::boolean, op, "cast it: x.to(i64)", "bools are no numbers: {}",
             describe(x));
}

Tensor ops::put_at(const char* op, const Tensor& x, const Tensor& index, const Tensor& src,
                   int axis) {
  const Tensor y = clone(x.detach());
  kernels::put(op, src.view(), index.view(), y.mutable_view(), axis, kernels::Meeting::last,
               stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"axis", axis}, {"index", &index}});
  const auto backward = [op, axis](auto& b, const auto& add) {
    const Tensor &dy = b.grad(), &at = b.saved(0);
    if (b.needs(0)) add(0, of_x(op, dy, at, axis));
    if (b.needs(1)) add(1, of_src(dy, at, stays(op, at, axis, dy.size(axis)), axis));
  };
  const auto in_memory = [axis, backward](Backward& b) {
    const OwnerScope owner(Owner::workspace);
    if (!b.needs(1) || !b.grad().device().is_cpu())
      return backward(b, [&b](int i, const Tensor& t) { b.accumulate(i, t); });
    const Tensor dx = clone(b.grad()), dsrc = empty(b.saved(0).shape(), dx.dtype(), dx.device());
    kernels::put_backward(b.saved(0).view(), dx.mutable_view(), dsrc.mutable_view(), axis);
    if (b.needs(0)) b.accumulate(0, dx);
    b.accumulate(1, dsrc);
  };
  return record(op, y, {&x, &src}, {Saved::other(index)},
                with_again(in_memory, [backward](GraphBackward& b) {
                  backward(b, [&b](int i, const Tensor& t) { b.add(i, t); });
                }));
}

Tensor scatter(const Tensor& x, std::int64_t axis, const Tensor& index, const Tensor& src) {
  const Placed at = elements_at("scatter", x, axis, index, src);
  return at.back(put_at("scatter", at.x, at.index, at.src, at.axis));
}

Tensor scatter(const Tensor& x, std::int64_t axis, const Tensor& index, double value) {
  require_defined("scatter", x);
  require_index("scatter", index);
  return scatter(x, axis, index, everywhere("scatter", x, value, index.shape()));
}

Tensor index_copy(const Tensor& x, std::int64_t axis, const Tensor& index, const Tensor& src) {
  const Placed at = slices_at("index_copy", x, axis, index, src);
  return at.back(put_at("index_copy", at.x, at.index, at.src, at.axis));
}

Tensor index_fill(const Tensor& x, std::int64_t axis, const Tensor& index, const Tensor& value) {
  constexpr const char* kOp = "index_fill";
  require_computed(kOp, x);
  require_same(kOp, x, value, false);
  require_index(kOp, index);
  FIRN_CHECK(value.rank() == 0, kOp, "index_copy() takes slices", "the value {} has axes",
             describe(value));
  Shape slices = x.shape();
  if (x.rank() > 0) slices[normalize_axis(kOp, axis, x.rank())] = index.numel();
  if (x.rank() == 0) slices.push_back(index.numel());
  const Placed at = slices_at(kOp, x, axis, index, expand(value, slices));
  return at.back(put_at(kOp, at.x, at.index, at.src, at.axis));
}

Tensor index_fill(const Tensor& x, std::int64_t axis, const Tensor& index, double value) {
  require_defined("index_fill", x);
  return index_fill(x, axis, index, everywhere("index_fill", x, value, {}));
}

Tensor put(const Tensor& x, const Tensor& index, const Tensor& src, bool accumulate) {
  constexpr const char* kOp = "put";
  require_computed(kOp, x);
  require_same(kOp, x, src, false);
  require_index(kOp, index);
  require_same_device(kOp, x, index);
  if (accumulate) require_numbers(kOp, x);
  FIRN_CHECK(src.numel() == index.numel(), kOp, "one element for each index", "src {} for index {}",
             describe(src), describe(index));
  const auto write = accumulate ? add_at : put_at;
  return reshape(write(kOp, flatten(x), flatten(index), flatten(src), 0), x.shape());
}

Tensor take(const Tensor& x, const Tensor& index) {
  require_defined("take", x);
  require_index("take", index);
  require_same_device("take", x, index);
  return reshape(ops::take_along("take", flatten(x), 0, flatten(index)), index.shape());
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src) {
  constexpr const char* kOp = "masked_scatter";
  require_computed(kOp, x);
  require_same(kOp, x, src, false);
  require_same_device(kOp, x, mask);
  FIRN_CHECK(mask.dtype() == DType::boolean, kOp, "compare: gt(mask, 0)",
             "the mask is bool, got {}", describe(mask));
  FIRN_CHECK(broadcasts_to(mask.shape(), x.shape()), kOp,
             "the mask has x's shape, or expands to it", "the mask {} does not broadcast to {}",
             describe(mask), describe(x));
  const Tensor held = expand(mask, x.shape());
  if (src.numel() == 0) {
    FIRN_CHECK(x.numel() == 0 || runtime::dry_run() || any(held).item() == 0, kOp,
               "one element for each that the mask holds", "src {} is empty", describe(src));
    return clone(x);
  }
  // Element number n of those that hold takes number n of src; the others look at the first.
  const Tensor number = cumsum(cast(flatten(held), i64), 0) - 1;
  if (x.numel() > 0 && x.device().is_cpu() && !runtime::dry_run()) {
    const auto wanted = select(number.detach(), 0, -1).to_vector<std::int64_t>()[0] + 1;
    FIRN_CHECK(wanted <= src.numel(), kOp, "one element for each that the mask holds",
               "src {} has {} elements, and the mask holds {}", describe(src), src.numel(), wanted);
  }
  const Tensor at = where(flatten(held), number, zeros({}, i64, x.device()));
  return where(held, reshape(ops::take_along(kOp, flatten(src), 0, at), x.shape()), x);
}

Tensor select_scatter(const Tensor& x, const Tensor& src, std::int64_t axis, std::int64_t index) {
  constexpr const char* kOp = "select_scatter";
  require_computed(kOp, x);
  require_same(kOp, x, src, false);
  const int a = normalize_axis(kOp, axis, x.rank());
  const std::int64_t n = x.size(a);
  FIRN_CHECK(index >= -n && index < n, kOp, "indices count from 0, or from -1 backwards",
             "index {} on axis {} of {}", index, axis, describe(x));
  const Tensor at = select(arange(n, x.device()), 0, index);
  Shape wanted = x.shape();
  wanted.erase(a);
  FIRN_CHECK(src.shape() == wanted, kOp, "it is a slice without the axis",
             "src {} for {}: expected shape {}", describe(src), describe(x), wanted);
  const Placed to = slices_at(kOp, x, a, reshape(at, {1}), unsqueeze(src, a));
  return put_at(kOp, to.x, to.index, to.src, to.axis);
}

Tensor slice_scatter(const Tensor& x, const Tensor& src, std::int64_t axis, std::int64_t start,
                     std::int64_t stop, std::int64_t step) {
  constexpr const char* kOp = "slice_scatter";
  require_computed(kOp, x);
  require_same(kOp, x, src, false);
  const int a = normalize_axis(kOp, axis, x.rank());
  FIRN_CHECK(step > 0, kOp, "take a positive step", "step {} for {}", step, describe(x));
  const Tensor list = slice(arange(x.size(a), x.device()), 0, start, stop, step);
  Shape wanted = x.shape();
  wanted[a] = list.numel();
  FIRN_CHECK(src.shape() == wanted, kOp, "it is the slice that it replaces",
             "src {} for {}: expected shape {}", describe(src), describe(x), wanted);
  const Placed at = slices_at(kOp, x, a, list, src);
  return put_at(kOp, at.x, at.index, at.src, at.axis);
}

Tensor diagonal_scatter(const Tensor& x, const Tensor& src, std::int64_t offset, std::int64_t first,
                        std::int64_t second) try {
  constexpr const char* kOp = "diagonal_scatter";
  require_computed(kOp, x);
  require_same(kOp, x, src, false);
  const Tensor replaced = diagonal(x.detach(), offset, first, second);
  FIRN_CHECK(src.shape() == replaced.shape(), kOp, "it has the shape of diagonal(x)",
             "src {} for {}: expected shape {}", describe(src), describe(x), replaced.shape());
  // Both axes last and merged, so that one list of positions serves all other axes.
  const Tensor last = movedim(x, {first, second}, {-2, -1});
  const std::int64_t rows = last.size(-2), columns = last.size(-1);
  const Tensor grid = reshape(arange(rows * columns, x.device()), {rows, columns});
  Shape merged = last.shape();
  merged.pop_back();
  merged[merged.size() - 1] = rows * columns;
  const Placed at = slices_at(kOp, reshape(last, merged), -1, diagonal(grid, offset), src);
  const Tensor y = reshape(put_at(kOp, at.x, at.index, at.src, at.axis), last.shape());
  return movedim(y, {-2, -1}, {first, second});
}
FIRN_AS_OP("diagonal_scatter")

}  // namespace firn
