// Ops that read at positions given by a tensor. They only move elements, so autocast keeps their
// dtype.
#include "kernels/index.h"

#include "base/checked.h"
#include "firn/ops/index.h"
#include "kernels/copy.h"
#include "ops/common.h"
#include "ops/gradient/again.h"
#include "ops/index/positions.h"

namespace firn {

using namespace ops;

namespace {

/// A row-major tensor as a matrix [n, rest]; [1, 1] for a scalar.
Tensor as_rows(const Tensor& x, std::int64_t n) {
  const std::int64_t d = n > 0 ? x.numel() / n : 0;
  return x.as_strided({n, d}, {d, 1});
}

Tensor as_list(const Tensor& x) { return x.as_strided({x.numel()}, {1}); }

/// A 1-D index viewed with `shape`: repeated without a copy along all axes but `axis`.
ConstView along(const Tensor& index, const Shape& shape, int axis) {
  ConstView v = index.view();
  v.shape = shape;
  v.strides = Dims::filled(shape.size(), 0);
  v.strides[axis] = index.strides()[0];
  return v;
}

}  // namespace

Tensor ops::take_along(const char* op, const Tensor& x, int axis, const Tensor& index) {
  Tensor y = empty(index.shape(), x.dtype(), x.device());
  kernels::gather(op, x.view(), index.view(), y.mutable_view(), axis, stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"axis", axis}, {"index", &index}});
  const auto backward = [op, axis](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::gather_backward(op, b.grad().view(), b.saved(0).view(), dx.mutable_view(), axis, beta,
                             b.stream());
  };
  return record(op, y, {&x}, {Saved::other(index)}, with_again(backward, [axis](GraphBackward& b) {
                  const Tensor none = zeros(b.input_shape(0), b.grad().dtype(), b.grad().device());
                  b.add(0, scatter_add(none, axis, b.saved(0), b.grad()));
                }));
}

