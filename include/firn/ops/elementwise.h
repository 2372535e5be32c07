// Elementwise operations: arithmetic, functions, activations, comparisons and where(), with the
// names, defaults and edge cases of PyTorch. ops.h has the rules for dtypes and errors.
#pragma once

#include <concepts>
#include <optional>

#include "firn/tensor.h"

namespace firn {

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

// ---- Functions of one operand. The shape and the dtype stay; floating dtypes ----
Tensor log1p(const Tensor& x);  ///< log(1 + x), exact for small x
Tensor expm1(const Tensor& x);  ///< e^x - 1, exact for small x
Tensor log2(const Tensor& x);   ///< logarithm to base 2
Tensor exp2(const Tensor& x);   ///< 2^x
Tensor tan(const Tensor& x);    ///< tangent of an angle in radians
Tensor asin(const Tensor& x);   ///< the angle in radians whose sine is x; NaN unless |x| <= 1
Tensor acos(const Tensor& x);   ///< the angle in radians whose cosine is x; NaN unless |x| <= 1
Tensor atan(const Tensor& x);   ///< the angle in radians, from -pi/2 to pi/2, whose tangent is x
Tensor sinh(const Tensor& x);   ///< (e^x - e^-x) / 2
Tensor cosh(const Tensor& x);   ///< (e^x + e^-x) / 2
Tensor asinh(const Tensor& x);  ///< log(x + sqrt(x^2 + 1))
Tensor acosh(const Tensor& x);  ///< log(x + sqrt(x^2 - 1)); NaN if x < 1
Tensor atanh(const Tensor& x);  ///< log((1 + x) / (1 - x)) / 2; NaN if |x| > 1
Tensor log10(const Tensor& x);  ///< logarithm to base 10
Tensor erf(const Tensor& x);    ///< error function: 2/sqrt(pi) times the integral of e^-t^2, 0 to x
Tensor erfc(const Tensor& x);   ///< 1 - erf(x), with the digits of the right tail
/// x with other numbers in place of NaN and the infinities, where the derivative is 0. Without a
/// value an infinity becomes the largest finite number of the dtype, with its sign. Integers: a
/// copy.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});

Tensor& log1p_(Tensor& x);
Tensor& expm1_(Tensor& x);
Tensor& log2_(Tensor& x);
Tensor& exp2_(Tensor& x);
Tensor& tan_(Tensor& x);
Tensor& asin_(Tensor& x);
Tensor& acos_(Tensor& x);
Tensor& atan_(Tensor& x);
Tensor& sinh_(Tensor& x);
Tensor& cosh_(Tensor& x);
Tensor& asinh_(Tensor& x);
Tensor& acosh_(Tensor& x);
Tensor& atanh_(Tensor& x);
Tensor& log10_(Tensor& x);
Tensor& erf_(Tensor& x);
Tensor& erfc_(Tensor& x);
Tensor& nan_to_num_(Tensor& x, double nan = 0, std::optional<double> posinf = {},
                    std::optional<double> neginf = {});

// ---- Steps: floating dtypes and integers. The gradient is 0 everywhere ----
Tensor floor(const Tensor& x);  ///< the largest whole number that is not above x
Tensor ceil(const Tensor& x);   ///< the smallest whole number that is not below x
Tensor round(const Tensor& x);  ///< the nearest whole number; halves go to the even one
Tensor trunc(const Tensor& x);  ///< x without its fraction
Tensor sign(const Tensor& x);   ///< 1, 0 or -1; 0 for NaN

Tensor& floor_(Tensor& x);
Tensor& ceil_(Tensor& x);
Tensor& round_(Tensor& x);
Tensor& trunc_(Tensor& x);
Tensor& sign_(Tensor& x);

// ---- Questions: dtypes must support arithmetic; the result is bool, without a gradient ----
Tensor isnan(const Tensor& x);        ///< true if x is NaN; no gradient
Tensor isinf(const Tensor& x);        ///< true if x is infinity or -infinity; no gradient
Tensor isfinite(const Tensor& x);     ///< true if x is neither NaN nor infinite; no gradient
Tensor logical_not(const Tensor& x);  ///< true if x is 0; no gradient
/// The complement of each bit of an integer; the opposite of a bool. There is no gradient.
Tensor bitwise_not(const Tensor& x);
Tensor& bitwise_not_(Tensor& x);

// ---- Activations; floating dtypes ----
/// min(max(x, min_val), max_val), as clamp(): a NaN as bound gives NaN. The derivative is 0 at both
/// bounds.
Tensor hardtanh(const Tensor& x, double min_val = -1, double max_val = 1);
/// x clamp(x + 3, 0, 6) / 6 (Howard et al. 2019). The derivative at -3 is 0, at 3 it is 1.
Tensor hardswish(const Tensor& x);
Tensor hardsigmoid(const Tensor& x);  ///< clamp(x + 3, 0, 6) / 6; derivative 0 at -3 and 3
Tensor softsign(const Tensor& x);     ///< x / (1 + |x|)
Tensor mish(const Tensor& x);         ///< x tanh(softplus(x)) (Misra 2019)
/// x if x > 0, else alpha (e^(x/alpha) - 1) (Barron 2017). Throws Error if alpha is 0.
Tensor celu(const Tensor& x, double alpha = 1);
/// s x if x > 0, else s a (e^x - 1), with a = 1.67326 and s = 1.05070 (Klambauer et al. 2017).
Tensor selu(const Tensor& x);
Tensor logsigmoid(const Tensor& x);  ///< log(1/(1 + e^-x)), stable at both ends
/// x if x > threshold, else `value`. NaN stays NaN.
Tensor threshold(const Tensor& x, double threshold, double value);
/// clamp(x, 0, 6); the derivative is 0 at both bounds.
Tensor relu6(const Tensor& x);
/// x if |x| > lambda, else 0.
Tensor hardshrink(const Tensor& x, double lambda = 0.5);
/// x moved towards 0 by lambda, and 0 if that would pass it. Throws Error if lambda is negative.
Tensor softshrink(const Tensor& x, double lambda = 0.5);
Tensor tanhshrink(const Tensor& x);  ///< x - tanh(x)
/// a sigmoid(b) of the two halves a, b of x along `axis` (Dauphin et al. 2017). Throws Error if the
/// size there is odd.
Tensor glu(const Tensor& x, std::int64_t axis = -1);
/// x if x > 0, else weight x (He et al. 2015). `weight` has one element, or [channels], one for
/// each position of axis 1.
Tensor prelu(const Tensor& x, const Tensor& weight);

Tensor& hardtanh_(Tensor& x, double min_val = -1, double max_val = 1);
Tensor& hardswish_(Tensor& x);
Tensor& hardsigmoid_(Tensor& x);
Tensor& softsign_(Tensor& x);
Tensor& mish_(Tensor& x);
Tensor& celu_(Tensor& x, double alpha = 1);
Tensor& selu_(Tensor& x);
Tensor& logsigmoid_(Tensor& x);
Tensor& threshold_(Tensor& x, double threshold, double value);
Tensor& hardshrink_(Tensor& x, double lambda = 0.5);
Tensor& softshrink_(Tensor& x, double lambda = 0.5);

// ---- Two operands, broadcasting ----
/// The angle of the point (x, y) in radians, from -pi to pi; floating dtypes.
Tensor atan2(const Tensor& y, const Tensor& x);
Tensor hypot(const Tensor& a, const Tensor& b);      ///< sqrt(a^2 + b^2); floating dtypes
Tensor logaddexp(const Tensor& a, const Tensor& b);  ///< log(e^a + e^b), stable; floating dtypes
/// a - b trunc(a/b), with the sign of a; remainder() is a - b floor(a/b), with the sign of b. Both
/// are exact. Floating dtypes and integers. b = 0 gives NaN, and a itself for integers: a kernel
/// cannot throw. The number 0 throws Error if a has an integer dtype.
Tensor fmod(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, double b);
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, double b);

