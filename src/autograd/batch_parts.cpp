// BatchPartScope: temporary changes by one part of a batch, which the other parts must not see.
#include "autograd/batch_parts.h"

#include "base/check.h"
#include "firn/thread_context.h"

namespace firn::autograd {

BatchPartScope::~BatchPartScope() {
  for (Freeze* const scope : frozen_) scope->part_ = nullptr;
  thread_context.batch_part = outer_;
  thread_context.batch_parts = before_;
}

void BatchPartScope::changed(const void* object, bool before, bool after) {
  if (before == after) return;
  const auto [known, added] = flags_.try_emplace(object, before);
  if (!added && known->second == after) flags_.erase(known);
}

void BatchPartScope::freeze(bool on) const noexcept {
  for (const Freeze* const scope : frozen_) scope->set(on);
}

BatchPartScope::Away::Away(const char* op) {
  FIRN_CHECK(thread_context.batch_part->flags_.empty(), op,
             "call them outside of run_batch(), or put the modes back before the next layer that "
             "normalises the batch",
             "train() or eval() has changed a module in the function of run_batch(), in which the "
             "chunks of the batch are interleaved");
  thread_context.batch_part->freeze(false);
}

BatchPartScope::Away::~Away() { thread_context.batch_part->freeze(true); }

}  // namespace firn::autograd
