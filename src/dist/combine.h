// Sums, maxima and minima of ranks' elements, in the order of the ranks: ((x0 + x1) + x2) + ...
#pragma once

#include <cstdint>
#include <span>

#include "firn/dist/group.h"
#include "firn/dtype.h"

namespace firn::dist {

/// Returns true if elements of that dtype can be combined: f32, f64, i32, i64, u8.
constexpr bool can_combine(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i32 || dtype == DType::i64 ||
         dtype == DType::u8;
}

/// Bytes that are combined at a time: blocks of several ranks fit in the L1 cache.
inline constexpr std::int64_t kBlockBytes = 8192;

/// into[i] = into[i] op from[i] for i in [0, count). Integer sums wrap around; a NaN on either side
/// gives a NaN.
void combine(DType dtype, Reduce op, void* into, const void* from, std::int64_t count) noexcept;

/// Returns where share `i` of `n` of `elements` elements begins. Shares are whole cache lines, and
/// differ by at most one.
std::int64_t share_begin(std::int64_t elements, DType dtype, int i, int n) noexcept;

/// Combines elements [first, first + count) of all of `from`, and writes the result to each of
/// `to`, from element `to_first` on. A range that is written overlaps no range that is read, or is
/// exactly one of them.
void combine_all(DType dtype, Reduce op, std::span<const void* const> from, std::int64_t first,
                 std::span<void* const> to, std::int64_t to_first, std::int64_t count) noexcept;

}  // namespace firn::dist
