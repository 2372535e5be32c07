// Medians, quantiles, histograms and distinct values. All sort, or search a sorted list. Autocast
// keeps dtypes.
#include <cmath>
#include <limits>

#include "firn/ops/reduce.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/index.h"
#include "kernels/reduce.h"
#include "kernels/scan.h"
#include "kernels/sort.h"
#include "ops/reduce/reduction.h"

namespace firn {

using namespace ops;

namespace {

/// Returns x's elements as a list without gaps, not recorded: a view if that is possible.
Tensor as_list(const Tensor& x) {
  if (x.is_contiguous()) return x.as_strided({x.numel()}, {1});
  const Tensor dense = empty(x.shape(), x.dtype(), x.device());
  kernels::copy(x.view(), dense.mutable_view(), stream_of(x));
  return dense.as_strided({x.numel()}, {1});
}

/// Positions of the lower median of each line: i64, with size 1 at `axis`. Lines have elements.
Tensor median_positions(const char* op, const Tensor& x, int axis) {
  const Stream stream = stream_of(x);
  const std::int64_t middle = (x.size(axis) - 1) / 2;
  Shape shape = x.shape();
  shape[axis] = middle + 1;
  const Tensor sorted = empty(shape, i64, x.device());
  kernels::sort_positions(x.view(), sorted.mutable_view(), axis, false, stream);
  const Tensor median = part(sorted, axis, middle, 1);
  if (!is_floating(x.dtype())) return median;
  // The first NaN, if there is one: to argmax() it is the largest.
  shape[axis] = 1;
  const Tensor largest = empty(shape, i64, x.device());
  const Tensor value = empty(shape, x.dtype(), x.device());
  const Tensor is_nan = empty(shape, boolean, x.device());
  const Tensor out = empty(shape, i64, x.device());
  kernels::argmax(x.view(), largest.mutable_view(), axis, stream);
  kernels::gather(op, x.view(), largest.view(), value.mutable_view(), axis, stream);
  kernels::binary(math::BinaryOp::ne, value.view(), value.view(), is_nan.mutable_view(),
                  math::Args{}, stream);
  kernels::where(is_nan.view(), largest.view(), median.view(), out.mutable_view(), 0, stream);
  return out;
}

bool interpolates(Interpolation how) {
  return how == Interpolation::linear || how == Interpolation::midpoint;
}

/// The ranks of quantiles in n sorted elements: result = base + slope (upper - lower).
struct Ranks {
  std::vector<std::int64_t> lower, upper, base;
  std::vector<double> slope;

