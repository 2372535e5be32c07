// Snapshots of a cycle: they are put back after a plan, by a RollbackPoint, if memory runs out in a
// pass, and if captured work is not run.
#pragma once

#include <cstdint>
#include <vector>

#include "firn/error.h"
#include "optim/access.h"
#include "optim/cycle/cycle_state.h"
#include "optim/cycle/progress.h"
#include "optim/store/gradient_ledger.h"

namespace firn::optim {

/// The host's part of a cycle, as it was.
struct HostSnapshot {
  Progress at;
  CycleState now;
  GradientLedger::Counts contributions;
};
/// The cycle, on the host and on the device.
struct CycleSnapshot {
  HostSnapshot host;
  Tensor sums;                    ///< u8: the math::SeedSums that the step state begins with
  std::vector<Tensor> gradients;  ///< undefined for arenas that hold none
  std::uint32_t version;          ///< of the state
};
/// Memory for the tensors of a CycleSnapshot.
struct CycleCopy {
  Tensor sums;
  std::vector<Tensor> gradients;
};

HostSnapshot keep_host(const OptimizerImpl& impl);
void put_back(OptimizerImpl& impl, const HostSnapshot& kept) noexcept;
CycleCopy reserve_copy(const OptimizerImpl& impl);
/// Copies into memory that was reserved, or (null) into new memory.
CycleSnapshot keep_cycle(OptimizerImpl& impl, const CycleCopy* memory = nullptr);
/// A state that was copied in meanwhile stays, and so does a step that was made.
void put_back(OptimizerImpl& impl, const CycleSnapshot& kept);
/// Whether there is nothing that zero_grad() would drop.
bool cycle_is_empty(const OptimizerImpl& impl) noexcept;

/// Every call of an optimizer begins with it: in a plan of a step, all that the host knows is put
/// back at its end.
void keep_if_planned(OptimizerImpl& impl);
/// The cycle is about to change: points of this thread keep it as it is. Called at replays too.
void about_to_change_cycle(OptimizerImpl& impl);
/// The tensors given to restore_on_retry() are about to change.
void about_to_change_restored(const OptimizerImpl& impl);
/// While a graph is captured: if its work is not run after all, the host's part of the cycle is put
/// back. Each replay does the same.
void remember_place(OptimizerImpl& impl);
/// Memory ran out in a backward pass: the cycle is as it was, or (null) dropped. Throws OutOfMemory
/// that says so, if there is memory for that.
[[noreturn]] void out_of_memory(OptimizerImpl& impl, const OutOfMemory& e,
                                const CycleSnapshot* before);

}  // namespace firn::optim
