// Which values the weights of a schedule-free optimizer show: those of training, or the averaged
// ones. Modules ask for them by their mode (autograd/weight_modes.h), the optimizer for its steps.
#pragma once

#include "optim/store/param_store.h"

namespace firn::optim {

class ParamStore::Modes final : public autograd::WeightModes {
 public:
  explicit Modes(ParamStore& store) : store_(store), self_(std::make_shared<Modes*>(this)) {}

  /// One launch an arena, and none if the weights show these values already. Weights that were
  /// written from outside are taken over first. Does nothing in a dry run, whose values do not
  /// count. In a capture a change throws Error, and each replay finds the weights as the capture
  /// did.
  void show(bool averaged) override;
  /// Takes over what was written to parameter p from outside.
  void adopt(const Parameter& p) const;
  /// While it is on, show() does nothing.
  void keep(bool on) noexcept { kept_ = on; }

 private:
  ParamStore& store_;
  std::shared_ptr<Modes*> self_;  ///< for graphs, which may outlive the optimizer
  bool averaged_ = false;         ///< what the weights show
  bool kept_ = false;
};

}  // namespace firn::optim