  void add(double q, std::int64_t n, Interpolation interpolation) {
    const double rank = q * static_cast<double>(n - 1);
    const auto whole = [](double r) { return static_cast<std::int64_t>(r); };
    const std::int64_t a = whole(std::floor(rank)), b = whole(std::ceil(rank));
    double weight = rank - std::floor(rank);
    std::int64_t chosen = a;
    if (interpolation == Interpolation::midpoint) weight = 0.5;
    if (interpolation == Interpolation::higher) chosen = b;
    if (interpolation == Interpolation::nearest) chosen = whole(std::nearbyint(rank));
    const bool between = interpolates(interpolation);
    // These are computed from the nearer end, as torch.lerp() does.
    const bool from_upper = between && weight >= 0.5;
    lower.push_back(a);
    upper.push_back(b);
    base.push_back(from_upper ? b : chosen);
    slope.push_back(!between ? 0 : from_upper ? weight - 1 : weight);
  }
};

Tensor quantiles(const Tensor& operand, const std::vector<double>& q, bool list,
                 const QuantileOptions& options) {
  require_floating("quantile", operand);
  require_named("quantile", "Interpolation", options.interpolation, Interpolation::midpoint);
  const Reduction r("quantile", operand, options.axes, options.keepdims);
  r.require_elements("quantile", operand);
  Ranks ranks;
  for (const double value : q) {
    FIRN_CHECK(value >= 0 && value <= 1, "quantile", "0.5 is the median", "q = {} is not in [0, 1]",
               value);
    // PyTorch holds q in x's dtype, and computes ranks in f64.
    ranks.add(operand.dtype() == f64 ? value : static_cast<float>(value), r.count,
              options.interpolation);
  }
  const Tensor x = cast(operand, compute_dtype(operand.dtype()));  // one rounding to 16 bits
  const Tensor sorted = sort(r.lines(x)).values;
  const auto many = static_cast<std::int64_t>(q.size());
  const auto at = [&](const std::vector<std::int64_t>& positions) {
    return index_select(sorted, -1, tensor(positions, {many}, x.device()));
  };
  Tensor y = at(ranks.base);
  if (interpolates(options.interpolation)) {
    const Tensor step = at(ranks.upper) - at(ranks.lower);
    // inf - inf is NaN: equal infinities have nothing between them.
    y = y +
        cast(tensor(ranks.slope, {many}, x.device()), x.dtype()) * where(eq(step, step), step, 0.0);
  }
  const Tensor last = slice(sorted, -1, r.count - 1, r.count);
  y = where(eq(last, last), y, last);  // NaN if an element is
  Shape shape = r.shape;
  if (list) {
    Axes order = {y.rank() - 1};
    for (int i = 0; i + 1 < y.rank(); ++i) order.push_back(i);
    y = permute(y, order);
    shape.insert(0, many);
  }
  return cast(reshape(y, shape), operand.dtype());
}

/// Returns the sums in the bins of ascending edges.
Histogram counted(const Tensor& x, const Tensor& edges, const HistogramOptions& options) {
  const Tensor& w = options.weights;
  if (w.defined())
    FIRN_CHECK(w.shape() == x.shape() && w.dtype() == x.dtype() && w.device() == x.device(),
               "histogram", "one weight for each element, of its dtype and device",
               "weights {} for {}", describe(w), describe(x));
  const NoGrad guard;
  const Stream stream = stream_of(x);
  const std::int64_t bins = edges.numel() - 1;
  const Tensor list = as_list(x);
  const Tensor places = empty({x.numel()}, i64, x.device());
  kernels::find_bins(list.view(), edges.view(), places.mutable_view(), stream);
  // Elements in no bin are counted in one more.
  const Tensor sums = empty({bins + 1}, w.defined() ? x.dtype() : i64, x.device());
  if (w.defined()) {
    kernels::add_rows("histogram", as_list(w).as_strided({x.numel(), 1}, {1, 1}).view(),
                      places.view(), sums.as_strided({bins + 1, 1}, {1, 1}).mutable_view(), 0,
                      stream);
  } else {
    kernels::count("histogram", places.view(), sums.mutable_view(), stream);
  }
  Tensor hist = empty({bins}, x.dtype(), x.device());
  kernels::copy(part(sums, 0, 0, bins).view(), hist.mutable_view(), stream);
  if (options.density) {
    const Tensor widths = part(edges, 0, 1, bins) - part(edges, 0, 0, bins);
    hist = hist / (widths * sum(hist));
  }
  autograd::unrecorded("histogram", hist, {&x});
  autograd::unrecorded("histogram", edges, {&x});
  return {hist, edges};
}

void require_histogram(const Tensor& x) {
  require_defined("histogram", x);
  FIRN_CHECK(x.dtype() == f32 || x.dtype() == f64, "histogram", "cast it: x.to(firn::f32)",
             "needs f32 or f64, got {}", describe(x));
}

}  // namespace

Tensor median(const Tensor& x) {
  require_computed("median", x);
  const Reduction r("median", x, {}, false);
  r.require_elements("median", x);
  const Tensor list = as_list(x);
  const Tensor at = median_positions("median", list, 0);
  Tensor y = empty({}, x.dtype(), x.device());
  kernels::gather("median", list.view(), at.view(), lines_of(y).mutable_view(), 0, stream_of(x));
  return record("median", y, {&x}, {Saved::input(0), Saved::output()}, [r](Backward& b) {
    const auto [dx, beta] = b.sink(0);
    kernels::extremum_backward(r.restore(b.grad()).view(), b.saved(0).view(),
                               r.restore(b.saved(1)).view(), dx.mutable_view(), beta, b.stream());
  });
}

Sorted median(const Tensor& x, std::int64_t axis, bool keepdims) {
  const int a = line_axis("median", x, axis);
  const Tensor lines = as_lines(x);
  FIRN_CHECK(lines.size(a) > 0, "median", "check that the tensor is not empty",
             "nothing to compare: {} has no elements along axis {}", describe(x), a);
  Tensor indices = median_positions("median", lines, a);
  Tensor values = take_along("median", lines, a, indices);
  if (x.rank() == 0 || !keepdims) {
    values = squeeze(values, a);
    indices = squeeze(indices, a);
  }
  return {values, indices};
}

const char* to_string(Interpolation interpolation) noexcept {
  constexpr const char* names[] = {"linear", "lower", "higher", "nearest", "midpoint"};
  const auto number = static_cast<std::size_t>(interpolation);
  return number < std::size(names) ? names[number] : "unknown interpolation";
}

Tensor quantile(const Tensor& x, double q, const QuantileOptions& options) try {
  return quantiles(x, {q}, false, options);
}
FIRN_OUT_OF_MEMORY("quantile")

Tensor quantile(const Tensor& x, const Tensor& q, const QuantileOptions& options) try {
  require_floating("quantile", q);
  FIRN_CHECK(q.rank() <= 1, "quantile", "flatten it: q.flatten()",
             "q is a number or a list, got {}", describe(q));
  if (runtime::dry_run())  // by shapes alone
    return quantiles(x, std::vector<double>(static_cast<std::size_t>(q.numel())), q.rank() == 1,
                     options);
  return quantiles(x, cast(q.detach(), f64).to_vector<double>(), q.rank() == 1, options);
}
FIRN_OUT_OF_MEMORY("quantile")

Histogram histogram(const Tensor& x, std::int64_t bins, const HistogramOptions& options) try {
  require_histogram(x);
  FIRN_CHECK(bins > 0 && bins < kMaxElements, "histogram", "give the number of bins", "bins = {}",
             bins);
  double low = options.low, high = options.high;
  if (low == high && (x.numel() == 0 || runtime::dry_run())) {
    low = 0;
    high = 1;
  } else if (low == high) {
    const NoGrad guard;
    const auto ends = cast(stack({min(x), max(x)}), f64).to_vector<double>();
    low = ends[0];
    high = ends[1];
  }
  FIRN_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, "histogram",
             "give the range as low and high", "the range [{}, {}] of {} is not finite or descends",
             low, high, describe(x));
  if (low == high) {
    low -= 0.5;
    high += 0.5;
  }
  // Edges are computed from the nearer end, in x's dtype, as torch.linspace() does.
  const Tensor edges = empty({bins + 1}, x.dtype(), Device::cpu());
  const auto fill = [&]<class C>(C first, C last) {
    const C step = (last - first) / static_cast<C>(bins);
    C* const edge = edges.data<C>();
    for (std::int64_t i = 0; i <= bins; ++i)
      edge[i] = i < (bins + 1) / 2 ? first + step * static_cast<C>(i)
                                   : last - step * static_cast<C>(bins - i);
  };
  if (!runtime::dry_run())
    x.dtype() == f64 ? fill(low, high) : fill(static_cast<float>(low), static_cast<float>(high));
  return counted(x, to_device(edges, x.device()), options);
}
FIRN_OUT_OF_MEMORY("histogram")

