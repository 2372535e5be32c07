// Questions that io, train and dist may ask of an optimizer beside its public calls. Each throws
// Error if the optimizer was moved from.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/peers.h"
#include "firn/optim/optimizer.h"
#include "firn/random.h"
#include "optim/access.h"
#include "optim/cycle/progress.h"
#include "optim/store/state_entry.h"

namespace firn::optim {

/// The options of the step, where automatic ones are settled.
const StepOptions& options_of(const Optimizer& optimizer);
/// "AdamW": what errors call it.
const std::string& name_of(const Optimizer& optimizer);
Device device_of(const Optimizer& optimizer);
/// Where the host is in the cycle.
const Progress& progress_of(const Optimizer& optimizer);
/// The ranks that make its steps together; null in both if there is one process.
autograd::StepRanks ranks_of(const Optimizer& optimizer);
/// Whether weights are sharded (ZeRO stage 3).
bool weights_sharded(const Optimizer& optimizer);
/// Runs part(), which goes on with a cycle and may end it. If it throws, the other ranks of the
/// step throw at the end of theirs.
void part_of_cycle(Optimizer& optimizer, const std::function<void()>& part);
/// Throws Error if a cycle is under way, or the function of a call that makes one.
void require_no_cycle(Optimizer& optimizer, const char* call);
/// An optimizer that may be moved or destroyed meanwhile: lock() gives null if it is gone.
std::weak_ptr<OptimizerImpl*> handle_of(const Optimizer& optimizer);
/// The cycle's place in what a captured step depends on: whether a call of step() is the first of
/// its cycle, and whether it is the last.
struct CapturePlace {
  bool first = false, last = false;
};
CapturePlace place_of(const OptimizerImpl& impl);
/// The weights become those of training, which a graph cannot record.
void show_training_weights(OptimizerImpl& impl);

/// What a saved run has of an optimizer.
struct SavedState {
  std::vector<StateEntry> entries;
  std::string not_saved;                          ///< why it cannot be saved now; empty: it can
  bool in_batch = false;                          ///< the save is one within a batch of exact mode
  std::optional<RandomKey> random_in_batch = {};  ///< where the random stream was before that
  std::string place;  ///< which part of a model this rank has; empty: all of it
};
/// The state of this rank, with what a file may have beside it; `of_all`: that which gather_state()
/// has left, the state of all ranks on rank 0. Throws Error, of `op` and naming the optimizer as
/// `part`, while weights are averages or a backward() is running.
SavedState state_to_save(Optimizer& optimizer, bool of_all, const char* op,
                         const std::string& part);
/// Gathers the state of all ranks, for the next state_to_save(). A call of all ranks. If it throws
/// on one, it does on all.
void gather_state(Optimizer& optimizer);

}  // namespace firn::optim
