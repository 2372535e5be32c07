// What a part of a batch changes for a while, and others must not see.
#include "autograd/batch_parts.h"

#include "autograd/node.h"
#include "base/check.h"

namespace firn {

Freeze::Freeze(std::vector<Tensor> leaves) try : part_(autograd::BatchPartScope::current) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Tensor& t = leaves[i];
    FIRN_CHECK(t.defined(), "Freeze", "give net.parameters()", "tensor {} is undefined", i);
    const bool has_node = static_cast<bool>(t.impl()->node);
    FIRN_CHECK(!has_node || autograd::leaf_or_frozen(t), "Freeze",
               "give the leaves that it was computed from; detach() cuts a single tensor off",
               "tensor {}, {}, was made by an op", i, describe(t));
    if (has_node) frozen_.push_back(t);
  }
  if (part_) part_->begin(*this);
  set(true);
}
FIRN_OUT_OF_MEMORY("Freeze")

Freeze::~Freeze() {
  if (part_) part_->end(*this);
  set(false);
}

void Freeze::set(bool on) const noexcept {
  for (const Tensor& t : frozen_) {
    autograd::Leaf& leaf = *autograd::leaf_or_frozen(t);
    on ? ++leaf.frozen : --leaf.frozen;
  }
}

namespace autograd {

/// How a part switches the Freeze scopes of its function.
struct FreezeSeam {
  static void set(const Freeze& scope, bool on) noexcept { scope.set(on); }
  static void leave(Freeze& scope) noexcept { scope.part_ = nullptr; }
};

BatchPartScope::~BatchPartScope() {
  for (Freeze* const scope : frozen_) FreezeSeam::leave(*scope);
  current = outer_;
  BatchParts::current = before_;
}

void BatchPartScope::changed(const void* object, bool before, bool after) {
  if (before == after) return;
  const auto [known, added] = flags_.try_emplace(object, before);
  if (!added && known->second == after) flags_.erase(known);
}

BatchPartScope::Away::Away(const char* op) {
  FIRN_CHECK(current->flags_.empty(), op,
             "call them outside of run_batch(), or put the modes back before the next layer that "
             "normalises the batch",
             "train() or eval() has changed a module in the function of run_batch(), in which the "
             "quanta of the batch take turns");
  for (const Freeze* const scope : current->frozen_) FreezeSeam::set(*scope, false);
}

BatchPartScope::Away::~Away() {
  for (const Freeze* const scope : current->frozen_) FreezeSeam::set(*scope, true);
}

}  // namespace autograd
}  // namespace firn
