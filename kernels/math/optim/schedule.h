// A learning-rate schedule as plain data, evaluated by the kernel that finishes a step, and on the
// host by optim::Schedule::at(): the formulas are here only.
#pragma once

#include <cstdint>

#include "firn/optim/kinds.h"
#include "kernels/math/macros.h"

namespace firn::math {

using optim::kMaxSchedulePieces;
using optim::ScheduleKind;
using optim::SchedulePiece;

/// A schedule without padding, as its pieces have none.
struct ScheduleTable {
  SchedulePiece pieces[kMaxSchedulePieces];
  std::int64_t count = 0;
};

/// The share of the last cycle that has passed after x steps. The first cycle has `length` steps,
/// and each is `factor` times as long as the one before, up to 64 of them.
FIRN_HD inline double share_of_cycle(double x, double length, double factor) {
  for (int i = 0; i < 64 && factor > 1 && x >= length; ++i) {
    x -= length;
    length *= factor;
  }
  return fmod(x, length) / length;
}

/// 0 at the ends of [0, 1], and 1 in the middle.
FIRN_HD inline double triangle(double share) { return share < 0.5 ? 2 * share : 2 - 2 * share; }

/// The value of a piece `steps` >= 0 after its begin.
FIRN_HD inline double piece_at(const SchedulePiece& s, std::int64_t steps) {
  const double x = static_cast<double>(steps);
  const double part = x / static_cast<double>(s.length);
  const double p = part < 1 ? part : 1;
  switch (s.kind) {
    case ScheduleKind::linear:
      return p < 1 ? s.from + (s.to - s.from) * p : s.to;
    case ScheduleKind::cosine:
      return p < 1 ? s.to + (s.from - s.to) * (1 + cos(3.14159265358979323846 * p)) / 2 : s.to;
    case ScheduleKind::exponential:
      return s.from * pow(s.factor, x);
    case ScheduleKind::polynomial:
      return p < 1 ? s.to + (s.from - s.to) * pow(1 - p, s.factor) : s.to;
    case ScheduleKind::steps:
      return s.from * pow(s.factor, ::floor(part));
    case ScheduleKind::cosine_restarts: {
      const double share = share_of_cycle(x, static_cast<double>(s.length), s.factor);
      return s.to + (s.from - s.to) * (1 + cos(3.14159265358979323846 * share)) / 2;
    }
    case ScheduleKind::triangle:
      return s.from +
             (s.to - s.from) * triangle(part - ::floor(part)) * pow(s.factor, ::floor(part));
    case ScheduleKind::triangle_by_step:
      return s.from + (s.to - s.from) * triangle(part - ::floor(part)) * pow(s.factor, x);
    default:
      return s.from;
  }
}

/// The value after `step` applied steps: that of the last of `count` pieces that has begun.
FIRN_HD inline double schedule_at(const SchedulePiece* pieces, std::int64_t count,
                                  std::int64_t step) {
  std::int64_t i = 0;
  while (i + 1 < count && pieces[i + 1].begin <= step) ++i;
  return piece_at(pieces[i], step - pieces[i].begin);
}
FIRN_HD inline double schedule_at(const ScheduleTable& table, std::int64_t step) {
  // A table that was copied in may hold any bytes: never read past its end.
  const std::int64_t count = table.count < kMaxSchedulePieces ? table.count : kMaxSchedulePieces;
  return schedule_at(table.pieces, count, step);
}

}  // namespace firn::math
