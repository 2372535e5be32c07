#include "firn/optim/ema.h"

#include <exception>
#include <utility>

#include "firn/optim/gathered_weights.h"
#include "kernels/copy.h"
#include "optim/impl.h"

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

struct AveragedWeights::State {
  struct Kept {
    Tensor parameter, weight;  ///< `weight` is a copy
    std::uint32_t version;     ///< version of the parameter while it holds the average
  };
  std::weak_ptr<OptimizerImpl*> optimizer;
  std::vector<Kept> kept;
  std::uint32_t plan = runtime::plan_number();  ///< plan in which it was made; 0: none
};

AveragedWeights::AveragedWeights(Optimizer& optimizer) try {
  const std::vector<Tensor> averages = ema(optimizer);
  auto& impl = OptimizerAccess::impl(optimizer);
  impl.check_ready();
  State state{.optimizer = impl.hooks.handle(), .kept = {}};
  for (const Tensor& p : impl.store.parameters()) state.kept.push_back({p, p.detach().clone(), 0});
  state_ = std::make_shared<State>(std::move(state));
  for (std::size_t i = 0; i < averages.size(); ++i)
    kernels::copy(averages[i].view(), state_->kept[i].parameter.mutable_view(),
                  impl.store.stream());
  impl.store.bump_all_versions("AveragedWeights");
  for (State::Kept& k : state_->kept) k.version = k.parameter.storage()->version();
  impl.notes.averaged = true;
  impl.store.keep_shown(true);
}
FIRN_OUT_OF_MEMORY("AveragedWeights")

AveragedWeights::~AveragedWeights() {
  // The plan that made the averages has ended and restored the weights. The copies are outdated.
  if (state_->plan != 0 && state_->plan != runtime::plan_number()) return;
  const auto optimizer = state_->optimizer.lock();
  try {
    if (optimizer) keep_if_planned(**optimizer);
  } catch (const std::exception&) {  // NOLINT: without memory the plan does not put this back
  }
  try {
    if (optimizer) {
      (*optimizer)->notes.averaged = false;
      (*optimizer)->store.keep_shown(false);
    }
    for (std::size_t i = 0; i < state_->kept.size(); ++i) {
      const State::Kept& k = state_->kept[i];
      Storage& storage = *k.parameter.storage();
      if (storage.version() != k.version) continue;  // keep values that the user has written since
      kernels::copy(k.weight.view(), k.parameter.mutable_view(),
                    current_stream(k.parameter.device()));
      storage.bump_version("the end of AveragedWeights");
      if (optimizer) (*optimizer)->store.mark_adopted(i);
    }
  } catch (const std::exception&) {  // NOLINT: the device is lost
  }
}

}  // namespace firn::optim
