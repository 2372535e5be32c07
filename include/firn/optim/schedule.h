// Learning-rate schedules: plain data, evaluated where the step runs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "firn/optim/kinds.h"

namespace firn::optim {

/// A number as a function of the count of applied steps (S01 in docs/semantics.md): step 0 is the
/// first. It is a list of pieces. So an optimizer can keep it in device memory, and evaluate it in
/// the kernel that finishes a step. A plain number converts to a constant schedule.
class Schedule {
 public:
  using Kind = ScheduleKind;                             ///< the formula of a piece
  using Piece = SchedulePiece;                           ///< the formula of each kind: kinds.h
  static constexpr int kMaxPieces = kMaxSchedulePieces;  ///< pieces that a schedule can have

  /// Constant. The optimizer or function that is given it throws Error unless 0 <= value <
  /// infinity.
  Schedule(double value = 0);  // NOLINT: a number is a schedule

  /// Returns the value at an applied-step count of `step` >= 0.
  double at(std::int64_t step) const noexcept;
  /// Describes the schedule:
  /// "warm-up 0 to 0.001 over 200 steps, then cosine to 0 over 10000 steps".
  std::string describe() const;

  // For the library.
  int count() const noexcept { return count_; }
  const Piece* pieces() const noexcept { return pieces_.data(); }
  /// Appends a piece; one that begins at 0 replaces all before it. Throws Error if there are
  /// kMaxPieces already, if `begin` is not after the last one's, or if a number is out of range.
  void append(const Piece& piece);

 private:
  std::array<Piece, kMaxPieces> pieces_{};
  int count_ = 0;
};

// Each throws Error for rates that are negative or not finite, and lengths below 1 (of warmup()
// below 0).

/// lr * factor^(number of times `every` steps have passed).
Schedule step_decay(double lr, std::int64_t every, double factor = 0.1);
/// lr, multiplied by `factor` at each milestone (increasing step counts).
Schedule multi_step(double lr, std::initializer_list<std::int64_t> milestones, double factor = 0.1);
/// lr * factor^step.
Schedule exponential(double lr, double factor);
/// Goes from `from` to `to` over `steps`, then stays at `to`.
Schedule linear_schedule(double from, double to, std::int64_t steps);
/// Falls by half a cosine from lr to `end` over `steps`, then stays (Loshchilov & Hutter 2017).
Schedule cosine(double lr, std::int64_t steps, double end = 0);
/// Falls by half a cosine from lr to `end` over `steps`, then again from lr, each time over
/// `longer` (1 or more) times the steps: SGDR (Loshchilov & Hutter 2017).
Schedule cosine_restarts(double lr, std::int64_t steps, std::int64_t longer = 1, double end = 0);

/// Decay of the height of cycles.
struct CyclicOptions {
  double per_cycle = 1;  ///< factor of each cycle: 0.5 is PyTorch's "triangular2"; in [0, 1]
  double per_step = 1;   ///< factor of each step: gamma of PyTorch's "exp_range"; in [0, 1]
};
/// Rises from `base` to `max` in `half` steps and falls again in `half` steps, for ever (Smith
/// 2017). At most one of the options may be other than 1.
Schedule cyclic(double base, double max, std::int64_t half, const CyclicOptions& options = {});
/// A function of the step, as straight pieces: exact at their ends, and between them off by at most
/// `tolerance` (0 or more; 1e-15 at least) times the largest of all values. The function is called
/// for steps 0 to `steps`, 2^24 at most; after that, the last value stays. A value within the
/// tolerance of 0 is 0 if f32 arithmetic takes it for 0. Throws Error if it takes more than
/// Schedule::kMaxPieces, or if a value is negative or not finite. For any other function, call
/// set_lr() before each step.
Schedule lambda_schedule(const std::function<double(std::int64_t)>& rate, std::int64_t steps,
                         double tolerance = 1e-3);
/// (lr - end) (1 - step/steps)^power + end, then `end`.
Schedule polynomial(double lr, std::int64_t steps, double power = 1, double end = 0);
/// Linear from 0 over `steps` up to then.at(0), followed by `then`, whose step 0 is step `steps`.
/// The first step's rate is then.at(0) / steps rather than 0. With 0 steps it is `then` itself.
Schedule warmup(std::int64_t steps, const Schedule& then);
/// Cosine from max/start_divisor up to max, which is the last of the first rise * steps (rounded),
/// then cosine down to max/end_divisor, which is the last of all, and stays (Smith & Topin 2018, in
/// two phases; PyTorch's final_div_factor is end_divisor / start_divisor). The peak is always a
/// step's rate: PyTorch lets it fall between two steps if rise * steps is not a whole number, and
/// is the same otherwise. Needs 3 steps or more.
Schedule one_cycle(double max, std::int64_t steps, double rise = 0.3, double start_divisor = 25,
                   double end_divisor = 1e4);
/// Runs schedules one after another: each for its number of steps, counted from its own 0; the last
/// one for ever, whatever its number.
Schedule sequence(std::initializer_list<std::pair<Schedule, std::int64_t>> parts);
/// `s` with every value multiplied by `factor`.
Schedule scaled(const Schedule& s, double factor);
/// Rule of thumb for a batch `factor` times as large: rates grow with it, or with its root.
enum class BatchScaling : std::uint8_t { linear, square_root };
/// `s` with its values multiplied by the factor of that rule.
Schedule scaled_for_batch(const Schedule& s, double factor,
                          BatchScaling rule = BatchScaling::linear);

/// Lowers a rate by `factor` when a measured value has not improved more than `patience` times in a
/// row (fed from the host, once per epoch, say):
///   if (plateau.observe(test_loss)) opt.set_lr(plateau.lr());
class Plateau {
 public:
  struct Options {
    double lr = 1e-3;               ///< the rate at first
    double factor = 0.1;            ///< in (0, 1)
    int patience = 10;              ///< observations without improvement that are tolerated
    double threshold = 1e-4;        ///< relative improvement that counts
    double min_lr = 0;              ///< the rate gets no lower; below 2^-126 it falls to this
    bool larger_is_better = false;  ///< observed values should grow, as an accuracy
  };
  /// Throws Error for an option outside its range.
  explicit Plateau(const Options& options);
  /// Takes one measurement; returns whether the rate was lowered. A NaN counts as no improvement.
  bool observe(double value);
  /// Returns the rate now.
  double lr() const noexcept { return lr_; }

 private:
  Options options_;
  double lr_;
  double best_;
  int bad_ = 0;
};

}  // namespace firn::optim
