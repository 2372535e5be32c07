// The state of an optimizer as others read, save and write it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/peers.h"
#include "optim/access.h"
#include "optim/store/state_entry.h"

namespace firn::optim {

/// See ParamStore::state().
std::vector<StateEntry> state_of(OptimizerImpl& impl, const autograd::Peers* peers);
/// `impl.state_of_all` becomes the same of all ranks' cycle, on rank 0: a call of all ranks. If it
/// throws on one, it does on all.
void gather_state(OptimizerImpl& impl);
/// Why the state is none that a run could go on with; empty if it is one.
std::string why_not_saved(const OptimizerImpl& impl);
/// Takes over a state that was copied in since the last look. Throws Error if it is not the state
/// of an optimizer like this.
void adopt_state(OptimizerImpl& impl);
/// Changes if a tensor of the state that is not of a parameter is written from outside.
std::uint32_t version_of_state(const OptimizerImpl& impl) noexcept;

}  // namespace firn::optim
