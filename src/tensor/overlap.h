// Checks whether views overlap in memory. An operation runs them before it writes one tensor and
// reads another.
#pragma once

#include "firn/view.h"

namespace firn {

/// Returns true if two index tuples may name the same element, as in an expanded tensor. Exact for
/// the results of slicing, permuting and expanding; true also for some as_strided() views without
/// repeats.
bool may_repeat(const Shape& shape, const Strides& strides) noexcept;

/// Returns true if the memory ranges from the first to the last element have bytes in common.
bool share_memory(const ConstView& a, const ConstView& b) noexcept;

/// Returns true if for every i element i of a and of b are the same memory, with the same dtype.
bool same_elements(const ConstView& a, const ConstView& b) noexcept;

/// Returns true if an operation that goes through both element by element may overwrite elements of
/// `read` that it has yet to read. `read` has the shape of `written`.
inline bool disturbs(const ConstView& written, const ConstView& read) noexcept {
  return share_memory(written, read) && !same_elements(written, read);
}

}  // namespace firn
