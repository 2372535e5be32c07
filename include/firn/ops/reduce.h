// Reductions, statistics, and scans along an axis.
#pragma once

#include <concepts>
#include <cstdint>

#include "firn/ops/sort.h"
#include "firn/tensor.h"

namespace firn {

// ---- Reductions over `axes`: a list or one number; empty: all. Reduced axes are removed, or kept
// with size 1 if `keepdims` is set ----
/// The sum; integers give i64.
Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdims = false);
/// The sum divided by the number of elements, NaN if there are none; floating dtypes.
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keepdims = false);
/// Largest / smallest; NaN propagates; ties share the gradient evenly. Throws on an empty
/// reduction. max_with_indices() of reduce.h also says where.
Tensor max(const Tensor& x, const Axes& axes = {}, bool keepdims = false);
Tensor min(const Tensor& x, const Axes& axes = {}, bool keepdims = false);
/// Position (i64) of the first largest element along one axis; no gradient.
Tensor argmax(const Tensor& x, std::int64_t axis = -1, bool keepdims = false);
/// Variance with divisor max(0, n - correction). If that is 0, the value is inf, or NaN if all
/// elements are equal. Its gradient is then PyTorch's: over all axes inf, or NaN at the mean; over
/// a list of axes 2 dy (x - mean) / (n - correction).
Tensor var(const Tensor& x, const Axes& axes = {}, std::int64_t correction = 1,
           bool keepdims = false);
/// Euclidean norm; derivative 0 if the norm is 0.
Tensor norm(const Tensor& x, const Axes& axes = {}, bool keepdims = false);

/// Reject a bool in place of a number or a number in place of a bool, as PyTorch's order has.
Tensor argmax(const Tensor&, std::same_as<bool> auto) = delete;         // argmax(x, axis, keepdims)
Tensor sum(const Tensor&, const Axes&, detail::ANumber auto) = delete;  // sum(x, {0, 1}, true)
Tensor mean(const Tensor&, const Axes&, detail::ANumber auto) = delete;  // mean(x, {0, 1}, true)
Tensor max(const Tensor&, const Axes&, detail::ANumber auto) = delete;   // max(x, {0, 1}, true)
Tensor min(const Tensor&, const Axes&, detail::ANumber auto) = delete;   // min(x, {0, 1}, true)
Tensor norm(const Tensor&,  // norm(x, axes): it has no p
            const Axes&, detail::ANumber auto) = delete;
Tensor var(const Tensor&,  // var(x, {}, correction, keepdims)
           std::same_as<bool> auto, bool = false) = delete;
Tensor var(const Tensor&,  // var(x, axes, correction, keepdims)
           const Axes&, std::same_as<bool> auto, bool = false) = delete;

// ---- Reductions over `axes`: a list or one number; empty: all. Reduced axes are removed, or kept
// with size 1 if `keepdims` is set ----
/// The product; integers and bool give i64, which wraps around, and an empty product is 1. The
/// gradient divides by nothing, so it is exact beside zeros.
Tensor prod(const Tensor& x, const Axes& axes = {}, bool keepdims = false);
/// True if an element is not 0 (NaN is not 0): bool, but u8 for u8, as in PyTorch. False if there
/// are no elements; no gradient.
Tensor any(const Tensor& x, const Axes& axes = {}, bool keepdims = false);
/// True if no element is 0: as any(), but true if there are no elements; no gradient.
Tensor all(const Tensor& x, const Axes& axes = {}, bool keepdims = false);
/// Number of elements that are not 0 (NaN is not 0): i64; no gradient.
Tensor count_nonzero(const Tensor& x, const Axes& axes = {});
/// Position (i64) of the first smallest element along one axis; a NaN counts as the smallest. No
/// gradient. Throws Error if there are no elements along the axis.
Tensor argmin(const Tensor& x, std::int64_t axis = -1, bool keepdims = false);
/// max() and min() along one axis with the position (i64) of the first such element, as argmax()
/// and argmin() give it. The gradient goes to that position alone, as that of torch.max(x, dim)
/// does. A scalar counts as a line of one element. Throws Error if there are no elements along the
/// axis.
Sorted max_with_indices(const Tensor& x, std::int64_t axis = -1, bool keepdims = false);
Sorted min_with_indices(const Tensor& x, std::int64_t axis = -1, bool keepdims = false);
/// log(sum e^x), with the largest element taken out first; floating dtypes. -inf if there are no
/// elements.
Tensor logsumexp(const Tensor& x, const Axes& axes = {}, bool keepdims = false);
/// The root of var(): the standard deviation. Its gradient is 0 if it is 0.
Tensor std(const Tensor& x, const Axes& axes = {}, std::int64_t correction = 1,
           bool keepdims = false);

