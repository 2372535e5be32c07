// Reading and writing at positions on several axes at once: the positions are combined into one
// index over the indexed axes, which are merged.
#include "firn/ops/index.h"
#include "kernels/index.h"
#include "ops/common.h"
#include "ops/index/positions.h"

namespace firn {

using namespace ops;

namespace {

/// The axes of x that have an index, and the shape to which the indices broadcast.
struct Indexed {
  Axes axes, others;
  Shape shape;

  Indexed(const char* op, const Tensor& x, const std::vector<Tensor>& indices) {
    FIRN_CHECK(static_cast<int>(indices.size()) <= x.rank(), op,
               x.rank() == 0 ? "a scalar has no axis: unsqueeze() it"
                             : "one index for each axis; a mask stands for all of its axes",
               "the indices are for {} axes, and x is {}", indices.size(), describe(x));
    for (int i = 0; i < x.rank(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (at >= indices.size() || !indices[at].defined()) {
        others.push_back(i);
        continue;
      }
      require_index(op, indices[at]);
      require_same_device(op, x, indices[at]);
      shape = axes.empty() ? indices[at].shape() : broadcast_shapes(op, shape, indices[at].shape());
      axes.push_back(i);
    }
    FIRN_CHECK(!axes.empty(), op,
               std::string_view(op) == "index" ? "x itself has all elements"
                                               : "x itself has all elements; copy_() writes them",
               "no index is given for {}", describe(x));
  }
  /// Returns the number of axes before those of the indices in the written elements.
  int before() const {
    const bool adjacent = axes[axes.size() - 1] - axes[0] + 1 == axes.size();
    return adjacent ? static_cast<int>(axes[0]) : 0;
  }
};

/// Returns the flat positions on the merged axes. gather() checks each index against its own axis.
Tensor merged_positions(const char* op, const Tensor& x, const std::vector<Tensor>& indices,
                        const Indexed& in) {
  Tensor sum;
  std::int64_t step = 1;
  for (int k = in.axes.size() - 1; k >= 0; --k) {
    const Tensor& index = indices[static_cast<std::size_t>(in.axes[k])];
    const std::int64_t n = x.size(static_cast<int>(in.axes[k]));
    const Tensor places = arange(n, {.step = static_cast<double>(step), .device = x.device()});
    const Tensor list = flatten(index), own = empty(list.shape(), i64, x.device());
    kernels::gather(op, places.view(), list.view(), own.mutable_view(), 0, stream_of(x));
    const Tensor there = expand(reshape(own, index.shape()), in.shape);
    sum = sum.defined() ? sum + there : there;
    step *= n;
  }
  return flatten(sum);
}

/// Writes or adds values [positions, rest] to `rows` [places, rest] at `at`.
Tensor write(const char* op, const Tensor& rows, const Tensor& at, const Tensor& values,
             bool accumulate) {
  const Placed placed = slices_at(op, rows, 0, at, values);
  const auto put = accumulate ? add_at : put_at;
  return put(op, placed.x, placed.index, placed.src, 0);
}

/// Throws unless the mask has the sizes of x's axes from `first` on.
void require_mask(const char* op, const Tensor& x, const Tensor& mask, int first) {
  require_same_device(op, x, mask);
  bool fits = mask.rank() >= 1 && first + mask.rank() <= x.rank();
  for (int i = 0; fits && i < mask.rank(); ++i) fits = mask.size(i) == x.size(first + i);
  FIRN_CHECK(fits, op, "a mask has the sizes of the axes that it stands for",
             "mask {} from axis {} on of {}", describe(mask), first, describe(x));
}

/// Returns the indices as positions, one tensor for each axis; a mask has one for each of its axes.
std::vector<Tensor> positions(const char* op, const Tensor& x, const IndexList& indices) {
  std::vector<Tensor> result;
  for (const Index& index : indices.indices()) {
    const int axis = static_cast<int>(result.size());
    // The error for too many indices covers all of them.
    const Tensor at = index.on(op, x.device(), axis < x.rank() ? x.size(axis) : INT64_MAX);
    if (!at.defined() || at.dtype() != DType::boolean) {
      result.push_back(at);
      continue;
    }
    require_mask(op, x, at, axis);
    const Tensor held = nonzero(at);
    for (int i = 0; i < at.rank(); ++i) result.push_back(select(held, 1, i));
  }
  return result;
}

/// Writes one number where a mask over the first axes holds, without waiting for the device.
Tensor put_number(const Tensor& x, const Tensor& mask, const Tensor& number, bool accumulate) {
  Shape shape = mask.shape();
  for (int i = mask.rank(); i < x.rank(); ++i) shape.push_back(1);
  const Tensor held = reshape(mask, shape), value = reshape(number, {});
  return where(held, accumulate ? x + value : expand(value, x.shape()), x);
}

/// Layout of a read or a write: the indexed axes come first and are merged, then the others.
struct Arrangement {
  Indexed in;
  int before;               ///< axes of the result before those of the indices
  Axes order;               ///< order of x's axes: the indexed axes first
  Shape merged, rest;       ///< shapes in that order: [places, other elements]; other axes
  Shape whole;              ///< shape of the elements that are read or written
  Axes to_front, to_place;  ///< the axes of the indices, in `whole`, to the front and back
  Tensor at;                ///< the flat positions

