// Schedule as the kernels know it.
#pragma once

#include "firn/optim/schedule.h"
#include "kernels/math/schedule.h"

namespace firn::optim {

static_assert(Schedule::kMaxPieces == math::kMaxSchedulePieces);
static_assert(sizeof(math::SchedulePiece) == 6 * 8);

inline math::SchedulePiece to_math(const Schedule::Piece& p) {
  return {static_cast<math::ScheduleKind>(p.kind), p.begin, p.length, p.from, p.to, p.factor};
}

inline math::ScheduleTable table_of(const Schedule& s) {
  math::ScheduleTable out;
  out.count = s.count();
  for (int i = 0; i < s.count(); ++i) out.pieces[i] = to_math(s.pieces()[i]);
  return out;
}

}  // namespace firn::optim
