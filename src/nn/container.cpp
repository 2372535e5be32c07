// Sequential, and the error of an empty AnyModule.
#include "firn/nn/container.h"

#include "base/check.h"
#include "nn/tree.h"

namespace firn::nn {

void AnyModule::refuse_empty() {
  firn::detail::fail("AnyModule", "assign a module before the call, or ask with `if (module)`",
                     "it holds no module");
}

void Sequential::push_back(std::shared_ptr<Module> module) {
  FIRN_CHECK(module, "Sequential", "push a module", "module {} is null", modules_.size());
  add(AnyModule(std::move(module)));
}

void Sequential::add(AnyModule module) {
  modules_.push_back(std::move(module));
  if (!training()) modules_.back()->eval();
}

Module& Sequential::operator[](std::size_t index) const {
  FIRN_CHECK(index < modules_.size(), "Sequential", "", "there is no module {} among {}", index,
             modules_.size());
  return *modules_[index];
}

void Sequential::wrong_type(std::size_t index, const Module& m) {
  firn::detail::fail("Sequential", "name its own type in at<...>()", "module {} is a {}", index,
                     detail::described(m));
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const AnyModule& m : modules_) y = (*m)(y);
  return y;
}

void Sequential::visit_members(MemberVisitor& visitor) {
  for (std::size_t i = 0; i < modules_.size(); ++i) modules_[i].visit(visitor, std::to_string(i));
}

const detail::ModuleTraits* Sequential::firn_traits() const noexcept {
  return &detail::traits_of<Sequential>();
}

}  // namespace firn::nn
