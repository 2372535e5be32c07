// Hooks of modules: how they are added and removed.
#include "nn/hooks.h"

#include <atomic>

#include "base/check.h"
#include "nn/tree.h"

namespace firn::nn {

HookId detail::Hooks::next_id() noexcept {
  static constinit std::atomic<HookId> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

HookId detail::HookList::add(ForwardPreHook hook) {
  HookId id;
  hooks_ = Hooks::with(hooks_.get(), std::move(hook), id);
  return id;
}
HookId detail::HookList::add(ForwardHook hook) {
  HookId id;
  hooks_ = Hooks::with(hooks_.get(), std::move(hook), id);
  return id;
}

bool detail::HookList::remove(HookId id) {
  if (!hooks_) return false;
  auto left = std::make_shared<Hooks>(*hooks_);
  if (std::erase_if(left->entries, [id](const Hooks::Entry& e) { return e.id == id; }) == 0)
    return false;
  if (left->entries.empty()) left.reset();
  hooks_ = std::move(left);
  return true;
}

void Module::require_seen_calls(const char* op) const {
  const detail::ModuleTraits* const traits = firn_traits();
  FIRN_CHECK(!traits || !traits->own_call, op,
             "derive from nn::ModuleOf and name it forward(): calls then take any arguments",
             "{} has a call operator of its own, whose calls firn does not see", type_name());
}

HookId Module::add_forward_pre_hook(ForwardPreHook hook) try {
  detail::require_members("Module::add_forward_pre_hook", *this);
  require_seen_calls("Module::add_forward_pre_hook");
  require_function("Module::add_forward_pre_hook", hook,
                   "give a function of the module and its inputs", "the hook");
  about_to_set();
  return hooks_.add(std::move(hook));
}
FIRN_OUT_OF_MEMORY("Module::add_forward_pre_hook")
HookId Module::add_forward_hook(ForwardHook hook) try {
  detail::require_members("Module::add_forward_hook", *this);
  require_seen_calls("Module::add_forward_hook");
  require_function("Module::add_forward_hook", hook,
                   "give a function of the module, its inputs and its outputs", "the hook");
  about_to_set();
  return hooks_.add(std::move(hook));
}
FIRN_OUT_OF_MEMORY("Module::add_forward_hook")
void Module::remove_hook(HookId id) try {
  detail::require_members("Module::remove_hook", *this);
  about_to_set();
  FIRN_CHECK(hooks_.remove(id), "Module::remove_hook",
             "give the id that adding it to this very module returned", "{} has no hook {}",
             type_name(), id);
}
FIRN_OUT_OF_MEMORY("Module::remove_hook")

}  // namespace firn::nn
