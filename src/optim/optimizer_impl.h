// What is behind an Optimizer, and how the classes of the single algorithms make one.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/cycle.h"
#include "base/check.h"
#include "firn/kernel_support.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"
#include "optim/param_store.h"
#include "optim/scaler.h"

namespace firn::optim {

/// Where the host is in the cycle: part of the state, so it lives in a tensor too.
struct Progress {
  std::int64_t cycles = 0;       ///< ended so far
  std::int64_t epoch = 0;        ///< for the length of the next cycle
  std::int64_t length = 0;       ///< calls of step() in the cycle under way; 0: there is none
  std::int64_t calls = 0;        ///< so far
  std::int64_t micro_steps = 0;  ///< backward passes so far
  std::int64_t counted = 0;      ///< micro_steps at the last call of step()
};

struct Optimizer::Impl final : autograd::Cycle {
  /// Rules: one per group. Throws Error for options outside their range.
  Impl(const char* op, std::vector<GroupSetup> groups, const Schedule& lr, const StepOptions& step);

  /// A cycle that is under way ends here, dropped.
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Does what the host keeps beside the work on the device: `effect(*this)`, now, and where a
  /// graph is being recorded, at each of its replays as well.
  template <class Effect>
  void on_host(Effect&& effect) {
    effect(*this);
    at_replay(std::forward<Effect>(effect));
  }
  /// The second half of this.
  template <class Effect>
  void at_replay(Effect&& effect) {
    if (runtime::capturing(store.device())) [[unlikely]]
      runtime::on_replay(store.device(),
                         [alive = std::weak_ptr<Impl*>(self), effect = std::forward<Effect>(effect),
                          op = store.op()]() mutable {
                           const auto impl = alive.lock();
                           FIRN_CHECK(impl, op, "keep the optimizer as long as the graph",
                                      "the optimizer of a recorded step is gone");
                           effect(**impl);
                         });
  }

  /// While a graph is being recorded: what the host knows of the cycle, now and at each replay, is
  /// put back where the recorded work is not run after all.
  void remember_place();

  /// Takes over a state that was copied in since the last look. Throws Error if it is none of an
  /// optimizer like this.
  void adopt_state();
  /// Changes if a tensor of state() that is not of a parameter is written from outside.
  std::uint32_t version_of_state() const noexcept;
  /// Throws where the optimizer cannot go on with the cycle.
  void check_ready();
  /// Counts the calls of step() that make a cycle; the first thing of a cycle fixes their number.
  void open_cycle() {
    if (at.length == 0) at.length = options.accumulate.at(at.epoch);
  }
  void close_cycle() { at.length = at.calls = at.micro_steps = at.counted = 0; }
  /// Whether there was a backward() since the last call of step() that counted.
  bool has_new_micro_step() const noexcept { return at.micro_steps > at.counted; }
  /// Counts a call of step(). Returns whether it ends the cycle.
  bool count_call();
  /// Throws where the host is at another place of the cycle than when a graph was recorded.
  void require_place(bool as_recorded) const;
  /// Runs the kernels up to the decision, and those after it; the loss scale moves unless others
  /// share it. decide() returns false if the cycle's losses have reached no parameter.
  bool decide();
  void commit(bool moves_scale);
  /// Tells the members of the cycle that it is over; those that have not been told already. Where
  /// that fails in commit(), for a launch that was refused, the next call does it.
  void end_members();
  /// Tells them that it was dropped.
  void drop_members();
  void join(const std::shared_ptr<autograd::CycleMember>& member) override;
  std::int64_t micro_steps() const noexcept override;
  /// Throws where too many steps in a row were skipped (S12), once for each of them. A device's
  /// outcomes are those that the host can see without waiting.
  void check_skips();
  /// Each warns once.
  void warn_if_unreached(bool reached);
  void warn_of_empty_step();

  StepOptions options;
  math::StepPolicy policy;
  Tensor kind_memory;      ///< u8 [32] on the CPU: a text, zeros behind it
  Tensor progress_memory;  ///< i64 [6] on the CPU: a Progress
  Progress& at;
  ParamStore store;
  LossScaler scaler;
  Schedule lr;
  std::vector<Tensor> restored;                                 ///< see restore_on_retry()
  std::vector<std::shared_ptr<autograd::CycleMember>> members;  ///< of the cycle, so far
  std::size_t to_end = 0;           ///< of members: the last so many, see end_members()
  std::int64_t parts = 0;           ///< of the two-pass step that is being made
  bool broken = false;              ///< a backward pass has thrown half-way in this cycle
  bool averaged = false;            ///< the weights are their averages at the moment
  std::uint32_t state_version = 0;  ///< at the last look of adopt_state()
  bool warned_unreached = false, warned_empty = false;
  std::int64_t complained = 0;  ///< last cycle for which check_skips() has thrown
  /// For graphs, which may outlive it.
  const std::shared_ptr<Impl*> self = std::make_shared<Impl*>(this);
};

/// Throws Error unless low <= value < high (and so for a NaN).
inline void require_option(const char* op, const char* name, double value, double low,
                           double high = HUGE_VAL) {
  FIRN_CHECK(value >= low && value < high, op, "", "{} is {}, not in [{}, {})", name, value, low,
             high);
}

/// Throws Error unless 0 < value < infinity.
inline void require_positive(const char* op, const char* name, double value) {
  FIRN_CHECK(value > 0 && value < HUGE_VAL, op, "", "{} is {}, not a positive number", name, value);
}

}  // namespace firn::optim
