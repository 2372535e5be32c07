#include "nn/member_check.h"

#include <fmt/format.h>

#include "autograd/node.h"
#include "firn/nn/call.h"
#include "firn/runtime/storage.h"
#include "firn/thread_context.h"
#include "firn/warning.h"
#include "nn/tree.h"

namespace firn::nn {

bool detail::MemberCheck::is_trained(const Tensor& t) noexcept {
  const autograd::Leaf* const leaf = autograd::leaf_of(t);
  return leaf && leaf->is_trained();
}

void detail::MemberCheck::ran(const char* op, std::span<const Tensor* const> operands,
                              const Tensor&) {
  for (const Tensor* t : operands) {
    if (!t || !t->defined() || t->storage()->owner() != Owner::weights) continue;
    if (!autograd::leaf_of(*t) || !seen_.insert(t->impl()).second || is_trained(*t)) continue;
    const Module* const m = thread_context.call ? &thread_context.call->module() : nullptr;
    uses_.push_back({*t, op, m, m ? described(*m) : ""});
  }
}

void detail::MemberCheck::report(Module& root) {
  std::unordered_set<const TensorImpl*> listed;
  std::unordered_set<const Module*> modules;
  bool trained = false;
  for (const TreeModule& m : tree_of(root)) {
    modules.insert(m.module);
    for (const TreeTensor& t : m.tensors) {
      listed.insert(t.tensor.impl());
      trained = trained || is_trained(t.tensor);
    }
  }
  if (!trained) return;
  std::atomic_ref<std::uint8_t>(root.member_checks_left_).store(0, std::memory_order_relaxed);
  std::string text;
  for (const Use& use : uses_) {
    if (listed.contains(use.parameter.impl()) || is_trained(use.parameter)) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", use.op, describe(use.parameter));
    if (use.module && !modules.contains(use.module)) text += " of a " + use.name;
  }
  if (text.empty()) return;
  warn(root.type_name(),
       fmt::format("forward() uses parameters that FIRN_MEMBERS does not list and no optimizer "
                   "trains: {}",
                   text),
       "list every member that holds parameters in FIRN_MEMBERS, or freeze it with "
       "set_requires_grad(false)");
}

}  // namespace firn::nn
