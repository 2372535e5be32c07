// The host's state of an optimizer, beside its weights, its options and the tensors of state().
// Each struct is copied as a whole, so a field that is added is kept wherever the others are
// (snapshot.h).
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
#include "kernels/math/seed.h"

namespace firn::optim {

/// States of a cycle that exclude each other.
enum class Phase : std::uint8_t {
  collecting,  ///< between backward passes, and before the first one
  failed,      ///< a pass or an exchange is running, or has thrown half-way
  combined,    ///< the sums are those of all ranks: the decision and the update are left
  publishing,  ///< the update is made, and weights of other ranks have not all come
};

/// The cycle under way, beside Progress and the GradientLedger.
struct CycleState {
  Phase phase = Phase::collecting;
  bool exchanged = false;   ///< the gradients are sums of all ranks, the scalars are not yet
  bool parts_held = false;  ///< sharded gradients hold sums of this cycle
  math::SeedSums sums_before = {};  ///< the step state's sums when the cycle began
  math::SeedSums sums_of_all = {};  ///< in Phase::combined: the same at its end

  bool failed() const noexcept { return phase == Phase::failed; }
  /// The cycle has ended or is dropped. Weights that have not all come are still missing.
  void close() noexcept {
    if (phase != Phase::publishing) phase = Phase::collecting;
    exchanged = parts_held = false;
  }
};

/// How run_batch() has cut a cycle; 0: it did not.
struct Cut {
  std::int64_t micro_batch = 0, retries = 0;
  std::int64_t cycles = 0;  ///< at its end
};

/// The call under way that makes a whole cycle.
struct CallState {
  const char* maker = nullptr;  ///< its name, or null
  std::int64_t batch = 0;       ///< samples of run_batch(), on all ranks
  std::int64_t parts = 0;       ///< of step_two_pass()
  Cut cut = {};
};

/// Settings that calls may change, and what was noticed: both outlive cycles.
struct HostNotes {
  Schedule lr;
  MicroBatch split = {};                                 ///< as run_batch() was last asked
  std::int64_t split_size = 0;                           ///< what came of it
  Cut last_cut = {};                                     ///< of the last cycle
  std::vector<Tensor> restored = {};                     ///< see Optimizer::restore_on_retry()
  std::function<void(const StepReport&)> listener = {};  ///< see StepListener
  std::uint32_t state_version = 0;  ///< of state() at the last look of adopt_state()
  bool averaged = false;            ///< the weights are their averages (AveragedWeights)
  bool no_scale_chosen = false;     ///< f32 parameters, and StepOptions::loss_scale was not set
  bool warned_unreached = false, warned_empty = false, warned_unheld = false;
  std::string unheld = {};      ///< ParamStore::unheld() when the last cycle was decided
  std::int64_t complained = 0;  ///< the cycle for which check_skips() has thrown
};

}  // namespace firn::optim
