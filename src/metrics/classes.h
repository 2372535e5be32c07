// What metrics of classes read from a batch. All of it runs on the device, and the host does not
// wait.
#pragma once

#include <cstdint>
#include <optional>

#include "firn/tensor.h"

namespace firn::metrics {

/// The axis of the classes in `output`, or none if it has the target's shape: logits of two
/// classes. Throws Error in the name of `name` unless the shapes fit, the output is floating, and
/// an axis of classes has `classes` of them. 0: any number above 1.
std::optional<int> class_axis(const char* name, const Tensor& output, const Tensor& target,
                              std::int64_t axis, std::int64_t classes);

/// The targets as a list of i64, -1 for those that do not count: those of `ignore_index` and, on a
/// CUDA device, all of a batch with a class outside [0, classes), which is noted as a fault there.
/// On the CPU such a class is an Error.
Tensor class_numbers(const char* name, const Tensor& target, std::int64_t classes,
                     std::optional<std::int64_t> ignore_index);

/// The chosen classes as a list of i64.
Tensor chosen_classes(const Tensor& output, std::optional<int> axis);

/// How often each of 0 .. places - 1 is in `list`, i64. Elements of -1 count for none.
Tensor class_counts(const char* name, const Tensor& list, std::int64_t places);

}  // namespace firn::metrics
