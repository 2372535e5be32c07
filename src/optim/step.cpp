// The cycle: backward passes add up sums and weights, and a step ends it.
#include <algorithm>

#include "firn/ops/losses.h"
#include "firn/runtime/spans.h"
#include "kernels/optim.h"
#include "optim/calls/scopes.h"
#include "optim/cycle/host_effects.h"
#include "optim/impl.h"
#include "optim/report/step_listener.h"

namespace firn::optim {

void Optimizer::Impl::backward(const Tensor& sum, const LossWeight& weight,
                               const BackwardPass& pass) {
  require_scalar(*this, sum);
  extension->check_call(StepExtension::Call::backward);
  check_ready();
  warn_if_unscaled(*this);
  const GradientsOfPass gradients(*this);
  const bool first = at.micro_steps == 0;
  // Allocate new memory each time, because autograd may keep it as a gradient.
  Tensor gradient;
  const auto allocate = [&] { gradient = empty(sum.shape(), sum.dtype(), sum.device()); };
  micro_step(allocate, [&] {
    const kernels::PendingGradient pending = kernels::pending_gradient(
        store.memory(), policy, gradient.mutable_view(), sum.view(),
        weight.tensor.defined() ? weight.tensor.view() : ConstView{}, weight.number);
    extension->run_pass({*this, sum, gradient, pending, first, pass.retain_graph});
  });
  gradients.note();
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
  depends_on(*this, [](const Impl& i) { return i.at.micro_steps == 0; });
  on_host(*this, [](Impl& i) {
    about_to_change_cycle(i);
    i.extension->begin_micro_step();
    i.at.add_micro_step(i.options.accumulate);
  });
}

void Optimizer::Impl::no_samples() {
  check_ready();
  Tensor gradient, loss;
  const auto allocate = [&] {
    gradient = zeros({}, DType::f32, store.device());
    loss = zeros({}, DType::f32, store.device());
  };
  micro_step(allocate, [&] {
    const kernels::PendingGradient pending = kernels::pending_gradient(
        store.memory(), policy, gradient.mutable_view(), loss.view(), ConstView{});
    extension->run_pass({*this, {}, gradient, pending, true, false});
  });
}

StepReport Optimizer::Impl::step() {
  check_ready();
  require_own_scale(*this, "step_all()");
  depends_on(*this, [](const Impl& i) { return i.at.has_new_micro_step(); });
  if (at.has_new_micro_step()) return count_call() ? end_cycle() : report_so_far();
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
  members.notify_waiting(store.step_state().view());
  on_host(*this, [](Impl& i) {
    if (!cycle_is_empty(i)) about_to_change_cycle(i);
  });
  remember_place(*this);
  drop_members();
  extension->drop_cycle();
  on_host(*this, [](Impl& i) {
    i.store.ledger().begin_cycle();
    i.now.close();
    i.at.close();
  });
}

bool Optimizer::Impl::count_call() {
  const auto ends = [](const Impl& i) { return i.at.ends_with_next_call(i.options.accumulate); };
  depends_on(*this, ends);
  // The end of a cycle closes it. If that fails, the call can be repeated.
  if (ends(*this)) return true;
  on_host(*this, [](Impl& i) {
    about_to_change_cycle(i);
    i.at.open(i.options.accumulate);
    i.at.count_call();
  });
  return false;
}

StepReport Optimizer::Impl::end_cycle() {
  const runtime::Span span(runtime::SpanKind::phase, "optimizer step");
  check_skips(*this);  // on a device, outcomes of earlier cycles
  extension->combine();
  const bool reached = decide();
  compute_rules();
  commit(true);
  const StepReport report = report_of_cycle();
  notify_listener(*this, report);
  check_skips(*this);
  warn_if_unreached(*this, reached);
  return report;
}

bool Optimizer::Impl::decide() {
  const bool any = report_gradients(*this);
  if (!notes.warned.has(Warned::unheld))
    notes.unheld = at.micro_steps > 0 ? store.unheld() : std::string();
  extension->decide();
  return at.micro_steps == 0 || any;
}

void Optimizer::Impl::compute_rules() {
  const NonElementwiseUpdates& updates = store.non_elementwise();
  if (updates.empty()) return;
  const RuleScope rules(*this);
  const auto compute = [&] {
    extension->together([&] {
      updates.compute(store.memory(), store.update_arenas(), store.ledger(), store.stream());
    });
  };
  updates.spoils_gradients() ? overwrite_gradients(*this, compute) : compute();
}

void Optimizer::Impl::commit(bool moves_scale) {
  const kernels::StepMemory memory = store.memory();
  const Stream stream = store.stream();
  store.non_elementwise().commit(memory, store.ledger(), stream);
  kernels::optim_trust_ratios(memory, store.update_arenas(), stream);
  kernels::optim_update(memory, store.update_arenas(), policy, moves_scale, stream);
  extension->publish_weights();
  on_host(*this, [cut = call.cut](Impl& i) {
    i.store.bump_versions();
    i.store.ledger().begin_cycle();
    i.extension->cycle_ended();
    i.now.close();
    i.at.close();
    ++i.at.cycles;
    i.notes.last_cut = {cut, i.at.cycles};
  });
  end_members(*this);
}

StepReport Optimizer::Impl::report_of_cycle() const {
  StepReport out{store.step_state(), at.cycles, -1, store.short_names()};
  const LastCut& last = notes.last_cut;
  if (last.cycles == at.cycles)  // else a run was loaded or a step undone
    out.note_cut(last.cut.micro_batch, last.cut.retries);
  return out;
}

StepReport Optimizer::Impl::report_so_far() const {
  return {store.step_state(), at.cycles, at.micro_steps, store.short_names()};
}

}  // namespace firn::optim
