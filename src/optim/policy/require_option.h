// Checks of numbers that users give as options.
#pragma once

#include <cmath>
#include <limits>

#include "base/check.h"
#include "firn/optim/schedule.h"

namespace firn::optim {

/// Throws Error unless low <= value < high. A NaN throws too.
inline void require_option(const char* op, const char* name, double value, double low, double high,
                           const char* hint) {
  FIRN_CHECK(value >= low && value < high, op, hint, "{} is {}, not in [{}, {})", name, value, low,
             high);
}
/// Throws Error unless low <= value.
inline void require_option(const char* op, const char* name, double value, double low,
                           const char* hint) {
  require_option(op, name, value, low, HUGE_VAL, hint);
}

/// Checks a number that rules multiply weights by. Its square is finite in f32, and so are the
/// squares of what a step makes of ordinary weights and gradients.
inline void require_decay(const char* op, const char* name, double value, const char* hint) {
  require_option(op, name, value, 0, 0x1p30, hint);
}

/// Throws Error unless the constant rate is valid. A schedule has checked its rates itself.
inline void require_lr(const char* op, const Schedule& lr) {
  require_option(op, "lr", lr.at(0), 0, "0 leaves the weights as they are");
}
/// Returns the least number above 0 of f64, or else of f32: arithmetic takes subnormal numbers for
/// 0.
inline double least_number(DType type) {
  return type == DType::f64 ? std::numeric_limits<double>::min()
                            : static_cast<double>(std::numeric_limits<float>::min());
}

/// Learning rates that weights can use, in the arithmetic of their type; 0 besides.
struct RateRange {
  double least = 0;
  double most = HUGE_VAL;
};

/// Also throws Error if an end of one of the schedule's pieces is not in `range`, nor 0. Between
/// the ends a rate may still fall below it, where it counts as 0, or exceed it
/// (NonFinite::learning_rate).
inline void require_lr(const char* op, const Schedule& lr, const RateRange& range) {
  require_lr(op, lr);
  for (int i = 0; i < lr.count(); ++i)
    for (const double rate : {lr.pieces()[i].from, lr.pieces()[i].to}) {
      FIRN_CHECK(rate <= range.most, op, "give a rate that the parameters' type can use",
                 "lr is {}, more than {}", rate, range.most);
      FIRN_CHECK(rate == 0 || rate >= range.least, op,
                 "give 0, or a rate that the parameters' type can use",
                 "lr is {}, which the weights' arithmetic takes for 0: it is less than {}", rate,
                 range.least);
    }
}

/// Throws Error unless 0 < value < infinity.
inline void require_positive(const char* op, const char* name, double value, const char* hint) {
  FIRN_CHECK(value > 0 && value < HUGE_VAL, op, hint, "{} is {}, not a positive number", name,
             value);
}

}  // namespace firn::optim
