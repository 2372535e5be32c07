// Shapes, strides and axis lists: short inline vectors of 64-bit integers, no heap traffic.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace firn {

/// Largest number of axes of a tensor.
inline constexpr int kMaxRank = 8;

/// Up to kMaxRank integers held inline. Axis arguments may be negative: -1 is the last.
class Dims {
 public:
  constexpr Dims() = default;
  /// Throws Error where more than kMaxRank values are given.
  constexpr Dims(std::initializer_list<std::int64_t> values) {
    for (auto v : values) push_back(v);
  }
  constexpr explicit Dims(std::span<const std::int64_t> values) {
    for (auto v : values) push_back(v);
  }
  /// `rank` times `value`.
  static constexpr Dims filled(int rank, std::int64_t value) {
    Dims d;
    for (int i = 0; i < rank; ++i) d.push_back(value);
    return d;
  }

  constexpr int size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  /// Unchecked; 0 <= i < size().
  constexpr std::int64_t operator[](int i) const noexcept { return values_[i]; }
  constexpr std::int64_t& operator[](int i) noexcept { return values_[i]; }
  constexpr std::int64_t back() const noexcept { return values_[size_ - 1]; }
  constexpr std::int64_t& back() noexcept { return values_[size_ - 1]; }
  constexpr const std::int64_t* begin() const noexcept { return values_.data(); }
  constexpr const std::int64_t* end() const noexcept { return values_.data() + size_; }
  constexpr std::int64_t* begin() noexcept { return values_.data(); }
  constexpr std::int64_t* end() noexcept { return values_.data() + size_; }

  constexpr void push_back(std::int64_t v) {
    if (size_ == kMaxRank) overflow();
    values_[size_++] = v;
  }
  constexpr void pop_back() noexcept { --size_; }
  constexpr void insert(int at, std::int64_t v) {
    push_back(0);
    for (int i = size_ - 1; i > at; --i) values_[i] = values_[i - 1];
    values_[at] = v;
  }
  constexpr void erase(int at) noexcept {
    for (int i = at; i + 1 < size_; ++i) values_[i] = values_[i + 1];
    --size_;
  }
  constexpr bool contains(std::int64_t v) const noexcept {
    for (auto x : *this)
      if (x == v) return true;
    return false;
  }
  /// Product of all values; 1 for an empty list.
  constexpr std::int64_t product() const noexcept {
    std::int64_t p = 1;
    for (auto x : *this) p *= x;
    return p;
  }
  constexpr bool operator==(const Dims& o) const noexcept {
    if (size_ != o.size_) return false;
    for (int i = 0; i < size_; ++i)
      if (values_[i] != o.values_[i]) return false;
    return true;
  }

 private:
  [[noreturn]] static void overflow();

  std::array<std::int64_t, kMaxRank> values_{};
  int size_ = 0;
};

using Shape = Dims;    ///< sizes per axis
using Strides = Dims;  ///< elements (not bytes) between neighbours per axis
using Axes = Dims;     ///< a list of axes; empty where "all" is meant

/// "[64, 128]"; a scalar's shape is "[]".
std::string to_string(const Dims& dims);

/// Row-major strides of `shape`.
Strides contiguous_strides(const Shape& shape) noexcept;

/// The shape that a and b broadcast to (aligned at the last axis; sizes equal or 1).
/// Throws Error naming `op` and both shapes.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

/// `axis` in [0, rank) for an axis in [-rank, rank). Throws Error naming `op`.
int normalize_axis(const char* op, std::int64_t axis, int rank);

/// Sorted, distinct, normalised axes; all axes where `axes` is empty. Throws on a repeated axis.
Axes normalize_axes(const char* op, const Axes& axes, int rank);

}  // namespace firn