/// Combine a != 0 and b != 0, as bool; dtypes must support arithmetic. NaN is not 0. No gradient.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
/// Combine each bit of integers, or bools. There is no gradient.
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_and(const Tensor& a, double b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, double b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, double b);

// ---- Three operands, broadcasting ----
/// a + weight (b - a), rounded once; floating dtypes.
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
Tensor lerp(const Tensor& a, const Tensor& b, double weight);
/// x + value a b, rounded once. Integers too, if the dtype holds `value`.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);
/// min(max(x, low), high); either bound may be undefined. NaN wins, also one in a bound. Integers
/// too. Where x is equal to a bound, the bound takes the gradient and x none, as by numbers. high
/// has priority over low.
[[nodiscard]] Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high);
/// `value` if `mask` (bool) holds, else x: where(mask, value, x). A tensor as value has rank 0.
[[nodiscard]] Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
[[nodiscard]] Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
Tensor& masked_fill_(Tensor& x, const Tensor& mask, double value);

// ---- Comparing with a tolerance ----
/// Tolerances of isclose().
struct CloseOptions {
  double rtol = 1e-5;      ///< factor of |b|
  double atol = 1e-8;      ///< added to rtol |b|
  bool equal_nan = false;  ///< NaN is close to NaN
};
/// |a - b| <= atol + rtol |b|, as bools; equal elements, infinities too, are close. Both broadcast
/// and have one dtype; no gradient.
Tensor isclose(const Tensor& a, const Tensor& b, const CloseOptions& options = {});
/// True if isclose() holds for all elements. Waits for the device, as equal() does.
bool allclose(const Tensor& a, const Tensor& b, const CloseOptions& options = {});
/// True if both have one shape and the same elements: NaN is not equal to NaN. Dtypes must agree.
bool equal(const Tensor& a, const Tensor& b);

}  // namespace firn