/// Results of var_mean().
struct VarMean {
  Tensor var;   ///< as var() gives it
  Tensor mean;  ///< as mean() gives it
};
/// var() and mean() of the same elements.
VarMean var_mean(const Tensor& x, const Axes& axes = {}, std::int64_t correction = 1,
                 bool keepdims = false);

/// Reject a bool in place of a number, or a number in place of a bool, as above.
Tensor prod(const Tensor&, const Axes&, detail::ANumber auto) = delete;  // prod(x, {0, 1}, true)
Tensor any(const Tensor&, const Axes&, detail::ANumber auto) = delete;   // any(x, {0, 1}, true)
Tensor all(const Tensor&, const Axes&, detail::ANumber auto) = delete;   // all(x, {0, 1}, true)
Tensor logsumexp(const Tensor&,  // logsumexp(x, {0, 1}, true)
                 const Axes&, detail::ANumber auto) = delete;
Tensor argmin(const Tensor&, std::same_as<bool> auto) = delete;  // argmin(x, axis, keepdims)
Sorted max_with_indices(const Tensor&,  // max_with_indices(x, axis, keepdims)
                        std::same_as<bool> auto) = delete;
Sorted min_with_indices(const Tensor&,  // min_with_indices(x, axis, keepdims)
                        std::same_as<bool> auto) = delete;
Tensor std(const Tensor&,  // std(x, {}, correction, keepdims)
           std::same_as<bool> auto, bool = false) = delete;
Tensor std(const Tensor&,  // std(x, axes, correction, keepdims)
           const Axes&, std::same_as<bool> auto, bool = false) = delete;
VarMean var_mean(const Tensor&,  // var_mean(x, {}, correction, keepdims)
                 std::same_as<bool> auto, bool = false) = delete;
VarMean var_mean(const Tensor&,  // var_mean(x, axes, correction, keepdims)
                 const Axes&, std::same_as<bool> auto, bool = false) = delete;

// ---- Statistics ----
/// The lower median of all elements: for an even number, the smaller of the middle two. NaN if an
/// element is NaN. Elements that equal it share the gradient evenly. Throws Error if there are no
/// elements.
Tensor median(const Tensor& x);
/// The median along `axis`, with its position. Among equal elements, the position is the one that a
/// stable sort puts in the middle (PyTorch promises none); among several NaNs, the first. The
/// gradient goes to the position. A scalar counts as a line of one element.
Sorted median(const Tensor& x, std::int64_t axis, bool keepdims = false);
Sorted median(const Tensor&, std::same_as<bool> auto) = delete;  // median(x, axis, keepdims)

/// Value of a quantile that lies between the elements a and b, at the share w of the way.
enum class Interpolation {
  linear,    ///< a + w (b - a)
  lower,     ///< a
  higher,    ///< b
  nearest,   ///< the nearer one; half way, the one of even rank
  midpoint,  ///< (a + b) / 2
};
const char* to_string(Interpolation interpolation) noexcept;

struct QuantileOptions {
  Axes axes = {};                                       ///< a list or one number; empty: all
  bool keepdims = false;                                ///< reduced axes stay, with size 1
  Interpolation interpolation = Interpolation::linear;  ///< rule between neighbours a and b
};
/// The element of rank q (n - 1) of the n sorted elements, interpolated; floating dtypes, q in [0,
/// 1]. q is rounded to f32 unless x is f64, and the rank is computed in f64, as in PyTorch. NaN if
/// an element is NaN. If both neighbours are equal the result is that value, so infinities stay.
/// The gradient goes to the two elements. Throws Error if there are no elements.
Tensor quantile(const Tensor& x, double q, const QuantileOptions& options = {});
/// The quantile for each q of a floating list (or scalar): a list gives the result a first axis of
/// its size. q takes no gradient, and the host reads it.
Tensor quantile(const Tensor& x, const Tensor& q, const QuantileOptions& options = {});

