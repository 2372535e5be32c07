#include "firn/optim/ema.h"

#include <exception>
#include <utility>

#include "firn/optim/gathered_weights.h"
#include "kernels/copy.h"
#include "optim/impl.h"
#include "runtime/plan/after_plan.h"
#include "runtime/plan/plan_number.h"

namespace firn::optim {

std::vector<Tensor> ema(const Optimizer& optimizer) try {
  const auto& impl = OptimizerAccess::impl(optimizer);
  FIRN_CHECK(impl.options.ema > 0, impl.store.op(), "set StepOptions::ema",
             "no moving averages are kept");
  const std::vector<Tensor> arenas = impl.extension->gather_arenas(impl.store.averages(), true);
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < impl.store.places().size(); ++i)
    out.push_back(impl.store.part_in(arenas, i));
  return out;
}
FIRN_OUT_OF_MEMORY("the averages of weights")

GatheredWeights::GatheredWeights(const Optimizer& optimizer) try {
  held_ = OptimizerAccess::impl(optimizer).extension->hold_weights();
}
FIRN_OUT_OF_MEMORY("GatheredWeights")

struct AveragedWeights::State final : runtime::AfterPlan {
  struct Kept {
    Tensor parameter, weight;  ///< `weight` is a copy
    std::uint32_t version;     ///< version of the parameter while it holds the average
  };
  std::weak_ptr<OptimizerImpl*> optimizer;
  std::vector<Kept> kept = {};
  std::uint32_t plan = runtime::plan_number();  ///< plan in which it was made; 0: none

  explicit State(std::weak_ptr<OptimizerImpl*> of) noexcept : optimizer(std::move(of)) {}
  /// Lets the optimizer go on.
  void release() const noexcept;
  void put_back() const;
  void end() const noexcept {
    release();
    try {
      put_back();
    } catch (const std::exception&) {  // NOLINT: the device is lost
    }
  }
  void after_plan() noexcept override { end(); }
};

void AveragedWeights::State::release() const noexcept {
  const auto alive = optimizer.lock();
  if (!alive) return;
  (*alive)->notes.averaged = false;
  (*alive)->store.keep_shown(false);
}

void AveragedWeights::State::put_back() const {
  const auto alive = optimizer.lock();
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const Kept& k = kept[i];
    Storage& storage = *k.parameter.storage();
    if (storage.version() != k.version) continue;  // keep values that the user has written since
    kernels::copy(k.weight.view(), k.parameter.mutable_view(),
                  current_stream(k.parameter.device()));
    storage.bump_version("the end of AveragedWeights");
    if (alive) (*alive)->store.mark_adopted(i);
  }
}

AveragedWeights::AveragedWeights(Optimizer& optimizer) try {
  const std::vector<Tensor> averages = ema(optimizer);
  auto& impl = OptimizerAccess::impl(optimizer);
  impl.require_outside_rule("AveragedWeights");
  impl.check_ready();
  state_ = std::make_shared<State>(impl.hooks.handle());
  for (const Tensor& p : impl.store.parameters())
    state_->kept.push_back({p, p.detach().clone(), 0});
  for (std::size_t i = 0; i < averages.size(); ++i)
    kernels::copy(averages[i].view(), state_->kept[i].parameter.mutable_view(),
                  impl.store.stream());
  impl.store.bump_all_versions("AveragedWeights");
  for (State::Kept& k : state_->kept) k.version = k.parameter.storage()->version();
  impl.notes.averaged = true;
  if (state_->plan == 0) impl.store.keep_shown(true);  // a dry run does not change what is shown
}
FIRN_OUT_OF_MEMORY("AveragedWeights")

AveragedWeights::~AveragedWeights() {
  // The plan that made the averages has ended and restored the weights. The copies are outdated.
  if (state_->plan != 0 && state_->plan != runtime::plan_number()) return;
  // A plan would not copy the weights, and would restore what the optimizer knows.
  if (state_->plan == 0 && runtime::at_end_of_plan(state_))
    state_->release();
  else
    state_->end();
}

}  // namespace firn::optim
