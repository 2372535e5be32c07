#include "optim/saved_state.h"

#include "optim/impl.h"
#include "optim/store/state_check.h"

namespace firn::optim {

std::uint32_t version_of_state(const OptimizerImpl& impl) noexcept {
  return impl.store.version_of_state() + impl.progress_memory.storage()->version() +
         impl.kind_memory.storage()->version();
}

namespace {

/// Checks the state that was copied in. Throws Error that names what is wrong. Returns its
/// schedule.
Schedule check_copied(const OptimizerImpl& impl, const ParamStore::HostState& s) {
  const auto* kind = impl.kind_memory.view().as<char>();
  return check_state(impl.store.op(), {.kind = std::string(kind, impl.kind_memory.bytes()),
                                       .update_counts = s.update_counts,
                                       .touched = s.touched,
                                       .schedule = s.schedule,
                                       .largest_rate = impl.policy.largest_rate,
                                       .scaler = s.scaler,
                                       .step = s.step,
                                       .progress = impl.at});
}

/// Takes over the rest of the state. Returns true if one was copied in since the last call.
bool adopt_rest(OptimizerImpl& impl) {
  const std::uint32_t version = version_of_state(impl);
  if (version == impl.notes.state_version || impl.hooks.capturing()) return false;
  FIRN_CHECK(!impl.call.maker, impl.store.op(),
             fmt::format("load a run, or copy into state(), before or after {}", impl.call.maker),
             "the optimizer's state was written inside the function of {}", impl.call.maker);
  const ParamStore::HostState s = impl.store.host_state();
  impl.notes.lr = check_copied(impl, s);
  impl.store.note_seen(s.step.last);
  impl.notes.complained = s.step.last.cycle;  // the run that made it has reported these
  if (!impl.now.failed()) impl.now.phase = Phase::collecting;
  impl.notes.state_version = version;
  return true;
}

}  // namespace

void adopt_gradients(OptimizerImpl& impl) {
  if (!impl.store.ledger().adopt()) return;
  // All gradients came with the state, so a pass that failed half-way no longer matters.
  if (impl.now.failed()) impl.now.phase = Phase::collecting;
  impl.now.parts_held = true;
}

void adopt_state(OptimizerImpl& impl) {
  const bool adopted = adopt_rest(impl);
  adopt_gradients(impl);
  if (adopted) impl.extension->state_adopted();
}

std::vector<StateEntry> state_of(OptimizerImpl& impl) {
  impl.store.show_training_weights();
  adopt_gradients(impl);
  impl.store.ledger().report_to_device(impl.store.memory(), impl.store.stream());
  impl.extension->take_over_weights();
  auto out = impl.store.state(!impl.extension->in_batch().random);
  out.push_back({"cycle", impl.progress_memory});
  out.push_back({"kind", impl.kind_memory});
  impl.extension->extend_state(out);
  return out;
}

void gather_state(OptimizerImpl& impl) {
  const autograd::Peers* const peers = runtime::dry_run() ? nullptr : impl.extension->copies();
  std::vector<StateEntry> out;  // the part that needs no exchange
  autograd::on_every_rank(impl.store.op().c_str(), peers, [&] {
    if (peers) adopt_state(impl);  // all ranks but the first let go of a loaded cycle
    out = state_of(impl);
  });
  if (peers) impl.extension->gather_entries(out);
  impl.extension->add_cycle_of_all(out);
  impl.state_of_all = std::move(out);
}

std::string why_not_saved(const OptimizerImpl& impl) {
  if (impl.now.failed() && impl.passes > 0) return "a backward() of its cycle is running";
  if (impl.now.failed()) return "a backward() of its cycle has failed half-way";
  if (impl.now.phase == Phase::publishing)
    return "the ranks' parts of the last step have not all come here";
  if (impl.now.phase == Phase::combined)
    return "a step has failed after the ranks had added up their gradients";
  if (std::string why = impl.extension->why_not_saved(); !why.empty()) return why;
  if (version_of_state(impl) == impl.notes.state_version || impl.hooks.capturing() ||
      runtime::dry_run())
    return {};
  try {
    check_copied(impl, impl.store.host_state());
  } catch (const Error& e) {
    return e.message();
  }
  return {};
}

}  // namespace firn::optim
