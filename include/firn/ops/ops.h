// Operations on tensors. Each op is recorded for backward() unless NoGrad is active or no operand
// requires a gradient. Nothing is promoted: operands of one op have the same dtype and device, or
// it throws, also for bool beside f32 (autocast.h can cast them). A C++ number takes the tensor's
// dtype, and an integer dtype must hold it: ones({2}, u8) * 300.0 throws. An op over one axis takes
// its number, one over any axes a list or a number; options call it `.axis`. Between integer
// tensors arithmetic wraps around. f16 and bf16 are computed in f32 and rounded once, unless an op
// says where else it rounds. Invalid arguments throw Error with the op, the values and a hint.
//
// Subnormal numbers: on the CPU an op takes a subnormal f32, bf16 or f64 operand as it is or as 0,
// and gives a result of that size, or an intermediate one, as 0. So log(mask + 1e-45) is -inf where
// the mask is 0: write 1e-30 instead. Copies, casts and sorting keep subnormal numbers. Those of
// f16 (below 6e-5) are ordinary numbers in f32, and stay.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "firn/ops/activation.h"
#include "firn/random.h"
#include "firn/tensor.h"

namespace firn {

// ---- Creation. Options are named, or a dtype, a device, or both (see empty in tensor.h) ----
/// Every element is `value`. Throws if the dtype cannot hold it: 0.5 as i64, 300 as u8, 1e5 as f16.
Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
Tensor full(const Shape& shape, double value, detail::ADType auto dtype,
            Device device = default_device()) {
  return full(shape, value, {.dtype = dtype, .device = device});
}
inline Tensor full(const Shape& shape, double value, Device device) {
  return full(shape, value, {.device = device});
}
/// A bool is not a dtype: without a dtype the elements would be f32.
Tensor full(const Shape&, std::same_as<bool> auto) = delete;  // full(shape, 1, boolean), or f32
/// Every element is 1.
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, detail::ADType auto dtype, Device device = default_device()) {
  return ones(shape, {.dtype = dtype, .device = device});
}
inline Tensor ones(const Shape& shape, Device device) { return ones(shape, {.device = device}); }
Tensor empty_like(const Tensor& x);  ///< uninitialised, in x's memory format; no gradient
Tensor zeros_like(const Tensor& x);  ///< every element is 0, in x's memory format; no gradient
Tensor ones_like(const Tensor& x);   ///< every element is 1, in x's memory format; no gradient
/// Every element is `value`, in x's memory format; no gradient. Throws as full().
Tensor full_like(const Tensor& x, double value);

struct ArangeOptions {
  double start = 0;  ///< the first number
  double step = 1;   ///< difference of two numbers; may be negative
  DType dtype = i64;
  Device device = default_device();
};
/// start, start + step, ... : `count` numbers, shape [count]; 0 to count-1 without options. Throws
/// if the dtype cannot hold them: steps of 0.1 need a floating one.
Tensor arange(std::int64_t count, const ArangeOptions& options = {});
Tensor arange(std::int64_t count, detail::ADType auto dtype, Device device = default_device()) {
  return arange(count, {.dtype = dtype, .device = device});
}
inline Tensor arange(std::int64_t count, Device device) {
  return arange(count, {.device = device});
}

namespace detail {
/// Returns start, start + step, ... up to `end`.
Tensor numbers_between(double start, double end, double step, DType dtype, Device device);
Tensor numbers_between(std::int64_t start, std::int64_t end, std::int64_t step, DType dtype,
                       Device device);
/// Returns the value as i64, for arange(); throws Error if it is too large.
std::int64_t to_i64(std::uint64_t value);
template <std::integral T>
std::int64_t as_i64(T value) {
  if constexpr (std::is_same_v<std::make_unsigned_t<T>, T> && sizeof(T) == 8) {
    return to_i64(value);
  } else {
    return static_cast<std::int64_t>(value);
  }
}
}  // namespace detail

