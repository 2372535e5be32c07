// about_to_change(): keeps tensors that a pass changes besides its results, for RollbackPoints.
#include <functional>

#include "autograd/cycle.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/storage.h"
#include "firn/runtime/stream.h"
#include "kernels/copy.h"

namespace firn::autograd {
namespace {

void copy_into(const Tensor& to, const Tensor& from) {
  kernels::copy(from.view(), to.mutable_view(), current_stream(to.device()));
}

void keep(const Tensor& t, Rollback kind) {
  runtime::before_change(kind, t.impl(), [&t]() -> std::function<void()> {
    runtime::refuse_capture("RollbackPoint", t.device(),
                            "it needs a copy of what the work is about to change");
    // The copy is neither an op that listeners see nor a part of the graph.
    const Tensor copy = empty(t.shape(), t.dtype(), t.device());
    copy_into(copy, t);
    return [t, copy] {
      copy_into(t, copy);
      t.storage()->bump_version("RollbackPoint");
    };
  });
}

}  // namespace

void about_to_change(std::initializer_list<const Tensor*> tensors, Rollback kind) {
  const bool wanted = runtime::rollback_wanted();
  for (const Tensor* t : tensors) {
    if (!t->defined()) continue;
    if (runtime::capturing(t->device())) [[unlikely]]
      runtime::on_replay(t->device(), [t = *t, kind] { keep(t, kind); });
    if (wanted) [[unlikely]]
      keep(*t, kind);
  }
}

}  // namespace firn::autograd
