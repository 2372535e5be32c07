#include "optim/cycle/host_effects.h"

#include "base/check.h"
#include "optim/checks.h"

namespace firn::optim {

void depends_on(OptimizerImpl& impl, bool (*place)(const OptimizerImpl& impl)) {
  remember_place(impl);
  impl.hooks.at_replay([place, as_captured = place(impl)](OptimizerImpl& i) {
    check_skips(i);
    i.check_ready();
    FIRN_CHECK(place(i) == as_captured, i.store.op(),
               "record one graph for each place in the cycle, and replay them in turn",
               "a graph was replayed at another place of the cycle than it was recorded at ({} "
               "micro-steps so far)",
               i.at.micro_steps);
  });
}

GradientsOfPass::GradientsOfPass(OptimizerImpl& impl)
    : impl_(impl),
      before_(impl.hooks.capturing() ? impl.store.ledger().contributions()
                                     : GradientLedger::Counts()) {}

void GradientsOfPass::note() const {
  GradientLedger& ledger = impl_.store.ledger();
  ledger.note();
  if (!impl_.hooks.capturing()) return;
  impl_.hooks.at_replay([before = before_, after = ledger.contributions()](OptimizerImpl& i) {
    i.store.ledger().receive(before, after, [&i](std::size_t p) { return i.store.label(p); });
  });
}

bool report_gradients(OptimizerImpl& impl) {
  GradientLedger& ledger = impl.store.ledger();
  remember_place(impl);
  ledger.note();  // set_grad() may have dropped one
  const bool reported = ledger.report_to_device(impl.store.memory(), impl.store.stream());
  if (!impl.hooks.capturing()) return ledger.any_noted();
  impl.hooks.at_replay([noted = ledger.noted(), reported](OptimizerImpl& i) {
    GradientLedger& of_replay = i.store.ledger();
    of_replay.note();
    FIRN_CHECK(of_replay.noted() == noted, i.store.op(), "record the step anew",
               "a graph was replayed for other parameters than it was recorded with");
    if (reported) {
      of_replay.assume_reported();
    } else {
      of_replay.report_to_device(i.store.memory(), i.store.stream());
    }
  });
  return ledger.any_noted();
}

void end_members(OptimizerImpl& impl) {
  impl.hooks.at_replay([joined = impl.members.count()](OptimizerImpl& i) {
    FIRN_CHECK(i.members.count() == joined, i.store.op(), "record the step anew",
               "a graph was recorded when {} layers took part in the cycle, and now {} do", joined,
               i.members.count());
  });
  try {
    impl.members.end(impl.store.step_state().view());
  } catch (const Error&) {
    // A captured step is then not made. A step that is made continues, and its other members wait.
    if (!impl.hooks.capturing()) return;
    impl.members.forget_waiting();
    throw;
  }
}

void overwrite_gradients(OptimizerImpl& impl, const std::function<void()>& compute) {
  if (impl.hooks.capturing()) return compute();
  about_to_change_cycle(impl);
  try {
    compute();
  } catch (...) {
    impl.zero_grad();
    throw;
  }
}

}  // namespace firn::optim