/// start, start + step, ... as PyTorch's: arange(2, 8, 3) is 2, 5. There are ceil((end - start) /
/// step) numbers; for fractions this is computed in f64, so the last can be `end` itself. Without a
/// dtype the numbers are i64 if all arguments are integers, else f32. Throws if `step` is 0 or
/// leads away from `end`, if an argument is not finite, and if the dtype cannot hold a number.
template <detail::ANumber A, detail::ANumber B, detail::ANumber C>
Tensor arange(A start, B end, C step, detail::ADType auto dtype, Device device = default_device()) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B> && std::is_integral_v<C>) {
    return detail::numbers_between(detail::as_i64(start), detail::as_i64(end), detail::as_i64(step),
                                   dtype, device);
  } else {
    return detail::numbers_between(static_cast<double>(start), static_cast<double>(end),
                                   static_cast<double>(step), dtype, device);
  }
}
template <detail::ANumber A, detail::ANumber B, detail::ANumber C = int>
Tensor arange(A start, B end, C step = 1, Device device = default_device()) {
  constexpr bool kIntegers =
      std::is_integral_v<A> && std::is_integral_v<B> && std::is_integral_v<C>;
  return arange(start, end, step, kIntegers ? i64 : f32, device);
}
Tensor arange(detail::ANumber auto start, detail::ANumber auto end, detail::ADType auto dtype,
              Device device = default_device()) {
  return arange(start, end, 1, dtype, device);
}
Tensor arange(detail::ANumber auto start, detail::ANumber auto end, Device device) {
  return arange(start, end, 1, device);
}
/// A floating number alone is the end, not a count: arange(2.5) is 0, 1, 2 as f32.
Tensor arange(std::floating_point auto end, detail::ADType auto dtype,
              Device device = default_device()) {
  return arange(0, end, 1, dtype, device);
}
Tensor arange(std::floating_point auto end, Device device = default_device()) {
  return arange(0, end, 1, f32, device);
}
Tensor arange(std::floating_point auto count, const ArangeOptions& options) = delete;  // an integer
/// Identity matrix [n, n].
Tensor eye(std::int64_t n, const TensorOptions& options = {});
Tensor eye(std::int64_t n, detail::ADType auto dtype, Device device = default_device()) {
  return eye(n, {.dtype = dtype, .device = device});
}
inline Tensor eye(std::int64_t n, Device device) { return eye(n, {.device = device}); }

struct RandOptions {
  double low = 0;   ///< smallest value
  double high = 1;  ///< bound of the values, which is not reached
  DType dtype = f32;
  Device device = default_device();
  Generator* generator = nullptr;  ///< null: default_generator()
};
/// Uniform in [low, high); floating dtypes. Throws Error unless low < high, the dtype holds both,
/// and the compute dtype holds high - low.
Tensor rand(const Shape& shape, const RandOptions& options = {});
Tensor rand(const Shape& shape, detail::ADType auto dtype, Device device = default_device()) {
  return rand(shape, {.dtype = dtype, .device = device});
}
inline Tensor rand(const Shape& shape, Device device) { return rand(shape, {.device = device}); }

struct RandnOptions {
  double mean = 0;    ///< mean of the distribution
  double stddev = 1;  ///< standard deviation of the distribution; 0 or more
  DType dtype = f32;
  Device device = default_device();
  Generator* generator = nullptr;  ///< null: default_generator()
};
/// Normal with the given mean and standard deviation (Box-Muller on Philox); floating dtypes. No
/// number is further than 6.67 stddev from the mean; throws Error unless the dtype holds all these.
Tensor randn(const Shape& shape, const RandnOptions& options = {});
Tensor randn(const Shape& shape, detail::ADType auto dtype, Device device = default_device()) {
  return randn(shape, {.dtype = dtype, .device = device});
}
inline Tensor randn(const Shape& shape, Device device) { return randn(shape, {.device = device}); }
/// rand() and randn() of x's shape, dtype and device, in x's memory format; no gradient. Element i
/// in row-major order has the same number in every format. Throws Error unless x is floating.
Tensor rand_like(const Tensor& x, Generator& generator = default_generator());
Tensor randn_like(const Tensor& x, Generator& generator = default_generator());
/// A random permutation of 0 to n-1, i64 [n] on the default device, drawn on the CPU
/// (Fisher-Yates).
Tensor randperm(std::int64_t n, Generator& generator = default_generator());

