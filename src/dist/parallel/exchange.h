// Helpers that the files of this folder share.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "firn/dist/group.h"
#include "firn/tensor.h"

namespace firn::dist {

/// Returns a new contiguous tensor: the sum of all ranks' x, without a gradient. f16 and bf16 are
/// added in f32 and rounded once.
Tensor sum_over_ranks(const Tensor& x, const Group& group);

/// Returns y + bias, in the dtype of y as linear() adds it, or y if `bias` is undefined.
Tensor with_bias(const Tensor& y, const Tensor& bias);

/// Throws Error unless the group can exchange x. One rank exchanges nothing.
inline void require_there(const char* op, const Tensor& x, const Group& group) {
  FIRN_CHECK(group.size() == 1 || x.device() == group.device(), op,
             "ranks exchange tensors of one device: use to(), or a group of the other device",
             "{} is not on {}, as the group is", describe(x), group.device());
}

/// Returns the device where layers make their parameters. One rank exchanges nothing, so with one
/// rank on the CPU, as in Group(), it is `wanted`.
inline Device device_of(const Group& group, Device wanted = default_device()) {
  return group.size() > 1 || group.device().is_cuda() ? group.device() : wanted;
}

inline void require_device_of(const char* op, Device device, const Group& group) {
  FIRN_CHECK(device == device_of(group, device), op, "set options.device to that of the group",
             "the device is {}, and the ranks exchange tensors on {}", device, group.device());
}

/// Indices i64 of an axis of `all` elements, of which this rank has `rows` from `first` on.
struct OwnIndices {
  Tensor at;    ///< index among the rank's own; 0 for others', -1 outside of the axis
  Tensor here;  ///< bool: the rank has it
};
OwnIndices own_indices(const Tensor& index, std::int64_t first, std::int64_t rows,
                       std::int64_t all);

/// This rank's shard of an axis: elements [first, last).
struct AxisPart {
  std::int64_t first = 0, last = 0;
  std::int64_t size() const noexcept { return last - first; }
};

/// Returns this rank's shard. Throws Error unless n is a multiple of the ranks; `what` names n.
inline AxisPart part_of(const char* op, const char* what, std::int64_t n, const Group& group) {
  FIRN_CHECK(n % group.size() == 0, op, "choose a multiple of the ranks",
             "{} = {} cannot be divided by {} ranks", what, n, group.size());
  const std::int64_t part = n / group.size();
  return {part * group.rank(), part * (group.rank() + 1)};
}

}  // namespace firn::dist
