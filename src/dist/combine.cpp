#include "dist/combine.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/math/combine.h"

namespace firn::dist {
namespace {

template <class T, class Op>
void each(void* into, const void* from, std::int64_t count, Op op) noexcept {
  T* __restrict a = static_cast<T*>(into);
  const T* __restrict b = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i) a[i] = op(a[i], b[i]);
}

template <class T>
void combine_as(Reduce op, void* into, const void* from, std::int64_t count) noexcept {
  switch (op) {
    case Reduce::sum:
      return each<T>(into, from, count, [](T a, T b) { return math::wrapping_sum(a, b); });
    case Reduce::max:
      return each<T>(into, from, count, [](T a, T b) { return math::larger_or_nan(a, b); });
    case Reduce::min:
      return each<T>(into, from, count, [](T a, T b) { return math::smaller_or_nan(a, b); });
  }
}

}  // namespace

void combine(DType dtype, Reduce op, void* into, const void* from, std::int64_t count) noexcept {
  switch (dtype) {
    case DType::f32:
      return combine_as<float>(op, into, from, count);
    case DType::f64:
      return combine_as<double>(op, into, from, count);
    case DType::i32:
      return combine_as<std::int32_t>(op, into, from, count);
    case DType::i64:
      return combine_as<std::int64_t>(op, into, from, count);
    default:  // u8: can_combine() allows no other
      return combine_as<std::uint8_t>(op, into, from, count);
  }
}

std::int64_t share_begin(std::int64_t elements, DType dtype, int i, int n) noexcept {
  const std::int64_t line = 64 / static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t lines = (elements + line - 1) / line;
  return std::min(elements, (lines / n * i + std::min<std::int64_t>(lines % n, i)) * line);
}

void combine_all(DType dtype, Reduce op, std::span<const void* const> from, std::int64_t first,
                 std::span<void* const> to, std::int64_t to_first, std::int64_t count) noexcept {
  alignas(64) std::byte block[kBlockBytes];
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t most = kBlockBytes / size;
  for (std::int64_t at = 0; at < count; at += most) {
    const std::int64_t n = std::min(count - at, most);
    const auto here = [&](const void* p) {
      return static_cast<const std::byte*>(p) + (first + at) * size;
    };
    std::memcpy(block, here(from[0]), static_cast<std::size_t>(n * size));
    for (const void* p : from.subspan(1)) combine(dtype, op, block, here(p), n);
    for (void* p : to)
      std::memcpy(static_cast<std::byte*>(p) + (to_first + at) * size, block,
                  static_cast<std::size_t>(n * size));
  }
}

}  // namespace firn::dist
