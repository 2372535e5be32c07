// Shapes, strides and axis lists: short inline vectors of 64-bit integers, no heap traffic.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>

namespace firn {

/// Largest number of axes of a tensor.
inline constexpr int kMaxRank = 8;

/// A tensor has fewer elements than this, and every stride is smaller. Sizes of 0 count as 1 here,
/// so that no product of sizes and strides of a tensor overflows, whatever axes it is taken over.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;

namespace detail {
/// Arrays, vectors and spans of integers (not of bool, nor text).
template <class R>
concept IntegerList = requires(const R& r) {
  std::data(r);
  std::size(r);
  requires std::is_integral_v<std::remove_cvref_t<decltype(*std::data(r))>>;
  requires(sizeof(*std::data(r)) > 1);
};
}  // namespace detail

/// Up to kMaxRank integers held inline. Axis arguments may be negative: -1 is the last.
class Dims {
 public:
  constexpr Dims() = default;
  /// Throws Error if more than kMaxRank values are given.
  constexpr Dims(std::initializer_list<std::int64_t> values) {
    for (auto v : values) push_back(v);
  }
  /// Converts a std::vector, std::array or std::span of integers: zeros(sizes).
  template <detail::IntegerList R>
  constexpr Dims(const R& values) {  // NOLINT: meant to convert
    for (auto v : std::span(std::data(values), std::size(values)))
      push_back(static_cast<std::int64_t>(v));
  }
  /// A single integer is a list of one: sum(x, 1), zeros(3).
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) constexpr Dims(
      Integer value) {  // NOLINT: meant to convert
    push_back(static_cast<std::int64_t>(value));
  }
  /// A list of `rank` values, each `value`.
  static constexpr Dims filled(int rank, std::int64_t value) {
    Dims d;
    for (int i = 0; i < rank; ++i) d.push_back(value);
    return d;
  }

  constexpr int size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  /// Returns value i, from the end if i < 0: [-1] is the last. Throws Error if there is none.
  constexpr std::int64_t operator[](std::int64_t i) const { return values_[place(i)]; }
  constexpr std::int64_t& operator[](std::int64_t i) { return values_[place(i)]; }
  /// Returns the last value. Throws Error if there is none, as in the shape of a scalar.
  constexpr std::int64_t back() const { return values_[place(size_ - 1)]; }
  constexpr std::int64_t& back() { return values_[place(size_ - 1)]; }
  constexpr const std::int64_t* begin() const noexcept { return values_.data(); }
  constexpr const std::int64_t* end() const noexcept { return values_.data() + size_; }
  constexpr std::int64_t* begin() noexcept { return values_.data(); }
  constexpr std::int64_t* end() noexcept { return values_.data() + size_; }

  /// Throws Error if there are kMaxRank values already.
  constexpr void push_back(std::int64_t v) {
    if (size_ == kMaxRank) [[unlikely]]
      overflow(v);
    values_[static_cast<unsigned>(size_++)] = v;
  }
  /// Throws Error if there is no value.
  constexpr void pop_back() {
    if (size_ == 0) [[unlikely]]
      outside(-1, 0);
    --size_;
  }
  /// Puts v at position `at` in [0, size()]. Throws Error for other positions, and if it is full.
  constexpr void insert(std::int64_t at, std::int64_t v) {
    if (at < 0 || at > size_) [[unlikely]]
      outside(at, size_ + 1);
    push_back(0);
    for (auto i = static_cast<std::size_t>(size_) - 1; i > static_cast<std::size_t>(at); --i)
      values_[i] = values_[i - 1];
    values_[static_cast<std::size_t>(at)] = v;
  }
  /// Removes value `at`, counted as by operator[]. Throws Error if there is none.
  constexpr void erase(std::int64_t at) {
    for (std::size_t i = place(at); i + 1 < static_cast<std::size_t>(size_); ++i)
      values_[i] = values_[i + 1];
    --size_;
  }
  /// True if one of the numbers is `v`.
  constexpr bool contains(std::int64_t v) const noexcept {
    for (auto x : *this)
      if (x == v) return true;
    return false;
  }
  /// Returns the product of all values; 1 for an empty list. Throws Error if 64 bits do not hold
  /// it, which the sizes of a tensor never cause.
  constexpr std::int64_t product() const {
    std::int64_t p = 1;
    for (auto x : *this)
      if (__builtin_mul_overflow(p, x, &p)) [[unlikely]]
        return large_product();
    return p;
  }
  constexpr bool operator==(const Dims& o) const noexcept {
    if (size_ != o.size_) return false;
    for (unsigned i = 0; i < static_cast<unsigned>(size_); ++i)
      if (values_[i] != o.values_[i]) return false;
    return true;
  }

 private:
  /// Returns the position of value i in `values_`. Indices of inner loops cost one comparison.
  constexpr std::size_t place(std::int64_t i) const {
    if (size_ < 0 || size_ > kMaxRank) __builtin_unreachable();  // else GCC 14 warns of bounds
    const auto at = static_cast<std::size_t>(i);
    if (at < static_cast<std::size_t>(size_)) [[likely]]
      return at;
    if (i >= 0 || i < -size_) outside(i, size_);
    return static_cast<std::size_t>(i + size_);
  }
  [[noreturn]] void overflow(std::int64_t v) const;
  [[noreturn]] static void outside(std::int64_t i, int size);
  std::int64_t large_product() const;

  std::array<std::int64_t, kMaxRank> values_{};
  int size_ = 0;
};

using Shape = Dims;    ///< sizes per axis
using Strides = Dims;  ///< elements (not bytes) between neighbours per axis
using Axes = Dims;     ///< a list of axes; an empty one often means all

/// "[64, 128]"; a scalar's shape is "[]".
std::string to_string(const Dims& dims);
namespace detail {
void print(std::ostream& out, const Dims& dims);
}
/// Prints to_string() of Dims, but not of types that convert to them, such as a std::vector.
template <std::same_as<Dims> List>
std::ostream& operator<<(std::ostream& out, const List& dims) {
  detail::print(out, dims);
  return out;
}

/// Returns row-major strides of `shape`. Throws Error if 64 bits do not hold them.
Strides contiguous_strides(const Shape& shape);

/// Returns the shape that a and b broadcast to (aligned at the last axis; sizes equal or 1). Throws
/// Error naming `op` and both shapes.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

/// Returns `axis` in [0, rank) for an axis in [-rank, rank). Throws Error naming `op`.
int normalize_axis(const char* op, std::int64_t axis, int rank);

/// Returns sorted, distinct, normalised axes; all if `axes` is empty. Throws on a repeated axis.
Axes normalize_axes(const char* op, const Axes& axes, int rank);

}  // namespace firn
