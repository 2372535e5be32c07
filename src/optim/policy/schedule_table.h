// Converts a Schedule to the form that kernels use.
#pragma once

#include <algorithm>

#include "firn/optim/schedule.h"
#include "kernels/math/optim/schedule.h"

namespace firn::optim {

inline math::ScheduleTable table_of(const Schedule& s) {
  math::ScheduleTable out;
  out.count = s.count();
  std::copy_n(s.pieces(), s.count(), out.pieces);
  return out;
}

}  // namespace firn::optim
