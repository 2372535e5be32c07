// Names that were renamed before 0.1.0. firn.h includes this header, so programs with the old names
// still compile, with a warning. 0.1.0 removes it.
#pragma once

#include "firn/dist/distribute.h"
#include "firn/optim/gathered_weights.h"

namespace firn {

namespace optim {
/// Old name of GatheredWeights.
using WholeWeights [[deprecated("renamed to GatheredWeights")]] = GatheredWeights;
}  // namespace optim

namespace dist {
/// Old name of mark_sharded().
[[deprecated("renamed to mark_sharded()")]] inline void mark_divided(const Tensor& parameter) {
  mark_sharded(parameter);
}
/// Old name of is_sharded().
[[deprecated("renamed to is_sharded()")]] inline bool is_divided(const Tensor& parameter) {
  return is_sharded(parameter);
}
}  // namespace dist

}  // namespace firn