struct HistogramOptions {
  double low = 0, high = 0;  ///< the range of the bins; if equal: from the least to the largest x
  Tensor weights = {};       ///< weights of elements, of x's shape and dtype; undefined: 1 each
  bool density = false;      ///< hist is divided by its sum and by the widths of the bins
};
/// Results of histogram().
struct Histogram {
  Tensor hist;   ///< one for each bin, in x's dtype
  Tensor edges;  ///< [bins + 1], ascending, in x's dtype
};
/// Sums of weights in `bins` bins of equal width, for x of f32 or f64. A bin holds its lower edge,
/// and the last one both. Elements outside and NaNs count nowhere. If the range has no width, it is
/// widened by 1/2 on both sides; without elements it is [0, 1]. No gradient. Waits for the device
/// unless a range is given. Throws Error unless bins > 0 and the range is finite and ascending.
Histogram histogram(const Tensor& x, std::int64_t bins = 100, const HistogramOptions& options = {});
/// Takes given edges, an ascending list of x's dtype and two or more elements. It ignores low and
/// high.
Histogram histogram(const Tensor& x, const Tensor& edges, const HistogramOptions& options = {});

/// Results of unique().
struct Unique {
  Tensor values;   ///< each value once, ascending, of x's dtype
  Tensor inverse;  ///< i64 of x's shape: x is values at these positions
  Tensor counts;   ///< i64: how often each value is in x
};
/// The values of x, flattened. Each NaN is a value of its own, as in PyTorch; they are last. No
/// gradient. Waits for the device, since the values decide the shape.
Unique unique(const Tensor& x);

// ---- Scans: element i of a line along `axis` depends on the elements up to i. The result has x's
// shape; a scalar is a line of one element. Sums and products of 16-bit floats are computed in f32
// and rounded once; integers and bool give i64, which wraps around. Throws Error on an axis that
// does not exist ----
Tensor cumsum(const Tensor& x, std::int64_t axis);   ///< sums
Tensor cumprod(const Tensor& x, std::int64_t axis);  ///< products; the gradient divides by nothing
/// Logarithms of sums of e^x, without overflow; floating dtypes. The gradient is computed from
/// ratios of at most 1.
Tensor logcumsumexp(const Tensor& x, std::int64_t axis);
/// The largest element so far and its position, the last one of equal elements. NaN is larger than
/// all numbers. The gradient goes to the positions.
Sorted cummax(const Tensor& x, std::int64_t axis);
Sorted cummin(const Tensor& x, std::int64_t axis);  ///< cummax() of the smallest; NaN is least

// ---- Sums and differences ----
/// The sum of a matrix's main diagonal, a scalar.
Tensor trace(const Tensor& x);
/// x[1:] - x[:-1] along `axis`, `times` over: each makes the axis one shorter, down to 0. Bools are
/// not numbers.
Tensor diff(const Tensor& x, std::int64_t times = 1, std::int64_t axis = -1);
/// sum() and mean() of the elements that are not NaN; floating dtypes. A NaN gets no gradient.
/// Where all are NaN the sum is 0 and the mean NaN.
Tensor nansum(const Tensor& x, const Axes& axes = {}, bool keepdims = false);
Tensor nanmean(const Tensor& x, const Axes& axes = {}, bool keepdims = false);
Tensor nansum(const Tensor&,  // nansum(x, {0, 1}, true)
              const Axes&, detail::ANumber auto) = delete;
Tensor nanmean(const Tensor&,  // nanmean(x, {0, 1}, true)
               const Axes&, detail::ANumber auto) = delete;
/// The integral along `axis` by the trapezoidal rule, of samples at distances `step`, or at x,
/// which is a list or broadcasts to y's shape. Floating dtypes.
Tensor trapezoid(const Tensor& y, double step = 1, std::int64_t axis = -1);
Tensor trapezoid(const Tensor& y, const Tensor& x, std::int64_t axis = -1);
/// The covariances of n variables from x [n, observations], as [n, n]. For one variable, or a list,
/// it is the variance, a scalar. The divisor is observations - correction. Floating dtypes.
Tensor cov(const Tensor& x, std::int64_t correction = 1);
Tensor cov(const Tensor&, std::same_as<bool> auto) = delete;  // cov(x, correction)
/// The correlations, in [-1, 1]: cov() over the product of both standard deviations.
Tensor corrcoef(const Tensor& x);

}  // namespace firn