Histogram histogram(const Tensor& x, const Tensor& edges, const HistogramOptions& options) {
  require_histogram(x);
  require_same("histogram", x, edges, false);
  FIRN_CHECK(edges.rank() == 1 && edges.numel() >= 2, "histogram", "n bins have n + 1 edges",
             "edges are a list of two or more numbers, got {}", describe(edges));
  if (edges.device().is_cpu() && !runtime::dry_run()) {
    const auto e = edges.detach().to_vector<double>();
    for (std::size_t i = 1; i < e.size(); ++i)
      FIRN_CHECK(e[i - 1] <= e[i], "histogram", "sort them, and leave NaN out",
                 "edges ascend, but edge {} is {} and edge {} is {}", i - 1, e[i - 1], i, e[i]);
  }
  return counted(x, as_list(edges.detach()), options);
}

Unique unique(const Tensor& x) {
  require_computed("unique", x);
  const Stream stream = stream_of(x);
  const std::int64_t n = x.numel();
  const Device device = x.device();
  const NoGrad guard;
  const Tensor list = as_list(x);
  const Tensor order = empty({n}, i64, device), group = empty({n}, i64, device);
  const Tensor sorted = empty({n}, x.dtype(), device), first = empty({n}, boolean, device);
  std::int64_t many = 0;
  if (n > 0) {
    kernels::sort_positions(list.view(), order.mutable_view(), 0, false, stream);
    kernels::gather("unique", list.view(), order.view(), sorted.mutable_view(), 0, stream);
    // The number of a value is the count of elements up to it that differ from the one before.
    kernels::fill(part(first, 0, 0, 1).mutable_view(), 0, stream);
    kernels::binary(math::BinaryOp::ne, part(sorted, 0, 1, n - 1).view(),
                    part(sorted, 0, 0, n - 1).view(), part(first, 0, 1, n - 1).mutable_view(),
                    math::Args{}, stream);
    kernels::scan(kernels::ScanOp::sum, first.view(), group.mutable_view(), 0, false, 0, stream);
    many = runtime::dry_run() ? n : part(group, 0, n - 1, 1).to_vector<std::int64_t>()[0] + 1;
  }
  Tensor counts = empty({many}, i64, device), values = empty({many}, x.dtype(), device);
  Tensor inverse = empty(x.shape(), i64, device);
  if (n > 0) {
    kernels::count("unique", group.view(), counts.mutable_view(), stream);
    const Tensor ends = empty({many}, i64, device), place = empty({n}, i64, device);
    kernels::scan(kernels::ScanOp::sum, counts.view(), ends.mutable_view(), 0, false, 0, stream);
    kernels::binary(math::BinaryOp::sub, ends.view(), counts.view(), ends.mutable_view(),
                    math::Args{}, stream);
    kernels::gather("unique", sorted.view(), ends.view(), values.mutable_view(), 0, stream);
    // The sorted permutation holds the place of each element.
    kernels::sort_positions(order.view(), place.mutable_view(), 0, false, stream);
    kernels::gather("unique", group.view(), place.view(),
                    inverse.as_strided({n}, {1}).mutable_view(), 0, stream);
  }
  for (const Tensor* made : {&values, &inverse, &counts})
    autograd::unrecorded("unique", *made, {&x});
  return {values, inverse, counts};
}

}  // namespace firn
