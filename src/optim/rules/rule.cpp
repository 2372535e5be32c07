#include "optim/rules/rule.h"

#include <algorithm>

#include "base/check.h"

namespace firn::optim {

ParamList::ParamList(const std::vector<Tensor>& parameters) {
  for (const Tensor& t : parameters) push_back(t);
}
ParamList::ParamList(std::initializer_list<Tensor> parameters) {
  for (const Tensor& t : parameters) push_back(t);
}
ParamList::ParamList(std::vector<NamedTensor> parameters) : list_(std::move(parameters)) {}
ParamList::ParamList(std::initializer_list<NamedTensor> parameters) : list_(parameters) {}
void ParamList::push_back(const Tensor& parameter) { list_.push_back({{}, parameter}); }
void ParamList::push_back(NamedTensor parameter) { list_.push_back(std::move(parameter)); }

std::vector<ParamGroup> decay_groups(const ParamList& parameters, double weight_decay) try {
  require_decay("decay_groups", "weight_decay", weight_decay, "0 is off");
  ParamGroup decays{.weight_decay = weight_decay}, stays{.weight_decay = 0};
  for (const NamedTensor& p : parameters) {
    FIRN_CHECK(p.tensor.defined(), "decay_groups", "leave it out", "parameter \"{}\" is undefined",
               p.name);
    if (p.tensor.requires_grad()) (p.tensor.rank() >= 2 ? decays : stays).parameters.push_back(p);
  }
  std::vector<ParamGroup> out;
  for (ParamGroup* group : {&decays, &stays})
    if (!group->parameters.empty()) out.push_back(std::move(*group));
  return out;
}
FIRN_OUT_OF_MEMORY("decay_groups")

kernels::UpdateRule in_eight_bits(const kernels::UpdateRule& rule) {
  if (const auto* adam = std::get_if<math::Adam>(&rule)) return math::EightBit<math::Adam>{*adam};
  if (const auto* lion = std::get_if<math::Lion>(&rule)) return math::EightBit<math::Lion>{*lion};
  FIRN_CHECK(false, "Optimizer", "", "rule {} has no form with states in 8 bits", rule.index());
}

GroupOptions::GroupOptions(const char* op, std::size_t index, const ParamGroup& group)
    : op_(op), index_(index), group_(group) {}

void GroupOptions::done() const {
  const ParamGroup& g = group_;
  const auto refuse = [this](const char* name, const auto& option) {
    const bool taken = std::find(taken_.begin(), taken_.end(), &option) != taken_.end();
    FIRN_CHECK(!option || taken, op_, "leave it out", "group {} sets {}, and {} has none", index_,
               name, op_);
  };
  refuse("weight_decay", g.weight_decay);
  refuse("beta1", g.beta1);
  refuse("beta2", g.beta2);
  refuse("eps", g.eps);
  refuse("momentum", g.momentum);
  refuse("dampening", g.dampening);
  refuse("alpha", g.alpha);
  refuse("lr_decay", g.lr_decay);
  refuse("initial_accumulator", g.initial_accumulator);
  refuse("nesterov", g.nesterov);
  refuse("amsgrad", g.amsgrad);
  refuse("rho", g.rho);
  refuse("momentum_decay", g.momentum_decay);
  refuse("centered", g.centered);
  refuse("state", g.state);
  refuse("min_8bit_size", g.min_8bit_size);
  refuse("hidden", g.hidden);
}

}  // namespace firn::optim
