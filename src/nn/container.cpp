// Sequential, and the error of an empty AnyModule.
#include "firn/nn/container.h"

#include "base/check.h"
#include "nn/tree.h"

namespace firn::nn {

void AnyModule::refuse_empty() {
  firn::detail::fail("AnyModule", "assign a module before the call, or ask with `if (module)`",
                     "it holds no module");
}

void Sequential::push_back(std::shared_ptr<Module> module) try {
  FIRN_CHECK(module, "Sequential", "push a module", "module {} is null", modules_.size());
  for (const detail::TreeModule& m : detail::tree_of(*module))
    FIRN_CHECK(m.module != this, "Sequential", "push a copy: nn::clone(module)",
               "module {} would hold the Sequential that it is pushed into{}{}", modules_.size(),
               m.path.empty() ? "" : ", at its ", m.path);
  add(AnyModule(std::move(module)));
}
FIRN_OUT_OF_MEMORY("Sequential")

void Sequential::add(AnyModule module) try {
  modules_.push_back(std::move(module));
  if (training()) return;
  try {
    modules_.back()->eval();
  } catch (...) {
    modules_.pop_back();
    throw;
  }
}
FIRN_OUT_OF_MEMORY("Sequential")

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
  // By index: a hook may push a module.
  for (std::size_t i = 0; i < modules_.size(); ++i) y = (*modules_[i])(y);
  return y;
}

void Sequential::visit_members(MemberVisitor& visitor) {
  for (std::size_t i = 0; i < modules_.size(); ++i) modules_[i].visit(visitor, std::to_string(i));
}

const detail::ModuleTraits* Sequential::firn_traits() const noexcept {
  return &detail::traits_of<Sequential>();
}

}  // namespace firn::nn