// ---- Copies, casts, in-place writes ----
/// x converted to `dtype`, rounded to nearest even; x itself if it has that dtype. From floating to
/// integer, values are truncated toward zero and clamped to the range (300.0 as u8 is 255), and NaN
/// becomes 0; PyTorch leaves both undefined. A wider integer keeps its low bits (300 as u8 is 44).
/// To bool: x != 0. The gradient is cast back.
Tensor cast(const Tensor& x, DType dtype);
/// x on `device`: x itself if it is there already. The gradient goes back to x's device.
Tensor to_device(const Tensor& x, Device device);
/// A row-major copy; contiguous() returns x itself if it is row-major already.
Tensor clone(const Tensor& x);
Tensor contiguous(const Tensor& x);
/// x with the same shape and axis 1 fastest in memory ("NHWC"): x itself if it is in that order,
/// else a copy. Rank 3 to 5. Elementwise ops, casts, convolutions, pooling and norms by channel
/// keep that order, and so do gradients; contiguous() goes back to row-major order.
Tensor channels_last(const Tensor& x);
/// Overwrites x. fill_, zero_, uniform_ and normal_ are not recorded: they throw Error if x is part
/// of a graph and recording is on. Every in-place op throws if several elements of x share memory
/// (an expanded tensor). It reads operands that share memory with x as they were before the write.
/// fill_ throws if x's dtype cannot hold `value`.
void fill_(const Tensor& x, double value);
void zero_(const Tensor& x);
/// x = src, cast and broadcast to x's shape and dtype. If src requires a gradient and recording is
/// on, the copy is recorded and x becomes part of src's graph: throws Error if x is a view or has
/// another handle, view or saved copy. A copy into an integer dtype has no gradient.
void copy_(const Tensor& x, const Tensor& src);
/// Random numbers, with the limits of rand() and randn(); no gradient.
void uniform_(const Tensor& x, double low, double high, Generator& g = default_generator());
void normal_(const Tensor& x, double mean, double stddev, Generator& g = default_generator());

// ---- Elementwise, one operand. The shape stays; floating dtypes (neg, abs and square also
// integers). The form with an underscore writes x in place. If x is part of a graph, the write is
// recorded; then x must be a non-leaf without another handle, view or saved copy.
Tensor neg(const Tensor& x);         ///< -x
Tensor abs(const Tensor& x);         ///< |x|, derivative 0 at 0
Tensor exp(const Tensor& x);         ///< e^x
Tensor log(const Tensor& x);         ///< natural logarithm
Tensor sqrt(const Tensor& x);        ///< x^(1/2)
Tensor rsqrt(const Tensor& x);       ///< x^(-1/2)
Tensor square(const Tensor& x);      ///< x^2
Tensor reciprocal(const Tensor& x);  ///< 1/x
Tensor relu(const Tensor& x);        ///< max(x, 0); NaN stays NaN; derivative 0 at 0
Tensor leaky_relu(const Tensor& x, double slope = 0.01);  ///< x if x > 0, else slope*x
Tensor elu(const Tensor& x, double alpha = 1);            ///< x if x > 0, else alpha*(e^x - 1)
Tensor gelu(const Tensor& x);       ///< x/2 (1 + erf(x/sqrt 2)) (Hendrycks & Gimpel 2016)
Tensor gelu_tanh(const Tensor& x);  ///< x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
Tensor sigmoid(const Tensor& x);    ///< 1/(1 + e^-x), stable at both ends
Tensor silu(const Tensor& x);       ///< x sigmoid(x)
Tensor tanh(const Tensor& x);       ///< hyperbolic tangent
Tensor softplus(const Tensor& x);   ///< log(1 + e^x), stable at both ends
Tensor sin(const Tensor& x);        ///< sine, x in radians
Tensor cos(const Tensor& x);        ///< cosine, x in radians
/// min(max(x, low), high); derivative 1 between the bounds, 0 at them and beyond. A bound that is
/// NaN gives NaN, as with bounds that are tensors.
[[nodiscard]] Tensor clamp(const Tensor& x, double low, double high);
/// clamp() by one bound, for integers too: max(x, low), and min(x, high). NaN wins on either side.
[[nodiscard]] Tensor clamp_min(const Tensor& x, double low);
[[nodiscard]] Tensor clamp_max(const Tensor& x, double high);

