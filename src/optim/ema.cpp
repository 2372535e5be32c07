#include "firn/optim/ema.h"

#include <utility>

#include "kernels/copy.h"
#include "optim/impl.h"

namespace firn::optim {

std::vector<Tensor> ema(const Optimizer& optimizer) {
  const auto& impl = OptimizerAccess::impl(optimizer);
  FIRN_CHECK(impl.options.ema > 0, impl.store.op(), "set StepOptions::ema",
             "no moving averages are kept");
  return impl.store.averages();
}

struct AveragedWeights::State {
  std::weak_ptr<OptimizerAccess::Impl*> optimizer;
  std::vector<Tensor> parameters, weights;  ///< the weights are copies
};

AveragedWeights::AveragedWeights(Optimizer& optimizer) {
  const std::vector<Tensor> averages = ema(optimizer);
  auto& impl = OptimizerAccess::impl(optimizer);
  impl.check_ready();
  State state{impl.hooks.handle(), impl.store.parameters(), {}};
  for (const Tensor& p : state.parameters) state.weights.push_back(p.detach().clone());
  state_ = std::make_unique<State>(std::move(state));
  for (std::size_t i = 0; i < averages.size(); ++i)
    kernels::copy(averages[i].view(), state_->parameters[i].mutable_view(), impl.store.stream());
  impl.store.bump_all_versions("AveragedWeights");
  impl.averaged = true;
}

AveragedWeights::~AveragedWeights() {
  try {
    for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
      const Tensor& p = state_->parameters[i];
      kernels::copy(state_->weights[i].view(), p.mutable_view(), current_stream(p.device()));
      p.storage()->bump_version("the end of AveragedWeights");
    }
  } catch (const Error&) {  // NOLINT: the device is lost
  }
  if (const auto optimizer = state_->optimizer.lock()) {
    (*optimizer)->averaged = false;
    (*optimizer)->store.mark_adopted();
  }
}

}  // namespace firn::optim
