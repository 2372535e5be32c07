// Questions that io, train and dist ask of an optimizer in addition to its public calls. Each
// throws Error if the optimizer was moved from.
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

/// Returns the options of the step, in which automatic ones have been settled.
const StepOptions& options_of(const Optimizer& optimizer);
/// Returns the name that errors use, for example "AdamW".
const std::string& name_of(const Optimizer& optimizer);
Device device_of(const Optimizer& optimizer);
/// Returns the host's position in the cycle.
const Progress& progress_of(const Optimizer& optimizer);
/// Returns the ranks that make its steps together. Both pointers are null for one process.
autograd::StepRanks ranks_of(const Optimizer& optimizer);
/// Returns true if weights are sharded (ZeRO stage 3).
bool weights_sharded(const Optimizer& optimizer);
/// Runs part(), which continues a cycle and may end it. If it throws, the other ranks of the step
/// throw when their part ends.
void part_of_cycle(Optimizer& optimizer, const std::function<void()>& part);
/// Throws Error if a cycle is under way, or if the function of a call that makes a cycle is
/// running.
void require_no_cycle(Optimizer& optimizer, const char* call);
/// Returns a handle to an optimizer that may be moved or destroyed meanwhile. lock() returns null
/// if it is gone.
std::weak_ptr<OptimizerImpl*> handle_of(const Optimizer& optimizer);
/// The position in the cycle that a captured step depends on: true for the first and for the last
/// call of step() in the cycle.
struct CapturePlace {
  bool first = false, last = false;
};
CapturePlace place_of(const OptimizerImpl& impl);
/// Makes the weights show their training values. A graph cannot record that.
void show_training_weights(OptimizerImpl& impl);

/// The part of a saved run that comes from an optimizer.
struct SavedState {
  std::vector<StateEntry> entries;
  std::string not_saved;  ///< why it cannot be saved now; empty: it can be saved
  bool in_batch = false;  ///< true for a save within a batch of exact mode
  std::optional<RandomKey> random_in_batch = {};  ///< random stream before that batch
  std::string place;  ///< part of the model that this rank has; empty: all of it
};
/// Returns the state of this rank and the optional entries of a file. With `of_all`, returns the
/// result of the last gather_state() instead: the state of all ranks, on rank 0. Throws Error while
/// weights are averages, a backward() is running, or a rule is computed. The error is that of `op`
/// and names the optimizer as `part`.
SavedState state_to_save(Optimizer& optimizer, bool of_all, const char* op,
                         const std::string& part);
/// Makes gradients that were copied into the state known to Tensor::grad() and to backward passes.
void adopt_gradients(Optimizer& optimizer);
/// Gathers the state of all ranks, for the next state_to_save(). All ranks make this call. If it
/// throws on one, it throws on all.
void gather_state(Optimizer& optimizer);

}  // namespace firn::optim