Tensor& neg_(Tensor& x);
Tensor& abs_(Tensor& x);
Tensor& exp_(Tensor& x);
Tensor& log_(Tensor& x);
Tensor& sqrt_(Tensor& x);
Tensor& rsqrt_(Tensor& x);
Tensor& square_(Tensor& x);
Tensor& reciprocal_(Tensor& x);
Tensor& relu_(Tensor& x);
Tensor& leaky_relu_(Tensor& x, double slope = 0.01);
Tensor& elu_(Tensor& x, double alpha = 1);
Tensor& gelu_(Tensor& x);
Tensor& gelu_tanh_(Tensor& x);
Tensor& sigmoid_(Tensor& x);
Tensor& silu_(Tensor& x);
Tensor& tanh_(Tensor& x);
Tensor& softplus_(Tensor& x);
Tensor& sin_(Tensor& x);
Tensor& cos_(Tensor& x);
Tensor& clamp_(Tensor& x, double low, double high);
Tensor& clamp_min_(Tensor& x, double low);
Tensor& clamp_max_(Tensor& x, double high);

// ---- Elementwise, two operands, broadcasting (numpy's rule) ----
Tensor add(const Tensor& a, const Tensor& b);  ///< a + b
Tensor sub(const Tensor& a, const Tensor& b);  ///< a - b
Tensor mul(const Tensor& a, const Tensor& b);  ///< a b
Tensor div(const Tensor& a, const Tensor& b);  ///< a / b; floating dtypes only
/// a^b. Between integers it wraps around, and a negative b gives the whole part of a^b: 0, but 1
/// and -1 for a = 1 and -1; 0 for a = 0. Bools are not numbers.
Tensor pow(const Tensor& a, const Tensor& b);
/// The smaller element, or the larger by maximum(). NaN wins; a tie shares the gradient evenly.
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor swiglu(const Tensor& gate, const Tensor& up);  ///< silu(gate) up (Shazeer 2020); floating
Tensor add(const Tensor& a, double b);
Tensor sub(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);
Tensor div(const Tensor& a, double b);
/// Throws Error unless b is a whole number of 0 or more for integers.
Tensor pow(const Tensor& a, double b);
Tensor pow(double a, const Tensor& b);
/// Write a in place: its shape must be the broadcast one; rules as for the unary forms.
Tensor& add_(Tensor& a, const Tensor& b);
Tensor& sub_(Tensor& a, const Tensor& b);
Tensor& mul_(Tensor& a, const Tensor& b);
Tensor& div_(Tensor& a, const Tensor& b);
Tensor& add_(Tensor& a, double b);
Tensor& sub_(Tensor& a, double b);
Tensor& mul_(Tensor& a, double b);
Tensor& div_(Tensor& a, double b);

Tensor minimum(const Tensor& a, double b);
Tensor maximum(const Tensor& a, double b);
inline Tensor minimum(double a, const Tensor& b) { return minimum(b, a); }
inline Tensor maximum(double a, const Tensor& b) { return maximum(b, a); }

/// Comparisons return bool tensors and carry no gradient; a comparison with NaN is false (ne:
/// true).
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, double b);
Tensor ne(const Tensor& a, double b);
Tensor lt(const Tensor& a, double b);
Tensor le(const Tensor& a, double b);
Tensor gt(const Tensor& a, double b);
Tensor ge(const Tensor& a, double b);
/// Elements of a if `condition` (bool) holds, else of b; all three broadcast. Two numbers give f32.
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, double b);
[[nodiscard]] Tensor where(const Tensor& condition, double a, const Tensor& b);
[[nodiscard]] Tensor where(const Tensor& condition, double a, double b);
Tensor where(const Tensor&,  // where(condition, 1, 0) is f32; the condition itself is bool
             std::same_as<bool> auto, std::same_as<bool> auto) = delete;

