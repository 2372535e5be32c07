// Snapshots of a cycle. A plan restores one at its end, and so does a RollbackPoint. They also
// serve if memory runs out in a pass, or if captured work is not run.
#pragma once

#include <cstdint>
#include <vector>

#include "firn/error.h"
#include "optim/access.h"
#include "optim/cycle/cycle_state.h"
#include "optim/cycle/progress.h"
#include "optim/store/gradient_ledger.h"

namespace firn::optim {

/// The host's part of a cycle.
struct HostSnapshot {
  Progress at;
  CycleState now;
  GradientLedger::Place gradients;
};
/// A cycle on the host and on the device.
struct CycleSnapshot {
  HostSnapshot host;
  Tensor sums;                    ///< u8: the math::LossSums at the beginning of the step state
  std::vector<Tensor> gradients;  ///< one for each arena; undefined if the arena holds no gradient
  std::uint32_t version;          ///< version_of_state() at the time of the snapshot
};
/// Reserved memory for the tensors of a CycleSnapshot.
struct CycleCopy {
  Tensor sums;
  std::vector<Tensor> gradients;
};

HostSnapshot keep_host(const OptimizerImpl& impl);
void put_back(OptimizerImpl& impl, const HostSnapshot& kept) noexcept;
CycleCopy reserve_copy(const OptimizerImpl& impl);
/// Copies the cycle into `memory`, or into new memory if that is null.
CycleSnapshot keep_cycle(OptimizerImpl& impl, const CycleCopy* memory = nullptr);
/// Restores the cycle. Keeps a state that was copied in meanwhile, and a step that was made.
void put_back(OptimizerImpl& impl, const CycleSnapshot& kept);
/// Returns true if zero_grad() would drop nothing.
bool cycle_is_empty(const OptimizerImpl& impl) noexcept;

/// Every call of an optimizer begins with this. In a plan of a step, it arranges that all that the
/// host knows is restored at the end of the plan.
void keep_if_planned(OptimizerImpl& impl);
/// Announces a change of the cycle: rollback points of this thread keep it as it is now. Replays
/// call it too.
void about_to_change_cycle(OptimizerImpl& impl);
/// Announces a change of the tensors given to restore_on_retry().
void about_to_change_restored(const OptimizerImpl& impl);
/// While a graph is captured, arranges that the host's part of the cycle is restored if the
/// captured work is not run. Each replay does the same.
void remember_place(OptimizerImpl& impl);
/// Handles memory that ran out in a backward pass: restores the cycle to `before`, or drops it if
/// that is null. Throws OutOfMemory with a text that says so, if there is memory for the text.
[[noreturn]] void out_of_memory(OptimizerImpl& impl, const OutOfMemory& e,
                                const CycleSnapshot* before);

}  // namespace firn::optim
