#include "optim/inside.h"

#include <utility>

#include "firn/thread_context.h"
#include "optim/impl.h"
#include "optim/saved_state.h"

namespace firn::optim {
namespace {

OptimizerImpl& impl_of(const Optimizer& optimizer) { return OptimizerAccess::impl(optimizer); }

}  // namespace

const StepOptions& options_of(const Optimizer& optimizer) { return impl_of(optimizer).options; }
const std::string& name_of(const Optimizer& optimizer) { return impl_of(optimizer).store.op(); }
Device device_of(const Optimizer& optimizer) { return impl_of(optimizer).store.device(); }
const Progress& progress_of(const Optimizer& optimizer) { return impl_of(optimizer).at; }
autograd::StepRanks ranks_of(const Optimizer& optimizer) {
  return impl_of(optimizer).extension->ranks();
}
bool weights_sharded(const Optimizer& optimizer) {
  return impl_of(optimizer).store.weights_sharded();
}

void part_of_cycle(Optimizer& optimizer, const std::function<void()>& part) {
  impl_of(optimizer).extension->part_of_cycle(part);
}

void require_no_cycle(Optimizer& optimizer, const char* call) {
  impl_of(optimizer).require_outside_cycle(call);
  impl_of(optimizer).require_no_cycle();
}

std::weak_ptr<OptimizerImpl*> handle_of(const Optimizer& optimizer) {
  return impl_of(optimizer).hooks.handle();
}

CapturePlace place_of(const OptimizerImpl& impl) {
  return {.first = impl.at.calls == 0,
          .last = impl.at.ends_with_next_call(impl.options.accumulate)};
}

void show_training_weights(OptimizerImpl& impl) { impl.store.show_training_weights(); }

SavedState state_to_save(Optimizer& optimizer, bool of_all, const char* op,
                         const std::string& part) {
  OptimizerImpl& impl = impl_of(optimizer);
  FIRN_CHECK(!impl.notes.averaged, op, "end the scope of AveragedWeights first",
             "the weights of the optimizer \"{}\" are their moving averages at the moment", part);
  FIRN_CHECK(thread_context.cycle != &impl, op, "save and load when it has returned",
             "a backward() of the optimizer \"{}\" is running", part);
  FIRN_CHECK(!impl.in_rule, op, "save and load when it has returned",
             "a step of the optimizer \"{}\" is computing its rule", part);
  SavedState out;
  out.entries = of_all ? std::exchange(impl.state_of_all, {}) : state_of(impl);
  if (!of_all)
    for (StateEntry& e : impl.extension->entries_in_file()) out.entries.push_back(std::move(e));
  out.not_saved = why_not_saved(impl);
  const auto in_batch = impl.extension->in_batch();
  out.in_batch = in_batch.yes;
  out.random_in_batch = in_batch.random;
  out.place = impl.extension->place();
  return out;
}

void adopt_gradients(Optimizer& optimizer) { impl_of(optimizer).adopt_gradients(); }

void gather_state(Optimizer& optimizer) { gather_state(impl_of(optimizer)); }

}  // namespace firn::optim
