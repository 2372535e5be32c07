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

/// Throws Error unless the group can exchange x; one rank exchanges nothing.
inline void require_there(const char* op, const Tensor& x, const Group& group) {
  FIRN_CHECK(group.size() == 1 || x.device() == group.device(), op,
             "ranks exchange tensors of one device: use to(), or a group of the other device",
             "{} is not on {}, as the group is", describe(x), group.device());
}

/// Where layers make their parameters. One rank exchanges nothing, so a group on the CPU, as
/// Group() is, leaves its layers where they are wanted.
inline Device device_of(const Group& group, Device wanted = default_device()) {
  return group.size() > 1 || group.device().is_cuda() ? group.device() : wanted;
}

inline void require_device_of(const char* op, Device device, const Group& group) {
  FIRN_CHECK(device == device_of(group, device), op, "set options.device to that of the group",
             "the device is {}, and the ranks exchange tensors on {}", device, group.device());
}

/// Indices i64 of an axis of `all` elements, of which this rank has `rows` from `first` on.
struct OwnIndices {
  Tensor at;    ///< among the rank's own; 0 for others', and -1 for what is outside of the axis
  Tensor here;  ///< bool: the rank has it
};
OwnIndices own_indices(const Tensor& index, std::int64_t first, std::int64_t rows,
                       std::int64_t all);

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
