// Tensors of given values, ranges of numbers and random numbers. Options are named, or a dtype, a
// device, or both (see empty in tensor.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "firn/random.h"
#include "firn/tensor.h"

namespace firn {

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

}  // namespace firn