/// Work as neg(), add(), sub(), mul() and div(); a number stands for a tensor of that value.
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
Tensor operator-(double a, const Tensor& b);
Tensor operator/(double a, const Tensor& b);
// == and != are left out: code that compares two handles, such as std::find, expects one bool.
// Write eq(a, b) and ne(a, b).
/// Work as lt(), le(), gt() and ge().
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator<(const Tensor& a, double b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, double b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, double b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, double b) { return ge(a, b); }
inline Tensor operator<(double a, const Tensor& b) { return gt(b, a); }
inline Tensor operator<=(double a, const Tensor& b) { return ge(b, a); }
inline Tensor operator>(double a, const Tensor& b) { return lt(b, a); }
inline Tensor operator>=(double a, const Tensor& b) { return le(b, a); }

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

// ---- Shape: views if the strides allow it, else one copy ----
/// One size may be -1: it is inferred.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Merges axes `from` to `to` (inclusive) into one.
Tensor flatten(const Tensor& x, std::int64_t from = 0, std::int64_t to = -1);
/// Axis i of the result is axis order[i] of x.
Tensor permute(const Tensor& x, const Axes& order);
/// Exchanges two axes.
Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b);
/// Inserts a new axis of size 1 before `axis`; after the last one for -1.
Tensor unsqueeze(const Tensor& x, std::int64_t axis);
/// Removes `axis`, whose size must be 1.
Tensor squeeze(const Tensor& x, std::int64_t axis);
/// Repeats axes of size 1, and new leading axes, without a copy; -1 keeps a size.
Tensor expand(const Tensor& x, const Shape& shape);
/// Elements [start, stop) of an axis, every step-th (step > 0); negative positions count from the
/// end; positions are clipped to the axis as in Python.
Tensor slice(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t stop,
             std::int64_t step = 1);
/// The sub-tensor at `index` of `axis`; the axis is removed.
Tensor select(const Tensor& x, std::int64_t axis, std::int64_t index);
/// Pieces of `size` along `axis`; the last may be shorter. An axis of size 0 gives one empty piece,
/// as in PyTorch.
std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t axis = 0);
std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes,
                          std::int64_t axis = 0);
inline std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> sizes,
                                 std::int64_t axis = 0) {
  return split(x, std::span<const std::int64_t>(sizes.begin(), sizes.size()), axis);
}
/// Concatenates the parts along `axis`; stack() joins them along a new axis.
Tensor cat(std::span<const Tensor> parts, std::int64_t axis = 0);
Tensor stack(std::span<const Tensor> parts, std::int64_t axis = 0);
inline Tensor cat(std::initializer_list<Tensor> parts, std::int64_t axis = 0) {
  return cat(std::span<const Tensor>(parts.begin(), parts.size()), axis);
}
inline Tensor stack(std::initializer_list<Tensor> parts, std::int64_t axis = 0) {
  return stack(std::span<const Tensor>(parts.begin(), parts.size()), axis);
}
/// Adds `before[i]` and `after[i]` elements of `value` around axis i; both lists have x's rank.
Tensor pad(const Tensor& x, const Axes& before, const Axes& after, double value = 0);

// ---- Indexing ----
/// Rows of `table` [n, d...] at `index` (i64 or i32, any shape): shape index.shape + [d...].
/// Throws on an index outside [0, n). Rows with the same index sum their gradients in index order.
Tensor embedding(const Tensor& table, const Tensor& index);
/// x at positions `index` (1-D) of `axis`.
Tensor index_select(const Tensor& x, std::int64_t axis, const Tensor& index);
/// out[i][j] = x[i][index[i][j]] for axis 1, and likewise for the others. index has x's rank; its
/// sizes on the other axes are at most x's.
Tensor gather(const Tensor& x, std::int64_t axis, const Tensor& index);
/// 1 at position index[...] of a new last axis of size `classes`, else 0; no gradient. `dtype` must
/// support arithmetic.
Tensor one_hot(const Tensor& index, std::int64_t classes, DType dtype = f32);

