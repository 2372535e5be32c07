// Snapshots of a cycle, which are put back after a plan, by a RollbackPoint, if memory runs out in
// a pass, and if captured work is not run.
#include "firn/runtime/rollback.h"

#include <algorithm>
#include <new>
#include <optional>

#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"
#include "optim/impl.h"

namespace firn::optim {

bool Optimizer::Impl::cycle_is_empty() const noexcept {
  if (at.micro_steps > 0 || at.calls > 0 || now.failed()) return false;
  for (std::size_t i = 0; i < store.ledger().size(); ++i)
    if (store.ledger().received(i)) return false;
  return true;
}

Optimizer::Impl::CycleCopy Optimizer::Impl::reserve_copy() const {
  return {.sums = empty({sizeof(math::SeedSums)}, u8, store.device()),
          .gradients = store.reserve_gradients()};
}

void Optimizer::Impl::put_back(const HostSnapshot& kept) noexcept {
  at = kept.at;
  now = kept.now;
  store.ledger().put_back(kept.contributions);
}

Optimizer::Impl::CycleSnapshot Optimizer::Impl::keep_cycle(const CycleCopy* memory) {
  runtime::refuse_capture("RollbackPoint", store.device(),
                          "it needs a copy of what the cycle has collected");
  store.ledger().adopt();  // a state that was copied in
  const Tensor& state = store.step_state();
  CycleSnapshot kept{
      .host = keep_host(),
      .sums = memory ? memory->sums : empty({sizeof(math::SeedSums)}, u8, store.device()),
      .gradients = {},
      .version = version_of_state()};
  copy_bytes(kept.sums.impl()->data(), store.device(), state.impl()->data(), store.device(),
             sizeof(math::SeedSums));
  if (!now.failed()) kept.gradients = store.copy_gradients(memory ? &memory->gradients : nullptr);
  return kept;
}

void Optimizer::Impl::put_back(const CycleSnapshot& kept) {
  if (version_of_state() != kept.version) return;
  if (at.cycles != kept.host.at.cycles) {
    if (!cycle_is_empty()) zero_grad();
    return;
  }
  // What layers have collected for the cycle they put back themselves.
  kernels::optim_reset(store.memory(), store.stream());
  copy_bytes(store.step_state().impl()->data(), store.device(), kept.sums.impl()->data(),
             store.device(), sizeof(math::SeedSums));
  store.put_back_gradients(kept.gradients);
  store.ledger().begin_cycle();
  const bool weights_are_missing = now.phase == Phase::publishing;
  const std::int64_t epoch = at.epoch;
  put_back(kept.host);
  at.epoch = epoch;
  if (weights_are_missing) now.phase = Phase::publishing;
}

void Optimizer::Impl::out_of_memory(const OutOfMemory& e, const CycleSnapshot* before) {
  const std::int64_t earlier = at.micro_steps - 1;
  bool undone = false;
  try {
    if (before)
      put_back(*before);
    else
      zero_grad();
    undone = true;
  } catch (const Error&) {           // NOLINT: the device is lost
  } catch (const std::bad_alloc&) {  // NOLINT: the next zero_grad() may have memory
  }
  if (!undone) now.phase = Phase::failed;
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

void Optimizer::Impl::keep_if_planned() {
  if (!runtime::planning()) [[likely]]
    return;
  runtime::at_dry_end(this,
                      [owner = hooks.handle(), host = keep_host(), call = call, notes = notes,
                       members = members, ledger = store.ledger(), adopted = store.adopted(),
                       put_back_extension = extension->keep()] {
                        const auto alive = owner.lock();
                        if (!alive) return;
                        Impl& i = **alive;
                        i.put_back(host);
                        i.call = call;
                        i.notes = notes;
                        i.members.put_back(members);
                        i.store.ledger() = ledger;
                        i.store.put_back_adopted(adopted);
                        if (put_back_extension) put_back_extension();
                      });
}

void Optimizer::Impl::remember_place() {
  if (!hooks.capturing()) return;
  const auto place = std::make_shared<HostSnapshot>();
  hooks.now_and_at_replay([place](Impl& i) { *place = i.keep_host(); });
  hooks.on_abandon([place](Impl& i) {
    i.put_back(*place);
    i.store.forget_adopted();
  });
}

void Optimizer::Impl::about_to_change_cycle() {
  if (!runtime::rollback_wanted()) [[likely]]
    return;
  runtime::before_change(Rollback::gradients, hooks.identity(), [this]() -> std::function<void()> {
    return [owner = hooks.handle(), kept = std::make_shared<const CycleSnapshot>(keep_cycle())] {
      const auto alive = owner.lock();
      if (!alive) return;
      (*alive)->require_no_pass();
      (*alive)->put_back(*kept);
    };
  });
}

void Optimizer::Impl::about_to_change_restored() const {
  for (const Tensor& t : notes.restored) autograd::about_to_change({&t});
}

}  // namespace firn::optim
