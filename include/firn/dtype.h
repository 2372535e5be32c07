// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <type_traits>

#include "firn/float8.h"
#include "firn/half.h"

namespace firn {

/// Element type. Arithmetic on f16 and bf16 runs in f32 and is rounded once, to nearest even, when
/// the result is stored. Their matrix products run on the CPU's bf16 unit, which adds in f32, if it
/// has one. The dtypes from i8 on are stored only (is_stored_only()).
enum class DType : std::uint8_t {
  f16,
  bf16,
  f32,
  f64,
  i32,
  i64,
  u8,
  boolean,
  i8,
  i16,
  u16,
  u32,
  f8_e4m3,
  f8_e5m2
};
/// Number of dtypes.
inline constexpr int kDTypes = static_cast<int>(DType::f8_e5m2) + 1;

/// IEEE 754 binary16, C++ type half.
inline constexpr DType f16 = DType::f16;
inline constexpr DType bf16 = DType::bf16;  ///< bfloat16, C++ type firn::bfloat16
/// IEEE 754 binary32, C++ type float.
inline constexpr DType f32 = DType::f32;
/// IEEE 754 binary64, C++ type double.
inline constexpr DType f64 = DType::f64;
/// 32-bit signed integer.
inline constexpr DType i32 = DType::i32;
/// 64-bit signed integer.
inline constexpr DType i64 = DType::i64;
/// 8-bit unsigned integer.
inline constexpr DType u8 = DType::u8;
inline constexpr DType boolean = DType::boolean;  ///< true or false in one byte, C++ type bool
inline constexpr DType i8 = DType::i8;            ///< 8-bit signed integer
inline constexpr DType i16 = DType::i16;          ///< 16-bit signed integer
inline constexpr DType u16 = DType::u16;          ///< 16-bit unsigned integer
inline constexpr DType u32 = DType::u32;          ///< 32-bit unsigned integer
inline constexpr DType f8_e4m3 = DType::f8_e4m3;  ///< C++ type float8_e4m3
inline constexpr DType f8_e5m2 = DType::f8_e5m2;  ///< C++ type float8_e5m2

/// Bytes of one element; 0 for a value outside of the enum.
constexpr std::size_t size_of(DType t) noexcept {
  switch (t) {
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16:
      return 2;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::u8:
    case DType::boolean:
    case DType::i8:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return 1;
  }
  return 0;
}

/// Returns the name of the constant, "bool" for boolean, and "unknown dtype" for any other number.
constexpr const char* to_string(DType t) noexcept {
  constexpr const char* names[] = {"f16",  "bf16", "f32", "f64", "i32", "i64",     "u8",
                                   "bool", "i8",   "i16", "u16", "u32", "f8_e4m3", "f8_e5m2"};
  return static_cast<int>(t) < kDTypes ? names[static_cast<int>(t)] : "unknown dtype";
}
/// Prints to_string().
std::ostream& operator<<(std::ostream& out, DType t);

/// True if `t` is f16, bf16, f32 or f64.
constexpr bool is_floating(DType t) noexcept { return t <= DType::f64; }
/// True if `t` is f8_e4m3 or f8_e5m2.
constexpr bool is_float8(DType t) noexcept { return t == DType::f8_e4m3 || t == DType::f8_e5m2; }
/// True if `t` is i8, i16, u16, u32, f8_e4m3 or f8_e5m2. Tensors of these can be made, cast, moved,
/// viewed, indexed, printed, saved and loaded. Operations that compute throw Error for them: their
/// comments say "`dtype` must support arithmetic".
constexpr bool is_stored_only(DType t) noexcept { return t > DType::boolean; }

/// The dtype in which values of `t` are computed and summed: f32 for f16, bf16, f32 and the
/// floats of 8 bits; f64 for f64; i64 for the integers and bool.
constexpr DType compute_dtype(DType t) noexcept {
  if (t == DType::f64) return DType::f64;
  return is_floating(t) || is_float8(t) ? DType::f32 : DType::i64;
}

/// Largest finite value of a floating dtype: 65504 for f16, 448 for f8_e4m3.
constexpr double max_of(DType t) noexcept {
  switch (t) {
    case DType::f8_e4m3:
      return 448.0;
    case DType::f8_e5m2:
      return 57344.0;
    case DType::f16:
      return 65504.0;
    case DType::bf16:
      return 3.3895313892515355e38;
    case DType::f32:
      return 3.4028234663852886e38;
    default:
      return 1.7976931348623157e308;
  }
}
/// Largest relative error of rounding to a floating dtype: 2^-11 for f16, 2^-8 for bf16, 2^-24,
/// 2^-53; 2^-4 for f8_e4m3, 2^-3 for f8_e5m2.
constexpr double epsilon_of(DType t) noexcept {
  switch (t) {
    case DType::f8_e4m3:
      return 0.0625;  // 2^-4
    case DType::f8_e5m2:
      return 0.125;  // 2^-3
    case DType::f16:
      return 4.8828125e-4;  // 2^-11
    case DType::bf16:
      return 3.90625e-3;  // 2^-8
    case DType::f32:
      return 5.9604644775390625e-8;  // 2^-24
    default:
      return 1.1102230246251565e-16;  // 2^-53
  }
}

namespace detail {
template <class T>
struct DTypeOf;
/// The size decides: long and long long may both have 64 bits, and are both i64 then.
template <class T>
requires(std::is_same_v<T, int> || std::is_same_v<T, long> ||
         std::is_same_v<T, long long>) struct DTypeOf<T> {
  static constexpr DType value = sizeof(T) == 8 ? DType::i64 : DType::i32;
};
// clang-format off
template <> struct DTypeOf<half> { static constexpr DType value = DType::f16; };
template <> struct DTypeOf<bfloat16> { static constexpr DType value = DType::bf16; };
template <> struct DTypeOf<float> { static constexpr DType value = DType::f32; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::f64; };
template <> struct DTypeOf<std::uint8_t> { static constexpr DType value = DType::u8; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::boolean; };
template <> struct DTypeOf<std::int8_t> { static constexpr DType value = DType::i8; };
template <> struct DTypeOf<std::int16_t> { static constexpr DType value = DType::i16; };
template <> struct DTypeOf<std::uint16_t> { static constexpr DType value = DType::u16; };
template <> struct DTypeOf<std::uint32_t> { static constexpr DType value = DType::u32; };
template <> struct DTypeOf<float8_e4m3> { static constexpr DType value = DType::f8_e4m3; };
template <> struct DTypeOf<float8_e5m2> { static constexpr DType value = DType::f8_e5m2; };
// clang-format on
}  // namespace detail

/// A C++ type that is the element type of a dtype. Only these can be made into tensors.
template <class T>
concept Element = requires {
  detail::DTypeOf<std::remove_cv_t<T>>::value;
};

/// The dtype whose elements are C++ objects of type T.
template <Element T>
inline constexpr DType dtype_of = detail::DTypeOf<T>::value;

/// Calls `fn.template operator()<T>()` with the C++ type of `t`.
template <class Fn>
decltype(auto) visit(DType t, Fn&& fn) {
  switch (t) {
    case DType::f16:
      return fn.template operator()<half>();
    case DType::bf16:
      return fn.template operator()<bfloat16>();
    case DType::f32:
      return fn.template operator()<float>();
    case DType::f64:
      return fn.template operator()<double>();
    case DType::i32:
      return fn.template operator()<std::int32_t>();
    case DType::i64:
      return fn.template operator()<std::int64_t>();
    case DType::u8:
      return fn.template operator()<std::uint8_t>();
    case DType::i8:
      return fn.template operator()<std::int8_t>();
    case DType::i16:
      return fn.template operator()<std::int16_t>();
    case DType::u16:
      return fn.template operator()<std::uint16_t>();
    case DType::u32:
      return fn.template operator()<std::uint32_t>();
    case DType::f8_e4m3:
      return fn.template operator()<float8_e4m3>();
    case DType::f8_e5m2:
      return fn.template operator()<float8_e5m2>();
    default:
      return fn.template operator()<bool>();
  }
}

}  // namespace firn
