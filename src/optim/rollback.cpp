// How a cycle is taken back, as far as it was not ended by a step.
#include "firn/rollback.h"

#include <algorithm>

#include "firn/kernel_support.h"
#include "firn/stream.h"
#include "optim/impl.h"

namespace firn::optim {

struct Optimizer::Impl::KeptCycle {
  Progress at;
  bool broken;
  GradientLedger::Counts contributions;
  Tensor sums;                    ///< u8: the math::SeedSums that the step state begins with
  std::vector<Tensor> gradients;  ///< undefined for arenas that hold none
  std::uint32_t version;          ///< of the state
};

bool Optimizer::Impl::cycle_is_empty() const noexcept {
  if (at.micro_steps > 0 || at.calls > 0 || broken) return false;
  for (std::size_t i = 0; i < store.ledger().size(); ++i)
    if (store.ledger().received(i)) return false;
  return true;
}

Optimizer::Impl::KeptCycle Optimizer::Impl::keep_cycle() {
  runtime::refuse_capture("RollbackPoint", store.device(),
                          "it needs a copy of what the cycle has collected");
  store.ledger().adopt();  // a state that was copied in
  const Tensor& state = store.step_state();
  KeptCycle kept{.at = at,
                 .broken = broken,
                 .contributions = store.ledger().contributions(),
                 .sums = empty({sizeof(math::SeedSums)}, u8, store.device()),
                 .gradients = {},
                 .version = version_of_state()};
  copy_bytes(kept.sums.impl()->data(), store.device(), state.impl()->data(), store.device(),
             sizeof(math::SeedSums));
  if (!broken) kept.gradients = store.copy_gradients();
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
  const std::int64_t epoch = at.epoch;
  at = kept.at;
  at.epoch = epoch;
}

void Optimizer::Impl::about_to_change_cycle() {
  if (!runtime::rollback_wanted()) [[likely]]
    return;
  runtime::before_change(Rollback::gradients, hooks.identity(), [this]() -> std::function<void()> {
    return [owner = hooks.handle(), kept = std::make_shared<const KeptCycle>(keep_cycle())] {
      if (const auto alive = owner.lock()) (*alive)->put_back(*kept);
    };
  });
}

void Optimizer::Impl::about_to_change_restored() const {
  for (const Tensor& t : restored) autograd::about_to_change({&t});
}

}  // namespace firn::optim