// ---- Linear algebra ----
/// [m, k] x [k, n] -> [m, n]; leading batch axes broadcast; a 1-D operand is a row (left) or column
/// (right) whose axis is removed. Sums run in f32 (f64 for f64). Transposed views are not copied.
Tensor matmul(const Tensor& a, const Tensor& b);
/// x [..., in] with weight [out, in] and bias [out] (or undefined): x weightᵀ + bias, [..., out].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

const char* to_string(Activation activation) noexcept;
/// A chain of linear layers with `activation` after each but the last, as one op. x [..., in],
/// weights[i] [out_i, out_{i-1}] and biases[i] [out_i] (or undefined; an empty `biases` means none)
/// give [..., out_last]. It computes linear() and the activation in turn, with fewer launches (the
/// idea of Apex's fused MLP): two per layer at most, forward and backward. One backward launch
/// computes the gradients of weight and bias, the other that of the data with the activation's
/// derivative. gelu_tanh is applied to the sum before the sum is rounded to 16 bits.
Tensor mlp(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases = {},
           Activation activation = Activation::relu);
inline Tensor mlp(const Tensor& x, std::initializer_list<Tensor> weights,
                  std::initializer_list<Tensor> biases = {},
                  Activation activation = Activation::relu) {
  return mlp(x, std::span<const Tensor>(weights.begin(), weights.size()),
             std::span<const Tensor>(biases.begin(), biases.size()), activation);
}

/// Allows f32 matrix products on CUDA devices to run on tensor cores in TF32, which keeps 10 of 23
/// mantissa bits. Off by default. Applies to all threads, from the next product on.
void allow_tf32(bool on) noexcept;
/// Returns the setting of allow_tf32().
bool tf32_allowed() noexcept;
/// Allows f32 matrix products on the CPU to run on its bf16 matrix unit: each factor is split into
/// three bf16 numbers, and the six largest of the nine products are added in f32. An element of the
/// result is off by at most (4 sqrt(6k) + 4) 2^-24 of the sum of its k absolute terms. Parts below
/// 2^-126 are lost, so factors below 2^-102 are off by up to 2^-125 each, times the factor that
/// they meet. Off by default. Without the unit (AMX), products stay in f32. Applies to all threads,
/// from the next product on.
void allow_bf16x3(bool on) noexcept;
/// Returns the setting of allow_bf16x3().
bool bf16x3_allowed() noexcept;
/// Makes matrix products batch-invariant: a row of a [m, k] x [k, n] has the same bits whatever m
/// and the other rows are. The order in which its terms are added then depends on n, k and the
/// dtype (in f64 also on the layout of the factors), not on m. Products of 16-bit factors always
/// are batch-invariant. f32 runs on firn's own kernel, which is slower for few rows, and f64 row by
/// row (figures in docs/performance.md). CUDA devices cannot promise it: products there throw Error
/// while it is required. Off by default. Applies to all threads, from the next product on.
void require_batch_invariance(bool on) noexcept;
/// Returns the setting of require_batch_invariance().
bool batch_invariance_required() noexcept;

// ---- Rows ----
/// e^x / sum e^x along `axis`; the row's maximum is subtracted first. A row of -inf gives NaN.
Tensor softmax(const Tensor& x, std::int64_t axis = -1);
Tensor log_softmax(const Tensor& x, std::int64_t axis = -1);
/// (x - mean) / sqrt(var + eps) * weight + bias over the last axis (Ba et al. 2016), biased
/// variance; weight and bias [n], either may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang & Sennrich 2019).
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);
/// Each element is zero with probability p, else x/(1-p). The mask is recomputed from the random
/// key in backward, not stored. p in [0, 1). training = false: x itself.
Tensor dropout(const Tensor& x, double p, bool training = true,
               Generator& generator = default_generator());
Tensor dropout(const Tensor&, std::same_as<bool> auto) = delete;  // dropout(x, p, training)

}  // namespace firn
