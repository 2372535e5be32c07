// Writing at positions on several axes at once: the positions are combined into one index over the
// indexed axes, which are merged.
#include "firn/ops/index.h"
#include "kernels/index.h"
#include "ops/common.h"
#include "ops/index/positions.h"

namespace firn {

using namespace ops;

namespace {

constexpr const char* kOp = "index_put";

/// The axes of x that have an index, and the shape to which the indices broadcast.
struct Indexed {
  Axes axes, others;
  Shape shape;

  Indexed(const Tensor& x, const std::vector<Tensor>& indices) {
    FIRN_CHECK(static_cast<int>(indices.size()) <= x.rank(), kOp, "one index for each axis",
               "{} indices for {}", indices.size(), describe(x));
    for (int i = 0; i < x.rank(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (at >= indices.size() || !indices[at].defined()) {
        others.push_back(i);
        continue;
      }
      require_index(kOp, indices[at]);
      require_same_device(kOp, x, indices[at]);
      shape =
          axes.empty() ? indices[at].shape() : broadcast_shapes(kOp, shape, indices[at].shape());
      axes.push_back(i);
    }
    FIRN_CHECK(!axes.empty(), kOp, "copy_() writes all elements", "no index is given for {}",
               describe(x));
  }
  /// How many axes of what is written come before those of the indices.
  int before() const {
    const bool adjacent = axes[axes.size() - 1] - axes[0] + 1 == axes.size();
    return adjacent ? static_cast<int>(axes[0]) : 0;
  }
};

/// The positions on the merged axes, flat. gather() checks each index against its own axis.
Tensor merged_positions(const Tensor& x, const std::vector<Tensor>& indices, const Indexed& in) {
  Tensor sum;
  std::int64_t step = 1;
  for (int k = in.axes.size() - 1; k >= 0; --k) {
    const Tensor& index = indices[static_cast<std::size_t>(in.axes[k])];
    const std::int64_t n = x.size(static_cast<int>(in.axes[k]));
    const Tensor places = arange(n, 0, static_cast<double>(step), i64, x.device());
    const Tensor list = flatten(index), own = empty(list.shape(), i64, x.device());
    kernels::gather(kOp, places.view(), list.view(), own.mutable_view(), 0, stream_of(x));
    const Tensor there = expand(reshape(own, index.shape()), in.shape);
    sum = sum.defined() ? sum + there : there;
    step *= n;
  }
  return flatten(sum);
}

/// `rows` [places, rest] with values [positions, rest] at `at`.
Tensor write(const Tensor& rows, const Tensor& at, const Tensor& values, bool accumulate) {
  const Placed placed = slices_at(kOp, rows, 0, at, values);
  const auto put = accumulate ? add_at : put_at;
  return put(kOp, placed.x, placed.index, placed.src, 0);
}

Tensor put_masked(const Tensor& x, const Tensor& mask, const Tensor& values, bool accumulate) {
  require_same_device(kOp, x, mask);
  bool fits = mask.rank() >= 1 && mask.rank() <= x.rank();
  for (int i = 0; fits && i < mask.rank(); ++i) fits = mask.size(i) == x.size(i);
  FIRN_CHECK(fits, kOp, "the mask has the first sizes of x", "mask {} for {}", describe(mask),
             describe(x));
  if (values.numel() == 1) {
    Shape shape = mask.shape();
    for (int i = mask.rank(); i < x.rank(); ++i) shape.push_back(1);
    const Tensor held = reshape(mask, shape), value = reshape(values, {});
    return where(held, accumulate ? x + value : expand(value, x.shape()), x);
  }
  const Tensor at = held_positions(kOp, mask);
  Shape wanted{at.numel()};
  std::int64_t rest = 1;
  for (int i = mask.rank(); i < x.rank(); ++i) wanted.push_back(x.size(i)), rest *= x.size(i);
  FIRN_CHECK(broadcast_shapes(kOp, wanted, values.shape()) == wanted, kOp,
             "one slice for each position of the mask", "values {} for {}: expected shape {}",
             describe(values), describe(x), wanted);
  const Tensor y = write(reshape(x, {mask.numel(), rest}), at,
                         reshape(expand(values, wanted), {at.numel(), rest}), accumulate);
  return reshape(y, x.shape());
}

}  // namespace

Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                 bool accumulate) {
  require_same(kOp, x, values);
  if (accumulate) require_numbers(kOp, x);
  if (indices.size() == 1 && indices[0].defined() && indices[0].dtype() == DType::boolean)
    return put_masked(x, indices[0], values, accumulate);
  const Indexed in(x, indices);
  const int before = in.before();
  // What is written: the axes before those of the indices, theirs, and the rest.
  Shape wanted, merged{1};
  Axes order = in.axes;
  std::int64_t rest = 1;
  for (const std::int64_t a : in.axes) merged[0] *= x.size(static_cast<int>(a));
  for (const std::int64_t a : in.others) {
    order.push_back(a);
    rest *= x.size(static_cast<int>(a));
    if (a < before) wanted.push_back(x.size(static_cast<int>(a)));
  }
  for (const std::int64_t n : in.shape) wanted.push_back(n);
  for (const std::int64_t a : in.others)
    if (a >= before) wanted.push_back(x.size(static_cast<int>(a)));
  require_rank(kOp, wanted.size(), x);
  FIRN_CHECK(broadcast_shapes(kOp, wanted, values.shape()) == wanted, kOp,
             "the values broadcast to what is written", "values {} for {}: expected shape {}",
             describe(values), describe(x), wanted);
  // The axes of the indices first, in x and in values.
  Axes values_order, back = Dims::filled(x.rank(), 0);
  for (int i = 0; i < in.shape.size(); ++i) values_order.push_back(before + i);
  for (int i = 0; i < wanted.size(); ++i)
    if (i < before || i >= before + in.shape.size()) values_order.push_back(i);
  for (int i = 0; i < x.rank(); ++i) back[static_cast<int>(order[i])] = i;
  const Tensor first = permute(x, order);
  merged.push_back(rest);
  const Tensor at = merged_positions(x, indices, in);
  const Tensor y =
      write(reshape(first, merged), at,
            reshape(permute(expand(values, wanted), values_order), {at.numel(), rest}), accumulate);
  return permute(reshape(y, first.shape()), back);
}

}  // namespace firn
