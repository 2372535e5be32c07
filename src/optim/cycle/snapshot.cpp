#include "optim/cycle/snapshot.h"

#include <algorithm>
#include <new>
#include <optional>

#include "firn/runtime/kernel_support.h"
#include "firn/runtime/rollback.h"
#include "firn/runtime/stream.h"
#include "optim/impl.h"
#include "optim/saved_state.h"

namespace firn::optim {

HostSnapshot keep_host(const OptimizerImpl& impl) {
  return {impl.at, impl.now, impl.store.ledger().place()};
}

bool cycle_is_empty(const OptimizerImpl& impl) noexcept {
  if (impl.at.micro_steps > 0 || impl.at.calls > 0 || impl.now.failed()) return false;
  for (std::size_t i = 0; i < impl.store.ledger().size(); ++i)
    if (impl.store.ledger().received(i)) return false;
  return true;
}

CycleCopy reserve_copy(const OptimizerImpl& impl) {
  return {.sums = empty({sizeof(math::LossSums)}, u8, impl.store.device()),
          .gradients = impl.store.reserve_gradients()};
}

void put_back(OptimizerImpl& impl, const HostSnapshot& kept) noexcept {
  impl.at = kept.at;
  impl.now = kept.now;
  impl.store.ledger().put_back(kept.gradients);
}

CycleSnapshot keep_cycle(OptimizerImpl& impl, const CycleCopy* memory) {
  runtime::refuse_capture("RollbackPoint", impl.store.device(),
                          "it needs a copy of what the cycle has collected");
  impl.store.ledger().adopt();  // a state that was copied in
  const Tensor& state = impl.store.step_state();
  CycleSnapshot kept{
      .host = keep_host(impl),
      .sums = memory ? memory->sums : empty({sizeof(math::LossSums)}, u8, impl.store.device()),
      .gradients = {},
      .version = version_of_state(impl)};
  copy_bytes(kept.sums.impl()->data(), impl.store.device(), state.impl()->data(),
             impl.store.device(), sizeof(math::LossSums));
  if (!impl.now.failed())
    kept.gradients = impl.store.copy_gradients(memory ? &memory->gradients : nullptr);
  return kept;
}

void put_back(OptimizerImpl& impl, const CycleSnapshot& kept) {
  if (version_of_state(impl) != kept.version) return;
  if (impl.at.cycles != kept.host.at.cycles) {
    if (!cycle_is_empty(impl)) impl.zero_grad();
    return;
  }
  // Layers restore themselves what they have collected for the cycle.
  kernels::optim_reset(impl.store.memory(), impl.store.stream());
  copy_bytes(impl.store.step_state().impl()->data(), impl.store.device(), kept.sums.impl()->data(),
             impl.store.device(), sizeof(math::LossSums));
  impl.store.put_back_gradients(kept.gradients);
  impl.store.ledger().begin_cycle();
  const bool weights_are_missing = impl.now.phase == Phase::publishing;
  const std::int64_t epoch = impl.at.epoch;
  put_back(impl, kept.host);
  impl.at.epoch = epoch;
  if (weights_are_missing) impl.now.phase = Phase::publishing;
}

void out_of_memory(OptimizerImpl& impl, const OutOfMemory& e, const CycleSnapshot* before) {
  const std::int64_t earlier = impl.at.micro_steps - 1;
  bool undone = false;
  try {
    if (before)
      put_back(impl, *before);
    else
      impl.zero_grad();
    undone = true;
  } catch (const Error&) {           // NOLINT: the device is lost
  } catch (const std::bad_alloc&) {  // NOLINT: the next zero_grad() may have memory
  }
  if (!undone) impl.now.phase = Phase::failed;
  std::optional<OutOfMemory> with_state;
  try {
    if (undone)
      with_state.emplace(
          e.message() +
              (before ? "\n  the cycle is as it was before this backward()"
                      : fmt::format(
                            "\n  the cycle was dropped, with {} backward passes before this one",
                            earlier)),
          e.requested_bytes());
    if (with_state) with_state->set_module(e.module());
  } catch (const std::bad_alloc&) {  // NOLINT: there is no memory for so long a text
  }
  throw with_state ? *with_state : e;
}

void keep_if_planned(OptimizerImpl& impl) {
  if (!runtime::planning()) [[likely]]
    return;
  runtime::at_dry_end(
      &impl, [owner = impl.hooks.handle(), host = keep_host(impl), call = impl.call,
              notes = impl.notes, members = impl.members, ledger = impl.store.ledger(),
              adopted = impl.store.adopted(), put_back_extension = impl.extension->keep()] {
        const auto alive = owner.lock();
        if (!alive) return;
        OptimizerImpl& i = **alive;
        put_back(i, host);
        i.call = call;
        i.notes = notes;
        i.members.put_back(members);
        i.store.ledger() = ledger;
        i.store.put_back_adopted(adopted);
        if (put_back_extension) put_back_extension();
      });
}

void remember_place(OptimizerImpl& impl) {
  if (!impl.hooks.capturing()) return;
  const auto place = std::make_shared<HostSnapshot>();
  impl.hooks.now_and_at_replay([place](OptimizerImpl& i) { *place = keep_host(i); });
  impl.hooks.on_abandon([place](OptimizerImpl& i) {
    put_back(i, *place);
    i.store.forget_adopted();
  });
}

void about_to_change_cycle(OptimizerImpl& impl) {
  if (!runtime::rollback_wanted()) [[likely]]
    return;
  runtime::before_change(Rollback::gradients, impl.hooks.identity(), [&impl]() -> runtime::PutBack {
    const auto kept = std::make_shared<const CycleSnapshot>(keep_cycle(impl));
    const auto put = [owner = impl.hooks.handle(), kept] {
      if (const auto alive = owner.lock()) put_back(**alive, *kept);
    };
    return {put, [owner = impl.hooks.handle()] {
              const auto alive = owner.lock();
              if (!alive) return;
              (*alive)->require_no_pass();
              // Micro-steps that the call has made would be missing in its step.
              (*alive)->require_outside_cycle("roll_back()");
            }};
  });
}

void about_to_change_restored(const OptimizerImpl& impl) {
  for (const Tensor& t : impl.notes.restored) autograd::about_to_change({&t});
}

}  // namespace firn::optim
