// More elementwise operations, with the names, defaults and edge cases of PyTorch. ops.h has the
// arithmetic, the common functions and activations, comparisons and where(), and says what holds
// for all: dtypes, broadcasting, forms that write in place, errors.
#pragma once

#include <optional>

#include "firn/tensor.h"

namespace firn {

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
