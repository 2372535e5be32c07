// Sorts, finds the largest elements, and counts integers. One kernel finds positions in order;
// values are gathered by them. Autocast keeps dtypes.
#include "firn/ops/sort.h"

#include "base/checked.h"
#include "firn/thread_context.h"
#include "kernels/index.h"
#include "kernels/sort.h"
#include "ops/reduce/reduction.h"

namespace firn {

using namespace ops;

namespace {

/// Positions of the first k elements of each line.
Tensor first_positions(const Tensor& x, std::int64_t k, int axis, bool descending) {
  Shape shape = x.shape();
  shape[axis] = k;
  Tensor indices = empty(shape, i64, x.device());
  kernels::sort_positions(x.view(), indices.mutable_view(), axis, descending, stream_of(x));
  return indices;
}

Sorted picked(const char* op, const Tensor& x, const Tensor& lines, int axis, bool largest,
              Tensor indices) {
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes(op, {{"largest", largest}});
  Tensor values = take_along(op, lines, axis, indices);
  if (x.rank() == 0 && indices.numel() == 1) {
    values = squeeze(values, 0);
    indices = squeeze(indices, 0);
  }
  return {values, indices};
}

}  // namespace

Sorted sort(const Tensor& x, std::int64_t axis, const SortOptions& options) {
  const int a = line_axis("sort", x, axis);
  const Tensor lines = as_lines(x);
  return picked("sort", x, lines, a, options.descending,
                first_positions(lines, lines.size(a), a, options.descending));
}

Tensor argsort(const Tensor& x, std::int64_t axis, const SortOptions& options) {
  const int a = line_axis("argsort", x, axis);
  const Tensor lines = as_lines(x.detach());
  const Tensor indices = first_positions(lines, lines.size(a), a, options.descending);
  if (autograd::wants_attributes()) [[unlikely]]
    autograd::attributes("argsort", {{"axis", a}, {"largest", options.descending}});
  autograd::unrecorded("argsort", indices, {&x});
  return x.rank() == 0 ? squeeze(indices, 0) : indices;
}

Sorted topk(const Tensor& x, std::int64_t k, std::int64_t axis, const TopkOptions& options) {
  const int a = line_axis("topk", x, axis);
  const Tensor lines = as_lines(x);
  FIRN_CHECK(k >= 0 && k <= lines.size(a), "topk", "k is at most the size of the axis",
             "k = {} of {} along axis {}", k, describe(x), a);
  Tensor indices = first_positions(lines, k, a, options.largest);
  if (!options.sorted) {
    if (autograd::wants_attributes()) [[unlikely]]
      thread_context.attributes->cannot_repeat(
          "topk", "{.sorted = false} orders elements by their positions", "leave .sorted on");
    indices = take_along("topk", indices, a, first_positions(indices, k, a, false));
  }
  return picked("topk", x, lines, a, options.largest, indices);
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  constexpr const char* kOp = "searchsorted";
  require_same(kOp, sorted, values, false);
  require_computed(kOp, values);
  const bool list = sorted.rank() == 1;
  bool fits = list || (sorted.rank() > 1 && sorted.rank() == values.rank());
  for (int i = 0; fits && !list && i + 1 < sorted.rank(); ++i)
    fits = sorted.size(i) == values.size(i);
  FIRN_CHECK(fits, kOp, "a list, or a line for each line of values", "sorted {} for values {}",
             describe(sorted), describe(values));
  const auto rows = [&](const Tensor& t, bool one) {
    const std::int64_t n = one ? t.numel() : t.size(t.rank() - 1);
    return contiguous(t.detach()).as_strided({one || n == 0 ? 1 : t.numel() / n, n}, {n, 1});
  };
  Tensor out = empty(values.shape(), i64, values.device());
  if (out.numel() > 0)
    kernels::find_places(rows(sorted, list || sorted.numel() == 0).view(),
                         rows(values, list).view(), rows(out, list).mutable_view(), right,
                         stream_of(values));
  autograd::unrecorded(kOp, out, {&values});
  return out;
}

Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right) try {
  require_defined("bucketize", boundaries);
  FIRN_CHECK(boundaries.rank() == 1, "bucketize", "searchsorted() takes lines",
             "the boundaries {} are no list", describe(boundaries));
  return searchsorted(boundaries, x, right);
}
FIRN_AS_OP("bucketize")

Tensor bincount(const Tensor& x, const BincountOptions& options) {
  require_index("bincount", x, true);
  FIRN_CHECK(x.rank() == 1, "bincount", "flatten it: x.flatten()", "a list is wanted, got {}",
             describe(x));
  FIRN_CHECK(options.min_length >= 0, "bincount", "0 sets no least size", "min_length = {}",
             options.min_length);
  const Tensor& w = options.weights;
  if (w.defined())
    FIRN_CHECK(w.shape() == x.shape() && w.device() == x.device(), "bincount",
               "one weight for each element, on the same device", "weights {} for {}", describe(w),
               describe(x));
  std::int64_t size = options.min_length;
  if (x.numel() > 0) {
    const auto ends = stack({min(x), max(x)}).to_vector<std::int64_t>();
    FIRN_CHECK(ends[0] >= 0, "bincount", "subtract the least element first",
               "elements are 0 or more, got {} in {}", ends[0], describe(x));
    FIRN_CHECK(ends[1] < kMaxElements, "bincount", "sort() and compare neighbours instead",
               "the element {} in {} asks for too many counts", ends[1], describe(x));
    size = std::max(size, ends[1] + 1);
  }
  checked_elements("bincount", {size});
  const Tensor list = x.dtype() == u8 ? cast(x, i64) : x;
  if (!w.defined()) {
    Tensor counts = empty({size}, i64, x.device());
    kernels::count("bincount", list.view(), counts.mutable_view(), stream_of(x));
    if (autograd::wants_attributes()) [[unlikely]]
      autograd::attributes("bincount", {{"index", &x}});
    autograd::unrecorded("bincount", counts, {});
    return counts;
  }
  const NoGrad guard;
  const Tensor terms = is_floating(w.dtype()) ? w : cast(w, f64);
  Tensor sums = empty({size, 1}, terms.dtype(), x.device());
  kernels::add_rows("bincount", unsqueeze(terms, 1).view(), list.view(), sums.mutable_view(), 0,
                    stream_of(x));
  autograd::unrecorded("bincount", sums, {&w});
  return squeeze(sums, 1);
}

}  // namespace firn