  Arrangement(const char* op, const Tensor& x, const IndexList& list)
      : Arrangement(op, x, positions(op, x, list)) {}
  Arrangement(const char* op, const Tensor& x, const std::vector<Tensor>& indices)
      : in(op, x, indices), before(in.before()), order(in.axes), merged{1, 1} {
    for (const std::int64_t a : in.axes) merged[0] *= x.size(static_cast<int>(a));
    for (const std::int64_t a : in.others) {
      const std::int64_t n = x.size(static_cast<int>(a));
      order.push_back(a);
      rest.push_back(n);
      merged[1] *= n;
      if (a < before) whole.push_back(n);
    }
    for (const std::int64_t n : in.shape) whole.push_back(n);
    for (int i = before; i < rest.size(); ++i) whole.push_back(rest[i]);
    require_rank(op, whole.size(), x);
    const int indexed = in.shape.size();
    for (int i = 0; i < indexed; ++i) to_front.push_back(before + i);
    for (int i = 0; i < whole.size(); ++i) {
      if (i < before || i >= before + indexed) to_front.push_back(i);
      to_place.push_back(i < before ? indexed + i : i < before + indexed ? i - before : i);
    }
    at = merged_positions(op, x, indices, in);
  }
  Tensor rows_of(const Tensor& x) const { return reshape(permute(x, order), merged); }
  /// Returns `rows`, which rows_of(x) made, as x.
  Tensor back(const Tensor& rows, const Tensor& x) const {
    Axes axes = Dims::filled(x.rank(), 0);
    Shape shape;
    for (int i = 0; i < x.rank(); ++i) {
      axes[static_cast<int>(order[i])] = i;
      shape.push_back(x.size(static_cast<int>(order[i])));
    }
    return permute(reshape(rows, shape), axes);
  }
};

}  // namespace

IndexList::IndexList(std::initializer_list<Index> indices) : indices_(indices) {}
IndexList::IndexList(const std::vector<Tensor>& indices)
    : indices_(indices.begin(), indices.end()) {}
IndexList::IndexList(std::vector<Index> indices) : indices_(std::move(indices)) {}

Tensor Index::on(const char* op, Device device, std::int64_t size) const {
  if (!number_) return positions_;
  FIRN_CHECK(*number_ >= -size && *number_ < size, op, "indices count from 0, or from -1 backwards",
             "index {} on an axis of {}", *number_, size);
  const std::int64_t number = *number_ < 0 ? *number_ + size : *number_;
  return full({}, static_cast<double>(number), i64, device);
}

Tensor index(const Tensor& x, const IndexList& list) {
  constexpr const char* kOp = "index";
  require_defined(kOp, x);
  const Arrangement a(kOp, x, list);
  Shape shape = a.in.shape;
  for (const std::int64_t n : a.rest) shape.push_back(n);
  return permute(reshape(index_select(a.rows_of(x), 0, a.at), shape), a.to_place);
}

Tensor index_put(const Tensor& x, const IndexList& list, const Tensor& values, bool accumulate) {
  constexpr const char* kOp = "index_put";
  require_computed(kOp, x);
  require_same(kOp, x, values, false);
  if (accumulate) require_numbers(kOp, x);
  if (list.indices().size() == 1 && values.numel() == 1 && x.rank() > 0) {
    const Tensor mask = list.indices()[0].on(kOp, x.device(), x.size(0));
    if (mask.defined() && mask.dtype() == DType::boolean) {
      require_mask(kOp, x, mask, 0);
      return put_number(x, mask, values, accumulate);
    }
  }
  const Arrangement a(kOp, x, list);
  FIRN_CHECK(broadcasts_to(values.shape(), a.whole), kOp, "the values broadcast to what is written",
             "values {} for {}: expected shape {}", describe(values), describe(x), a.whole);
  const Tensor lines =
      reshape(permute(expand(values, a.whole), a.to_front), {a.at.numel(), a.merged[1]});
  return a.back(write(kOp, a.rows_of(x), a.at, lines, accumulate), x);
}

Tensor index_put(const Tensor& x, const IndexList& list, double value, bool accumulate) {
  require_computed("index_put", x);
  require_holds("index_put", x.dtype(), value);
  return index_put(x, list, full({}, value, x.dtype(), x.device()), accumulate);
}

}  // namespace firn
