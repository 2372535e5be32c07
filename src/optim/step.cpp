// How a cycle goes: backward passes add up sums and weights, and a step ends it.
#include <algorithm>
#include <optional>
#include <span>

#include "firn/ops/losses.h"
#include "firn/runtime/spans.h"
#include "kernels/optim.h"
#include "optim/impl.h"
#include "optim/report/step_listener.h"

namespace firn::optim {
void Optimizer::Impl::backward(const Tensor& sum, const LossWeight& weight,
                               const BackwardPass& pass) {
  require_scalar(*this, sum);
  extension->check_call(StepExtension::Call::backward);
  check_ready();
  warn_if_unscaled(*this);
  GradientLedger& ledger = store.ledger();
  // New memory each time: autograd may keep it as a gradient.
  const Tensor gradient = empty(sum.shape(), sum.dtype(), sum.device());
  const auto before = hooks.capturing() ? ledger.contributions() : GradientLedger::Counts();
  const bool first = at.micro_steps == 0;
  micro_step([&] {
    const kernels::PendingSeed pending = kernels::pending_seed(
        store.memory(), policy, gradient.mutable_view(), sum.view(),
        weight.tensor.defined() ? weight.tensor.view() : ConstView{}, weight.number);
    extension->run_pass({*this, sum, gradient, pending, first, pass.retain_graph});
  });
  ledger.note();
  if (hooks.capturing())
    hooks.at_replay([before, after = ledger.contributions()](Impl& i) {
      i.store.ledger().receive(before, after, [&i](std::size_t p) { return i.store.label(p); });
    });
}

void Optimizer::Impl::add_loss(const Loss& loss, const BackwardPass& pass) try {
  require_weight(*this, loss);
  const std::int64_t steps = std::max(at.length_or_next(options.accumulate), at.micro_steps + 1);
  FIRN_CHECK(!loss.coupled || steps == 1, store.op(),
             "opt.step_two_pass(parts, encode, loss) computes it over the whole batch",
             "the loss couples the samples of its batch, so the gradients of micro-batches do not "
             "add up to that of the batch, and this cycle has {} micro-steps",
             steps);
  extension->check_coupled(loss.coupled);
  backward(loss.sum, {.tensor = loss.weight}, pass);
}
FIRN_OUT_OF_MEMORY("backward")

void Optimizer::Impl::begin_micro_step() {
  FIRN_CHECK(now.phase != Phase::combined, store.op(), "call step() again, or zero_grad()",
             "the last step has failed after the ranks had added up their gradients");
  const bool first = at.micro_steps == 0;
  remember_place(*this);
  hooks.at_replay([first](Impl& i) {
    check_skips(i);
    i.check_ready();
    require_place(i, (i.at.micro_steps == 0) == first);
  });
  hooks.now_and_at_replay([](Impl& i) {
    about_to_change_cycle(i);
    i.extension->begin_micro_step();
    i.at.add_micro_step(i.options.accumulate);
  });
}

void Optimizer::Impl::no_samples() {
  check_ready();
  const Tensor gradient = zeros({}, DType::f32, store.device());
  const Tensor loss = zeros({}, DType::f32, store.device());
  micro_step([&] {
    const kernels::PendingSeed pending = kernels::pending_seed(
        store.memory(), policy, gradient.mutable_view(), loss.view(), ConstView{});
    extension->run_pass({*this, {}, gradient, pending, true, false});
  });
}

StepReport Optimizer::Impl::step() {
  check_ready();
  require_own_scale(*this, "step_all()");
  const bool due = at.has_new_micro_step();
  hooks.at_replay([due](Impl& i) { require_place(i, i.at.has_new_micro_step() == due); });
  if (due) return count_call() ? end_cycle() : report_so_far();
  warn_of_empty_step(*this);
  return report_so_far();
}

StepReport Optimizer::Impl::flush(Partial partial) {
  check_ready();
  if (partial == Partial::drop) zero_grad();
  if (partial != Partial::apply || extension->nothing_to_flush()) return report_so_far();
  require_own_scale(*this, "flush_all()");
  return end_cycle();
}

void Optimizer::Impl::zero_grad() {
  members.tell_waiting(store.step_state().view());
  hooks.now_and_at_replay([](Impl& i) {
    if (!cycle_is_empty(i)) about_to_change_cycle(i);
  });
  remember_place(*this);
  drop_members();
  extension->drop_cycle();
  hooks.now_and_at_replay([](Impl& i) {
    i.store.ledger().begin_cycle();
    i.now.close();
    i.at.close();
  });
}

bool Optimizer::Impl::count_call() {
  remember_place(*this);
  const bool ends = at.ends_with_next_call(options.accumulate);
  hooks.at_replay([ends](Impl& i) {
    check_skips(i);
    i.check_ready();
    require_place(i, i.at.ends_with_next_call(i.options.accumulate) == ends);
  });
  // The end of a cycle closes it; if that fails, the call can be repeated.
  if (!ends)
    hooks.now_and_at_replay([](Impl& i) {
      about_to_change_cycle(i);
      i.at.open(i.options.accumulate);
      i.at.count_call();
    });
  return ends;
}

StepReport Optimizer::Impl::end_cycle() {
  const runtime::Span span(runtime::SpanKind::phase, "optimizer step");
  check_skips(*this);  // on a device, of cycles before
  extension->combine();
  const bool reached = decide();
  compute_rules();
  commit(true);
  const StepReport report = report_of_cycle();
  tell_listener(*this, report);
  check_skips(*this);
  warn_if_unreached(*this, reached || runtime::dry_run());
  return report;
}

bool Optimizer::Impl::decide() {
  GradientLedger& ledger = store.ledger();
  remember_place(*this);
  ledger.note();  // set_grad() may have dropped one since
  if (!notes.warned_unheld) notes.unheld = at.micro_steps > 0 ? store.unheld() : std::string();
  const bool captured_flags = ledger.tell_device(store.memory(), store.stream());
  if (hooks.capturing())
    hooks.at_replay([noted = ledger.noted(), captured_flags](Impl& i) {
      GradientLedger& of_replay = i.store.ledger();
      of_replay.note();
      FIRN_CHECK(of_replay.noted() == noted, i.store.op(), "record the step anew",
                 "a graph was replayed for other parameters than it was recorded with");
      if (captured_flags) {
        of_replay.assume_told();
      } else {
        of_replay.tell_device(i.store.memory(), i.store.stream());
      }
    });
  extension->decide();
  return at.micro_steps == 0 || ledger.any_noted();
}

void Optimizer::Impl::compute_rules() {
  const WholeUpdates& whole = store.whole();
  if (whole.empty()) return;
  if (whole.spoils_gradients() && !hooks.capturing()) about_to_change_cycle(*this);
  try {
    autograd::on_every_rank(store.op().c_str(), extension->ranks(), [&] {
      whole.compute(store.memory(), store.update_arenas(), store.ledger(), store.stream());
    });
  } catch (...) {
    if (whole.spoils_gradients() && !hooks.capturing()) zero_grad();
    throw;
  }
}

void Optimizer::Impl::commit(bool moves_scale) {
  const kernels::StepMemory memory = store.memory();
  const Stream stream = store.stream();
  store.whole().commit(memory, store.ledger(), stream);
  kernels::optim_trust_ratios(memory, store.update_arenas(), stream);
  kernels::optim_update(memory, store.update_arenas(), policy, moves_scale, stream);
  extension->publish_weights();
  hooks.now_and_at_replay([cut = call.cut](Impl& i) {
    i.store.bump_versions();
    i.store.ledger().begin_cycle();
    i.extension->cycle_ended();
    i.now.close();
    i.at.close();
    ++i.at.cycles;
    if (!runtime::dry_run()) i.notes.last_cut = {cut.micro_batch, cut.retries, i.at.cycles};
  });
  hooks.at_replay([joined = members.count()](Impl& i) {
    FIRN_CHECK(i.members.count() == joined, i.store.op(), "record the step anew",
               "a graph was recorded when {} layers took part in the cycle, and now {} do", joined,
               i.members.count());
  });
  try {
    members.end(store.step_state().view());
  } catch (const Error&) {
    // A captured step is not made after all. In one that is made, the other members can wait.
    if (!hooks.capturing()) return;
    members.forget_waiting();
    throw;
  }
}

StepReport Optimizer::Impl::report_of_cycle() const {
  StepReport out{store.step_state(), at.cycles, -1, store.short_names()};
  if (runtime::dry_run() || hooks.capturing()) {
    out.note_cut(call.cut.micro_batch, call.cut.retries);
  } else if (notes.last_cut.cycles == at.cycles) {  // else a run has been loaded, or a step undone
    out.note_cut(notes.last_cut.micro_batch, notes.last_cut.retries);
  }
  return out;
}

StepReport Optimizer::Impl::report_so_far() const {
  return {store.step_state(), at.cycles, at.micro_steps, store.short_names()};
}

}  // namespace firn::optim
