// Functions that read classes from a batch, for metrics. They run on the device, and the host does
// not wait.
#pragma once

#include <cstdint>
#include <optional>

#include "firn/tensor.h"

namespace firn::metrics {

/// Returns the axis of the classes in `output`, or nullopt if it has the target's shape: logits of
/// two classes. Throws Error in the name of `name` unless the shapes fit, the output is floating,
/// and the axis has `classes` classes. With 0, it may have any number above 1.
std::optional<int> class_axis(const char* name, const Tensor& output, const Tensor& target,
                              std::int64_t axis, std::int64_t classes);

/// Returns the targets as a list of i64, with -1 for targets that do not count. These are the
/// targets equal to `ignore_index`. On a CUDA device, they are all targets of a batch that has a
/// class outside [0, classes), which is noted as a fault there. On the CPU such a class throws
/// Error.
Tensor class_numbers(const char* name, const Tensor& target, std::int64_t classes,
                     std::optional<std::int64_t> ignore_index);

/// Returns the chosen classes as a list of i64.
Tensor chosen_classes(const Tensor& output, std::optional<int> axis);

/// Returns how often each of 0 .. places - 1 is in `list`, as i64. Elements of -1 are not counted.
Tensor class_counts(const char* name, const Tensor& list, std::int64_t places);

}  // namespace firn::metrics
