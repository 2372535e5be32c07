// What the files of this folder share.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "firn/dist/group.h"
#include "firn/tensor.h"

namespace firn::dist {

/// A new tensor, contiguous: the sum of all ranks' x, without a gradient. f16 and bf16 are added in
/// f32 and rounded once.
Tensor sum_over_ranks(const Tensor& x, const Group& group);

/// y + bias, in the dtype of y as linear() adds it; y if there is none.
Tensor with_bias(const Tensor& y, const Tensor& bias);

/// A rank's part of an axis that ranks divide among them: elements [first, last).
struct AxisPart {
  std::int64_t first = 0, last = 0;
  std::int64_t size() const noexcept { return last - first; }
};

/// Throws Error unless the ranks divide n; `what` is what is divided.
inline AxisPart part_of(const char* op, const char* what, std::int64_t n, const Group& group) {
  FIRN_CHECK(n % group.size() == 0, op, "choose a multiple of the ranks",
             "{} = {} cannot be divided by {} ranks", what, n, group.size());
  const std::int64_t part = n / group.size();
  return {part * group.rank(), part * (group.rank() + 1)};
}

}  // namespace firn::dist
