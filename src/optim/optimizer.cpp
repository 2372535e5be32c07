// The public calls of an Optimizer. step.cpp implements them, and calls/ those that make whole
// cycles.
#include "firn/optim/optimizer.h"

#include "kernels/optim.h"
#include "optim/impl.h"
#include "optim/policy/require_option.h"
#include "optim/policy/schedule_table.h"
#include "optim/saved_state.h"

namespace firn::optim {

Optimizer::Optimizer(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

Optimizer::Impl& Optimizer::impl() const {
  FIRN_CHECK(impl_, "Optimizer", "use the optimizer that it was moved to",
             "this optimizer was moved from: it has no parameters");
  keep_if_planned(*impl_);
  return *impl_;
}

// ---- The step ----

void Optimizer::backward(const Loss& loss, const BackwardPass& pass) try {
  Impl& i = impl();
  const Impl::RunningCall running = i.begin_call("backward()");
  require_no_retry(i, "backward()");
  i.require_no_pass();
  i.add_loss(loss, pass);
}
FIRN_OUT_OF_MEMORY("backward")

void Optimizer::backward(const Tensor& sum, double weight, const BackwardPass& pass) try {
  Impl& i = impl();
  const Impl::RunningCall running = i.begin_call("backward()");
  require_no_retry(i, "backward()");
  i.require_no_pass();
  require_option(i.store.op().c_str(), "the weight of a loss", weight, 0,
                 "give the number of samples that the loss was summed over");
  for (const kernels::OptimizerArena& arena : i.store.arenas())
    require_seen(i.store.op(), arena.weight.dtype, "the weight of a loss", weight);
  i.backward(sum, {.number = weight}, pass);
}
FIRN_OUT_OF_MEMORY("backward")

void Optimizer::no_samples() try {
  const Impl::RunningCall running = impl().begin_call("no_samples()");
  require_no_retry(impl(), "no_samples()");
  FIRN_CHECK(impl().options.exact.chunk == 0, impl().store.op(),
             "call run_batch() with the samples of all ranks",
             "no_samples() in exact mode, which knows the samples of each rank");
  FIRN_CHECK(!impl().store.weights_sharded(), impl().store.op(),
             "call run_batch() with the samples of all ranks, or backward() with the sum of a loss "
             "times 0 and weight 0",
             "a micro-step without samples, and weights are sharded: this rank has to run what the "
             "others run");
  impl().no_samples();
}
FIRN_OUT_OF_MEMORY("no_samples")

StepReport Optimizer::step() try {
  Impl& i = impl();
  const Impl::RunningCall running = i.begin_call("step()");
  i.extension->check_call(StepExtension::Call::step);
  return i.step();
}
FIRN_OUT_OF_MEMORY("step")

StepReport Optimizer::flush(Partial partial) try {
  require_named("flush", "Partial", partial, Partial::drop);
  const Impl::RunningCall running = impl().begin_call("flush()");
  if (partial == Partial::apply) impl().extension->check_call(StepExtension::Call::flush);
  return impl().flush(partial);
}
FIRN_OUT_OF_MEMORY("flush")

void Optimizer::zero_grad() try {
  const Impl::RunningCall running = impl().begin_call("zero_grad()");
  impl().require_no_pass();
  warn_of_dropped_calls(impl());
  impl().zero_grad();
}
FIRN_OUT_OF_MEMORY("zero_grad")

// ---- The position in the cycle ----

void Optimizer::set_epoch(std::int64_t epoch) {
  Impl& i = impl();
  const Impl::RunningCall running(i, "set_epoch()");
  FIRN_CHECK(epoch >= 0, i.store.op(), "epochs count from 0", "the epoch is {}", epoch);
  i.options.accumulate.at(epoch);  // throws now instead of in the next cycle
  i.at.epoch = epoch;
}

std::int64_t Optimizer::cycle_length() const {
  Impl& i = impl();
  const Impl::RunningCall running(i, "cycle_length()");
  return i.at.length_or_next(i.options.accumulate);
}

std::int64_t Optimizer::cycle_position() const { return impl().at.calls; }

StepReport Optimizer::last_report() const try {
  const Impl& i = impl();
  const bool between = i.at.calls == 0 && i.at.micro_steps == 0 && i.at.cycles > 0;
  return between ? i.report_of_cycle() : i.report_so_far();
}
FIRN_OUT_OF_MEMORY("the report of a step")

LossTotals Optimizer::loss_totals() const {
  const math::StepState s = impl().store.read_state();
  return {s.loss_total, s.weight_total};
}

// ---- Settings ----

double Optimizer::lr() const { return impl().store.read_state().learning_rate; }

void Optimizer::set_lr(double lr) { set_lr(Schedule(lr)); }

void Optimizer::set_lr(const Schedule& lr) try {
  Impl& i = impl();
  require_lr(i.store.op().c_str(), lr, rates_of(i.store.arenas(), i.policy));
  i.notes.lr = lr;
  kernels::optim_set_schedule(i.store.memory(), table_of(lr), i.store.stream());
}
FIRN_OUT_OF_MEMORY("set_lr")

double Optimizer::loss_scale() const {
  const Impl& i = impl();
  return i.policy.scale.scaled ? i.scaler.scale() : 1;
}

void Optimizer::set_loss_scale(double scale) {
  const Impl& i = impl();
  check_scale(i.store.op().c_str(), i.options.loss_scale, scale);
  kernels::optim_set_scale(i.store.memory(), scale, i.policy.scale, i.store.stream());
}

// ---- Parameters and state ----

std::vector<Tensor> Optimizer::parameters() const try { return impl().store.parameters(); }
FIRN_OUT_OF_MEMORY("the list of parameters")

void Optimizer::refresh_masters() try {
  Impl& i = impl();
  i.require_outside_rule("refresh_masters()");
  i.require_training_weights();
  i.store.show_training_weights();
  i.extension->take_over_weights();
  i.store.refresh_masters();
}
FIRN_OUT_OF_MEMORY("refresh_masters")

std::vector<NamedState> Optimizer::state() const try {
  Impl& i = impl();
  i.require_outside_rule("state()");
  i.require_training_weights();
  FIRN_CHECK(!i.store.sharded(), i.store.op(), "io::save_run() saves all of it",
             "each rank has a part of the state alone");
  std::vector<NamedState> out;
  for (StateEntry& e : state_of(i)) out.push_back({e.name, e.tensor});
  return out;
}
FIRN_OUT_OF_MEMORY("the optimizer's state")

}  // namespace firn::optim
