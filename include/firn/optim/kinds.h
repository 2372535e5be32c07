// Names that the optimizer and the kernels of its step have in common: how a cycle ended, and the
// pieces of a schedule.
//
// Formulas include it, so it belongs to the layer base, unlike the other headers of this folder.
#pragma once

#include <cstdint>

namespace firn::optim {

/// Outcome of a cycle. The numbers are part of an optimizer's saved state.
enum class StepStatus : std::int32_t {
  accumulating,        ///< the cycle goes on: nothing was to be done
  applied,             ///< the weights were updated
  skipped_empty,       ///< the cycle's total weight was 0: there was nothing to average
  skipped_non_finite,  ///< loss, weight or gradient held an infinity or a NaN: nothing was changed
  skipped_partner,     ///< optim::step_all() skipped another optimizer's step: nothing was changed
  skipped_no_gradients,  ///< the losses reached no parameter of the optimizer: nothing was changed
};

/// Value that was not finite if a step was skipped for that: the first that applies. A loss or
/// weight comes before the gradient, which then says nothing about the loss scale.
enum class NonFinite : std::int32_t {
  /// Everything was finite.
  none,
  weight,    ///< the sum of the losses' weights
  loss,      ///< the sum of the losses: no fault of the loss scale, which stays
  gradient,  ///< see StepReport::culprit(): a dynamic loss scale backs off
  /// The learning rate, which is beyond what the parameters' type can use: 2^100 in f32. The loss
  /// scale stays. The schedule does not go on, so later steps are skipped, too.
  learning_rate,
};

// 64 bits: a piece has no padding, so equal schedules have equal bytes.
/// The formulas of a SchedulePiece.
enum class ScheduleKind : std::int64_t {
  constant,
  linear,
  cosine,
  exponential,
  polynomial,
  steps,
  cosine_restarts,
  triangle,
  triangle_by_step
};

/// One piece of a Schedule, from `begin` to the next piece's begin. With x = step - begin and
/// p = min(x / length, 1):
///   constant     from
///   linear       from + (to - from) p
///   cosine       to + (from - to) (1 + cos(pi p)) / 2
///   exponential  from * factor^x
///   polynomial   to + (from - to) (1 - p)^factor
///   steps        from * factor^floor(x / length)
/// cosine_restarts: repeats the formula of cosine, each time over `factor` times as many steps. The
/// triangles, with h = 1 - |2 (x mod length) / length - 1|, are:
///   triangle          from + (to - from) h factor^floor(x / length)
///   triangle_by_step  from + (to - from) h factor^x
struct SchedulePiece {
  ScheduleKind kind = ScheduleKind::constant;  ///< formula of the piece
  std::int64_t begin = 0;                      ///< the first step of the piece
  std::int64_t length = 1;                     ///< steps, 1 or more
  double from = 0, to = 0, factor = 1;         ///< see the formulas
};
static_assert(sizeof(SchedulePiece) == 6 * 8);

/// Largest number of pieces of a schedule.
inline constexpr int kMaxSchedulePieces = 32;

}  // namespace firn::optim
