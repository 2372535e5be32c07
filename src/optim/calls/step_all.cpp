// A joint step of optimizers that share a loss scale.
#include "firn/optim/joint_step.h"

#include <algorithm>
#include <list>
#include <span>

#include "kernels/optim.h"
#include "optim/impl.h"
#include "optim/report/step_listener.h"

namespace firn::optim {
namespace {

using Impl = OptimizerAccess::Impl;

/// Returns the optimizers after checking that they can step together, and that each is ready.
std::vector<Impl*> partners(const char* op, std::initializer_list<Optimizer*> optimizers) {
  FIRN_CHECK(optimizers.size() > 0, op, "give the optimizers that share a LossScaler",
             "there is no optimizer");
  std::vector<Impl*> given;
  for (const Optimizer* o : optimizers) {
    FIRN_CHECK(o, op, "give the address of an optimizer", "optimizer {} is a null pointer",
               given.size());
    Impl* const impl = &OptimizerAccess::impl(*o);
    impl->require_outside_cycle(op);
    const auto first = std::find(given.begin(), given.end(), impl);
    FIRN_CHECK(first == given.end(), op, "give each of them once",
               "optimizers {} and {} are the same: it is given twice", first - given.begin(),
               given.size());
    given.push_back(impl);
  }
  std::vector<Impl*> out;
  for (Impl* const next : given) {
    Impl& impl = *next;
    FIRN_CHECK(impl.options.scaler.defined() &&
                   (out.empty() || impl.scaler.memory().impl() == out[0]->scaler.memory().impl()),
               op, "give one LossScaler to the StepOptions of all",
               "optimizer {} does not share its loss scale with the others", out.size());
    const auto ranks = impl.extension->ranks(),
               first = out.empty() ? ranks : out[0]->extension->ranks();
    FIRN_CHECK(!ranks.copies == !first.copies && !ranks.model == !first.model, op,
               "call dist::distribute() for all of them, with one group or mesh, or for none",
               "optimizer {} {} other ranks, and optimizer 0 {}", out.size(),
               ranks.copies || ranks.model ? "has" : "has no",
               first.copies || first.model ? "has others" : "has none");
    impl.check_ready();
    out.push_back(&impl);
  }
  return out;
}

/// While alive, `op` of all of them is running.
class RunningCalls {
 public:
  RunningCalls(const std::vector<Impl*>& all, const char* op) {
    for (Impl* i : all) calls_.emplace_back(*i, op);
  }

 private:
  std::list<Impl::RunningCall> calls_;
};

std::vector<StepReport> reports_so_far(const std::vector<Impl*>& all) {
  std::vector<StepReport> out;
  for (const Impl* i : all) out.push_back(i->report_so_far());
  return out;
}

/// Does what Impl::end_cycle() does for all, with a single decision on the scale.
std::vector<StepReport> end_cycles(const std::vector<Impl*>& all, SkipPolicy policy) {
  const Stream stream = all[0]->store.stream();
  std::vector<kernels::StepMemory> memories;
  for (const Impl* i : all) memories.push_back(i->store.memory());
  for (Impl* i : all) check_skips(*i);
  for (Impl* i : all) i->extension->combine();
  std::vector<bool> reached;
  for (Impl* i : all) reached.push_back(i->decide());
  if (policy == SkipPolicy::all) kernels::optim_join(memories, stream);
  for (Impl* i : all) i->compute_rules();
  for (Impl* i : all) i->commit(false);
  kernels::optim_move_scale(memories, all[0]->policy.scale, stream);
  std::vector<StepReport> out;
  for (Impl* i : all) {
    out.push_back(i->report_of_cycle());
    notify_listener(*i, out.back());
  }
  for (Impl* i : all) check_skips(*i);
  for (std::size_t i = 0; i < all.size(); ++i) warn_if_unreached(*all[i], reached[i]);
  return out;
}

}  // namespace

std::vector<StepReport> step_all(std::initializer_list<Optimizer*> optimizers,
                                 SkipPolicy policy) try {
  constexpr const char* kOp = "step_all";
  require_named(kOp, "SkipPolicy", policy, SkipPolicy::each);
  const std::vector<Impl*> all = partners(kOp, optimizers);
  const RunningCalls running(all, "step_all()");
  bool due = false;
  for (const Impl* i : all) due = due || i->at.has_new_micro_step();
  if (!due) {
    warn_of_empty_step(*all[0]);
    return reports_so_far(all);
  }
  const auto ends_cycle = [](const Impl* i) {
    return i->at.ends_with_next_call(i->options.accumulate);
  };
  const bool ends = ends_cycle(all[0]);
  for (std::size_t i = 1; i < all.size(); ++i)
    FIRN_CHECK(ends_cycle(all[i]) == ends, kOp, "give all the same `accumulate`",
               "optimizer {} is at another place of its cycle than optimizer 0", i);
  if (ends) return end_cycles(all, policy);
  for (Impl* i : all) i->count_call();
  return reports_so_far(all);
}
FIRN_OUT_OF_MEMORY("step_all")

std::vector<StepReport> flush_all(std::initializer_list<Optimizer*> optimizers, Partial partial,
                                  SkipPolicy policy) try {
  require_named("flush_all", "Partial", partial, Partial::drop);
  require_named("flush_all", "SkipPolicy", policy, SkipPolicy::each);
  const std::vector<Impl*> all = partners("flush_all", optimizers);
  const RunningCalls running(all, "flush_all()");
  bool any = false;
  for (Impl* i : all) {
    if (partial == Partial::drop) i->zero_grad();
    any = !i->extension->nothing_to_flush() || any;  // all ranks may have to make this call
  }
  if (partial == Partial::apply && any) return end_cycles(all, policy);
  return reports_so_far(all);
}
FIRN_OUT_OF_MEMORY("flush_all")

}  // namespace firn::optim
