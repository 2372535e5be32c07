// The host's state of an optimizer, apart from its weights, its options and the tensors of state().
// Each struct is copied as a whole, so snapshots keep every field (snapshot.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "firn/optim/micro_batch.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_report.h"
#include "firn/random.h"
#include "firn/tensor.h"
#include "kernels/math/loss_sums.h"

namespace firn::optim {

/// Phases of a cycle, which exclude each other.
enum class Phase : std::uint8_t {
  collecting,  ///< between backward passes, and before the first one
  failed,      ///< a pass or an exchange is running, or has thrown half-way
  combined,    ///< sums are those of all ranks; decision and update are to come
  publishing,  ///< the update is done, but weights of other ranks have not all arrived
};

/// The state of the cycle under way, apart from Progress and the GradientLedger.
struct CycleState {
  Phase phase = Phase::collecting;
  bool parts_held = false;          ///< sharded gradients hold sums of this cycle
  math::LossSums sums_before = {};  ///< the step state's sums when the cycle began
  math::LossSums sums_of_all = {};  ///< in Phase::combined: the sums of all ranks at its end

  bool failed() const noexcept { return phase == Phase::failed; }
  /// Ends or drops the cycle. Weights that have not arrived are still missing afterwards.
  void close() noexcept {
    if (phase != Phase::publishing) phase = Phase::collecting;
    parts_held = false;
  }
};

/// Cut of a cycle into micro-batches by run_batch(); micro_batch is 0 if there was none.
struct Cut {
  std::int64_t micro_batch = 0, retries = 0;
};
/// The cut of a cycle that has ended.
struct LastCut {
  Cut cut = {};
  std::int64_t cycles = 0;  ///< Progress::cycles when that cycle had ended
};

/// The calls under way.
struct CallState {
  const char* maker = nullptr;  ///< name of the call that makes a whole cycle, or null
  std::int64_t batch = 0;       ///< samples of run_batch() on all ranks
  std::int64_t parts = 0;       ///< number of parts of step_two_pass()
  Cut cut = {};
  const char* running = nullptr;  ///< name of the innermost call, or null
};

/// Warnings that an optimizer gives once.
enum class Warned : std::uint8_t { unreached, empty, unheld, dropped, unscaled };

/// The warnings that an optimizer has given.
class GivenWarnings {
 public:
  bool has(Warned w) const noexcept { return (bits_ >> static_cast<int>(w) & 1) != 0; }
  /// Adds a warning. Returns true if it is the first of its kind.
  bool first(Warned w) noexcept {
    const bool is_first = !has(w);
    bits_ |= 1U << static_cast<int>(w);
    return is_first;
  }

 private:
  std::uint32_t bits_ = 0;
};

/// Settings that calls may change, and observations. Both outlive cycles.
struct HostNotes {
  Schedule lr;
  MicroBatch split = {};                                 ///< argument of the last run_batch()
  std::int64_t split_size = 0;                           ///< size that was chosen for it
  LastCut last_cut = {};                                 ///< cut of the last cycle
  std::vector<Tensor> restored = {};                     ///< see Optimizer::restore_on_retry()
  std::function<void(const StepReport&)> listener = {};  ///< see StepListener
  std::uint32_t state_version = 0;  ///< version_of_state() at the last adopt_state()
  bool averaged = false;            ///< true if the weights are their averages (AveragedWeights)
  bool no_scale_chosen = false;     ///< true if LossScale::automatic has chosen no scale
  GivenWarnings warned = {};
  std::string unheld = {};      ///< ParamStore::unheld() when the last cycle was decided
  std::int64_t complained = 0;  ///< number of the cycle for which check_skips() has thrown
};

}  // namespace firn::optim
