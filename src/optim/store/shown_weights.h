// The two sets of values of schedule-free weights: training values and averages. A module asks for
// one of them by its mode (autograd/weight_modes.h), the optimizer for its steps.
#pragma once

#include "optim/store/param_store.h"

namespace firn::optim {

class ParamStore::Modes final : public autograd::WeightModes {
 public:
  explicit Modes(ParamStore& store) : store_(store), self_(std::make_shared<Modes*>(this)) {}

  /// Makes the weights show these values, with one launch for each arena and none if they do
  /// already. Before that, takes over weights that were written from outside. Does nothing in a dry
  /// run, whose values do not matter. In a capture a change throws Error, and each replay restores
  /// the set that the capture used.
  void show(bool averaged) override;
  /// Takes over values that were written to parameter p from outside.
  void adopt(const StoredParameter& p) const;
  /// While on, show() does nothing.
  void keep(bool on) noexcept { kept_ = on; }

 private:
  ParamStore& store_;
  std::shared_ptr<Modes*> self_;  ///< for graphs, which may outlive the optimizer
  bool averaged_ = false;         ///< true if the weights show averages
  bool kept_ = false;
};

}  // namespace firn::optim
