// How a cycle is taken back, as far as it was not ended by a step.
#include "firn/runtime/rollback.h"

#include <algorithm>
#include <new>
#include <optional>

#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"
#include "optim/impl.h"

namespace firn::optim {

bool Optimizer::Impl::cycle_is_empty() const noexcept {
  if (at.micro_steps > 0 || at.calls > 0 || broken) return false;
  for (std::size_t i = 0; i < store.ledger().size(); ++i)
    if (store.ledger().received(i)) return false;
  return true;
}

Optimizer::Impl::CycleCopy Optimizer::Impl::reserve_copy() const {
  return {.sums = empty({sizeof(math::SeedSums)}, u8, store.device()),
          .gradients = store.reserve_gradients()};
}

Optimizer::Impl::KeptCycle Optimizer::Impl::keep_cycle(const CycleCopy* memory) {
  runtime::refuse_capture("RollbackPoint", store.device(),
                          "it needs a copy of what the cycle has collected");
  store.ledger().adopt();  // a state that was copied in
  const Tensor& state = store.step_state();
  KeptCycle kept{
      .at = at,
      .broken = broken,
      .contributions = store.ledger().contributions(),
      .sums = memory ? memory->sums : empty({sizeof(math::SeedSums)}, u8, store.device()),
      .gradients = {},
      .parts_held = parts_held,
      .version = version_of_state()};
  copy_bytes(kept.sums.impl()->data(), store.device(), state.impl()->data(), store.device(),
             sizeof(math::SeedSums));
  if (!broken) kept.gradients = store.copy_gradients(memory ? &memory->gradients : nullptr);
  return kept;
}

void Optimizer::Impl::put_back(const KeptCycle& kept) {
  if (version_of_state() != kept.version) return;  // a state was copied in: it stays
  if (at.cycles != kept.at.cycles) {               // a step has used what was collected then
    if (!cycle_is_empty()) zero_grad();
    return;
  }
  // What layers have collected for the cycle they put back themselves.
  kernels::optim_reset(store.memory(), store.stream());
  copy_bytes(store.step_state().impl()->data(), store.device(), kept.sums.impl()->data(),
             store.device(), sizeof(math::SeedSums));
  store.put_back_gradients(kept.gradients);
  store.ledger().begin_cycle();
  store.ledger().put_back(kept.contributions);
  broken = kept.broken;
  parts_held = kept.parts_held;
  combined = false;
  const std::int64_t epoch = at.epoch;
  at = kept.at;
  at.epoch = epoch;
}

void Optimizer::Impl::out_of_memory(const OutOfMemory& e, const KeptCycle* before) {
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
  if (!undone) broken = true;
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

namespace {

/// The values of a tuple of references.
template <class... T>
std::tuple<T...> copy_of(const std::tuple<T&...>& references) {
  return references;
}

}  // namespace

void Optimizer::Impl::keep_if_planned() {
  if (!runtime::planning()) [[likely]]
    return;
  runtime::at_dry_end(
      this, [owner = hooks.handle(), at = at, notes = copy_of(host_notes()), members = members,
             ledger = store.ledger(), contributions = store.ledger().contributions(),
             adopted = store.adopted()] {
        const auto alive = owner.lock();
        if (!alive) return;
        Impl& i = **alive;
        i.at = at;
        i.host_notes() = notes;
        i.members.put_back(members);
        i.store.ledger().put_back(contributions);
        i.store.ledger() = ledger;
        i.store.put_back_adopted(adopted);
      });
}

void Optimizer::Impl::about_to_change_cycle() {
  if (!runtime::rollback_wanted()) [[likely]]
    return;
  runtime::before_change(Rollback::gradients, hooks.identity(), [this]() -> std::function<void()> {
    return [owner = hooks.handle(), kept = std::make_shared<const KeptCycle>(keep_cycle())] {
      const auto alive = owner.lock();
      if (!alive) return;
      (*alive)->require_no_pass();
      (*alive)->put_back(*kept);
    };
  });
}

void Optimizer::Impl::about_to_change_restored() const {
  for (const Tensor& t : restored) autograd::about_to_change({&t});
}

}  // namespace firn::optim
