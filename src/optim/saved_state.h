// The state of an optimizer, as other code reads, saves and writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optim/access.h"
#include "optim/store/state_entry.h"

namespace firn::optim {

/// Returns ParamStore::state(), the host's position in the cycle, the kind of the optimizer, and
/// the entries of extensions.
std::vector<StateEntry> state_of(OptimizerImpl& impl);
/// Sets `impl.state_of_all` on rank 0 to the state with the cycle of all ranks. All ranks make this
/// call. If it throws on one, it throws on all.
void gather_state(OptimizerImpl& impl);
/// Returns why a run could not continue from the current state, or "" if it could.
std::string why_not_saved(const OptimizerImpl& impl);
/// Takes over the record of which gradients the cycle has, if it was copied in since the last call.
void adopt_gradients(OptimizerImpl& impl);
/// Takes over a state that was copied in since the last call. Throws Error if it is not the
/// state of an optimizer of this kind.
void adopt_state(OptimizerImpl& impl);
/// Returns a version that changes if state that belongs to no parameter is written from outside.
std::uint32_t version_of_state(const OptimizerImpl& impl) noexcept;

}  // namespace firn::optim