namespace {

/// Row `padding` keeps the gradient that it has; -1: there is no such row.
Tensor embedding_of(const Tensor& table, const Tensor& index, std::int64_t padding) {
  require_index("embedding", index);
  require_same_device("embedding", table, index);
  FIRN_CHECK(table.rank() >= 1, "embedding", "the first axis counts the rows",
             "the table {} has no axes", describe(table));
  require_rank("embedding", index.rank() + table.rank() - 1, table, index);
  const Tensor rows = contiguous(table);
  const Tensor list = contiguous(index);
  Shape shape = index.shape();
  for (int i = 1; i < table.rank(); ++i) shape.push_back(table.shape()[i]);
  Tensor y = empty(shape, table.dtype(), table.device());
  kernels::take_rows("embedding", as_rows(rows, rows.size(0)).view(), as_list(list).view(),
                     as_rows(y, list.numel()).mutable_view(), stream_of(table));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("embedding", {{"index", &index}});
  const auto backward = [padding](Backward& b) {
    const Tensor dy = contiguous(b.grad());
    const auto [dx, beta] = b.sink(0);
    Tensor row, before;
    if (padding >= 0) {
      const std::int64_t d = dx.numel() / dx.size(0);
      row = dx.as_strided({d}, {1}, padding * d);
      const OwnerScope owner(Owner::workspace);
      before = beta == 0 ? zeros({d}, dx.dtype(), dx.device()) : clone(row);
    }
    kernels::add_rows("embedding", as_rows(dy, b.saved(0).numel()).view(),
                      as_list(b.saved(0)).view(), as_rows(dx, dx.size(0)).mutable_view(), beta,
                      b.stream());
    if (padding >= 0) kernels::copy(before.view(), row.mutable_view(), b.stream());
  };
  return record("embedding", y, {&rows}, {Saved::other(list)},
                with_again(backward, [padding](GraphBackward& b) {
                  const Shape& table_shape = b.input_shape(0);
                  const Tensor flat = reshape(b.saved(0), {b.saved(0).numel()});
                  Shape taken = table_shape;
                  taken[0] = flat.numel();
                  const Tensor none = zeros(table_shape, b.grad().dtype(), b.grad().device());
                  Tensor rows_of = reshape(b.grad(), {flat.numel(), -1});
                  if (padding >= 0)
                    rows_of =
                        where(unsqueeze(ne(flat, static_cast<double>(padding)), 1), rows_of, 0.0);
                  b.add(0, index_add(none, 0, flat, reshape(rows_of, taken)));
                }));
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& index) {
  require_defined("embedding", table);
  return embedding_of(table, index, -1);
}

Tensor embedding(const Tensor& table, const Tensor& index, std::int64_t padding_idx) {
  require_defined("embedding", table);
  FIRN_CHECK(table.rank() >= 1 && padding_idx >= -table.size(0) && padding_idx < table.size(0),
             "embedding", "it is one of the rows", "padding_idx is {} of the table {}", padding_idx,
             describe(table));
  return embedding_of(table, index, padding_idx < 0 ? padding_idx + table.size(0) : padding_idx);
}

Tensor index_select(const Tensor& x, std::int64_t axis, const Tensor& index) {
  require_defined("index_select", x);
  require_index("index_select", index);
  require_same_device("index_select", x, index);
  FIRN_CHECK(index.rank() <= 1, "index_select", "flatten the index", "the index is 1-D, got {}",
             describe(index));
  if (x.rank() == 0) {
    FIRN_CHECK(index.numel() == 1, "index_select", "unsqueeze x",
               "one element is taken from a scalar, and the index is {}", describe(index));
    return squeeze(index_select(unsqueeze(x, 0), axis, index), 0);
  }
  if (index.rank() == 0) return index_select(x, axis, unsqueeze(index, 0));
  const int a = normalize_axis("index_select", axis, x.rank());
  Shape shape = x.shape();
  shape[a] = index.numel();
  Tensor y = empty(shape, x.dtype(), x.device());
  kernels::gather("index_select", x.view(), along(index, shape, a), y.mutable_view(), a,
                  stream_of(x));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("index_select", {{"axis", a}, {"index", &index}});
  const auto backward = [a](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::gather_backward("index_select", b.grad().view(),
                             along(b.saved(0), b.grad().shape(), a), dx.mutable_view(), a, beta,
                             b.stream());
  };
  return record("index_select", y, {&x}, {Saved::other(index)},
                with_again(backward, [a](GraphBackward& b) {
                  const Tensor none = zeros(b.input_shape(0), b.grad().dtype(), b.grad().device());
                  b.add(0, index_add(none, a, b.saved(0), b.grad()));
                }));
}

Tensor gather(const Tensor& x, std::int64_t axis, const Tensor& index) {
  require_defined("gather", x);
  require_index("gather", index);
  require_same_device("gather", x, index);
  if (x.rank() <= 1 && index.rank() <= 1 && x.rank() + index.rank() < 2) {
    const auto list = [](const Tensor& t) { return t.rank() == 0 ? unsqueeze(t, 0) : t; };
    const Tensor y = gather(list(x), axis, list(index));
    return index.rank() == 0 ? squeeze(y, 0) : y;
  }
  const int a = normalize_axis("gather", axis, x.rank());
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == a || index.shape()[i] <= x.shape()[i];
  FIRN_CHECK(fits, "gather", "unsqueeze or slice the index",
             "the index has x's rank and, off axis {}, sizes at most x's: x {}, index {}", a,
             describe(x), describe(index));
  return take_along("gather", x, a, index);
}

Tensor one_hot(const Tensor& index, std::int64_t classes, DType dtype) {
  require_index("one_hot", index);
  FIRN_CHECK(classes > 0, "one_hot", "give the number of classes", "classes is {}", classes);
  require_rank("one_hot", index.rank() + 1, index);
  const Tensor list = contiguous(index);
  Shape shape = index.shape();
  shape.push_back(classes);
  checked_elements("one_hot", shape);
  Tensor y = empty(shape, dtype, index.device());
  kernels::one_hot("one_hot", as_list(list).view(), as_rows(y, list.numel()).mutable_view(),
                   stream_of(index));
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("one_hot", {{"classes", classes}, {"index", &index}});
  autograd::unrecorded("one_hot", y, {});
  return y;
}

}  // namespace firn
