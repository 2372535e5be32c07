// The cycle: backward passes add up sums and weights, and a step ends it.
#include "firn/optim/optimizer.h"

#include "firn/losses.h"
#include "optim/optimizer_impl.h"
#include "optim/schedule_table.h"

namespace firn::optim {

Optimizer::Impl::Impl(const char* op, std::vector<GroupSetup> groups, const Schedule& learning_rate,
                      const StepOptions& step)
    : store((require_option(op, "clip_norm", step.clip_norm, 0), op), groups),
      lr(learning_rate),
      options(step) {
  kernels::optim_set_schedule(store.memory(), table_of(lr), store.stream());
}

Optimizer::Optimizer(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::backward(const Loss& loss) {
  const std::string& op = impl_->store.op();
  const Tensor& w = loss.weight;
  FIRN_CHECK(w.defined() && w.numel() == 1 && compute_dtype(w.dtype()) == w.dtype() &&
                 is_floating(w.dtype()) && w.device() == impl_->store.device(),
             op, "take the loss from a function of losses.h",
             "the loss's weight is {}, not an f32 or f64 scalar on {}",
             w.defined() ? describe(w) : "undefined", impl_->store.device());
  run_backward(loss.sum, w, 0);
}

void Optimizer::backward(const Tensor& sum, double weight) {
  require_option(impl_->store.op().c_str(), "the weight of a loss", weight, 0);
  run_backward(sum, Tensor(), weight);
}

void Optimizer::run_backward(const Tensor& sum, const Tensor& weight, double host_weight) {
  ParamStore& store = impl_->store;
  const std::string& op = store.op();
  FIRN_CHECK(sum.defined(), op, "", "the loss is undefined");
  FIRN_CHECK(
      sum.numel() == 1 && is_floating(sum.dtype()) && compute_dtype(sum.dtype()) == sum.dtype(), op,
      "sum it, in f32", "the loss is {}, not an f32 or f64 scalar", describe(sum));
  FIRN_CHECK(sum.device() == store.device(), op, "move the model or the data",
             "the loss is {}, and the parameters are on {}", describe(sum), store.device());
  FIRN_CHECK(sum.requires_grad(), op,
             "compute it from the parameters given to the optimizer, outside of NoGrad",
             "the loss {} requires no gradient", describe(sum));
  FIRN_CHECK(!impl_->broken, op, "call zero_grad() to begin anew",
             "an earlier backward pass of this cycle has failed half-way");
  store.check_parameters();

  // A new seed each time: autograd may keep it as somebody's gradient.
  const Tensor seed = empty(sum.shape(), sum.dtype(), sum.device());
  kernels::optim_begin(store.memory(), seed.mutable_view(),
                       weight.defined() ? weight.view() : ConstView{}, host_weight, store.stream());
  impl_->broken = true;
  firn::backward(sum, {.seed = seed, .retain_graph = false});
  impl_->broken = false;
  store.note_gradients();
}

StepReport Optimizer::step() {
  ParamStore& store = impl_->store;
  FIRN_CHECK(!impl_->broken, store.op(), "call zero_grad() to begin anew",
             "a backward pass of this cycle has failed half-way");
  store.check_parameters();
  store.note_gradients();  // set_grad() may have dropped one since
  store.upload_touched();
  const kernels::StepMemory memory = store.memory();
  const Stream stream = store.stream();
  kernels::optim_norm(memory, store.arenas(), impl_->options.clip_norm, stream);
  kernels::optim_trust_ratios(memory, store.arenas(), stream);
  kernels::optim_update(memory, store.arenas(), stream);
  kernels::optim_finish(memory, stream);
  store.bump_versions();
  store.begin_cycle(false);
  return {store.step_state(), ++impl_->cycles};
}

void Optimizer::zero_grad() {
  impl_->store.begin_cycle(true);
  kernels::optim_reset(impl_->store.memory(), impl_->store.stream());
  impl_->broken = false;
}

double Optimizer::lr() const {
  math::StepState s;
  const ParamStore& store = impl_->store;
  copy_bytes(&s, Device::cpu(), store.step_state().impl()->data(), store.device(), sizeof(s));
  return s.learning_rate;
}

void Optimizer::set_lr(double lr) {
  require_option(impl_->store.op().c_str(), "lr", lr, 0);
  set_lr(Schedule(lr));
}

void Optimizer::set_lr(const Schedule& lr) {
  impl_->lr = lr;
  kernels::optim_set_schedule(impl_->store.memory(), table_of(lr), impl_->store.stream());
}

std::vector<Tensor> Optimizer::parameters() const { return impl_->store.parameters(); }

void Optimizer::refresh_masters() { impl_->store.refresh_masters(); }

std::vector<NamedState> Optimizer::state() const {
  impl_->store.upload_touched();
  return impl_->store.state();
}

}  // namespace firn::optim
