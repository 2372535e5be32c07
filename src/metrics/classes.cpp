#include "metrics/classes.h"

#include "base/check.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"
#include "kernels/index.h"

namespace firn::metrics {
namespace {

/// Replaces a float that is not an integer: it is out of range for any ignore_index.
constexpr double kNoClass = -9007199254740992.0;

Tensor counted(const char* name, const Tensor& list, std::int64_t places) {
  Tensor counts = empty({places}, i64, list.device());
  kernels::count(name, list.view(), counts.mutable_view(), current_stream(list.device()));
  return counts;
}

}  // namespace

std::optional<int> class_axis(const char* name, const Tensor& output, const Tensor& target,
                              std::int64_t axis, std::int64_t classes) {
  FIRN_CHECK(is_floating(output.dtype()), name, "give the logits, not the classes",
             "outputs are floating, got {}", describe(output));
  if (output.shape() == target.shape()) {
    FIRN_CHECK(
        classes == 0 || classes == 2, name, "give logits with an axis of classes, [n, C, ...]",
        "output {} of the target's shape has two classes, expected {}", describe(output), classes);
    return std::nullopt;
  }
  const std::int64_t a = axis < 0 ? axis + output.rank() : axis;
  Shape rows = output.shape();
  const bool exists = a >= 0 && a < output.rank();
  if (exists) rows.erase(static_cast<int>(a));
  FIRN_CHECK(exists && rows == target.shape(), name,
             "the target has the output's shape without the axis of classes",
             "output {} with classes on axis {}, target {}", describe(output), axis,
             describe(target));
  const std::int64_t found = output.size(a);
  FIRN_CHECK(classes == 0 ? found > 1 : found == classes, name,
             found == 1 ? "for two classes drop the axis: output.squeeze(1)"
                        : "give the number of classes in the options",
             "output {} has {} classes on axis {}, expected {}", describe(output), found, a,
             classes == 0 ? std::string("several") : std::to_string(classes));
  return static_cast<int>(a);
}

Tensor class_numbers(const char* name, const Tensor& target, std::int64_t classes,
                     std::optional<std::int64_t> ignore_index) {
  Tensor list = flatten(cast(target, i64));
  if (is_floating(target.dtype())) {
    const Tensor whole = eq(cast(list, target.dtype()), flatten(target));
    if (target.device().is_cpu()) {
      const double others = static_cast<double>(list.numel()) - sum(whole).item();
      FIRN_CHECK(others == 0 || runtime::dry_run(), name, "class numbers are 0, 1, 2, ...",
                 "{} targets of {} are no whole numbers", others, describe(target));
    }
    list = where(whole, list, kNoClass);
  }
  Tensor known = list;
  if (ignore_index) {
    const Tensor ignored = eq(list, static_cast<double>(*ignore_index));
    known = where(ignored, 0.0, list);
    list = where(ignored, -1.0, list);
  }
  // The kernel checks the classes. A class that it leaves out is missing from the sum.
  const Tensor total = sum(counted(name, known, classes));
  return where(eq(total, static_cast<double>(known.numel())), list, -1.0);
}

Tensor chosen_classes(const Tensor& output, std::optional<int> axis) {
  return flatten(axis ? argmax(output, *axis) : cast(gt(output, 0.0), i64));
}

Tensor class_counts(const char* name, const Tensor& list, std::int64_t places) {
  return slice(counted(name, list + 1.0, places + 1), 0, 1, places + 1);
}

}  // namespace firn::metrics
