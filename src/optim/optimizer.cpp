// The cycle: backward passes add up sums and weights, and a step ends it.
#include "firn/optim/optimizer.h"

#include <algorithm>

#include "autograd/node.h"
#include "firn/losses.h"
#include "firn/warning.h"
#include "optim/optimizer_impl.h"
#include "optim/schedule_table.h"
#include "optim/state_check.h"

namespace firn::optim {
namespace {

bool is_16_bit(DType t) { return t == DType::f16 || t == DType::bf16; }

bool any_parameter(const std::vector<GroupSetup>& groups, bool (*is)(DType)) {
  for (const GroupSetup& g : groups)
    for (const NamedTensor& p : g.parameters)
      if (p.tensor.defined() && is(p.tensor.dtype())) return true;
  return false;
}

// Checks the options, and settles what is left to the parameters' types.
StepOptions settle(const std::string& op, StepOptions o, const std::vector<GroupSetup>& groups) {
  require_option(op.c_str(), "clip_norm", o.clip_norm, 0);
  require_option(op.c_str(), "clip_value", o.clip_value, 0);
  require_option(op.c_str(), "ema", o.ema, 0, 1);
  FIRN_CHECK(o.max_skips >= 0, op, "0 means no limit", "max_skips is {}", o.max_skips);
  if (o.scaler.defined()) {
    FIRN_CHECK(o.loss_scale.kind() == LossScale::Kind::automatic, op, "set one of them",
               "both loss_scale and scaler are set");
    o.loss_scale = o.scaler.policy();
  } else if (o.loss_scale.kind() == LossScale::Kind::automatic) {
    const bool f16 = any_parameter(groups, [](DType t) { return t == DType::f16; });
    o.loss_scale = f16 ? LossScale::dynamic() : LossScale::none();
  }
  FIRN_CHECK(!o.stochastic_rounding || any_parameter(groups, is_16_bit), op,
             "leave it out, or convert the model before",
             "stochastic_rounding is set, and no parameter is f16 or bf16");
  return o;
}

Tensor host_memory(std::size_t bytes) {
  const OwnerScope owner(Owner::optimizer);
  return zeros({static_cast<std::int64_t>(bytes / 8)}, DType::i64, Device::cpu());
}

math::StepPolicy step_policy(const StepOptions& o) {
  return {o.clip_norm, o.clip_value, o.ema, policy_of(o.loss_scale)};
}

}  // namespace

Optimizer::Impl::Impl(const char* op, std::vector<GroupSetup> groups, const Schedule& learning_rate,
                      const StepOptions& step)
    : options(settle(op, step, groups)),
      policy(step_policy(options)),
      kind_memory(zeros({32}, DType::u8, Device::cpu())),
      progress_memory(host_memory(sizeof(Progress))),
      at(*reinterpret_cast<Progress*>(progress_memory.mutable_view().as<std::int64_t>())),
      store(op, groups,
            {.masters = !options.stochastic_rounding,
             .average = options.ema > 0,
             .watched = options.max_skips > 0,
             .scaler = options.scaler.defined() ? options.scaler.memory() : Tensor(),
             .owner = this}),
      scaler(options.scaler.defined() ? options.scaler
                                      : LossScaler(options.loss_scale, store.scaler())),
      lr(learning_rate) {
  kernels::optim_set_schedule(store.memory(), table_of(lr), store.stream());
  for (const Tensor& p : store.parameters())
    if (const auto& member = autograd::leaf_of(p)->member) join(member);
  const std::string text = kind_of_state(store.op());
  std::copy(text.begin(), text.end(), kind_memory.mutable_view().as<std::uint8_t>());
  state_version = version_of_state();
}

std::uint32_t Optimizer::Impl::version_of_state() const noexcept {
  return store.version_of_state() + progress_memory.storage()->version() +
         kind_memory.storage()->version();
}

void Optimizer::Impl::adopt_state() {
  const std::uint32_t version = version_of_state();
  if (version == state_version || runtime::capturing(store.device())) return;
  const ParamStore::HostState s = store.host_state();
  const auto* kind = kind_memory.view().as<char>();
  lr = check_state(store.op(), {.kind = std::string(kind, kind_memory.bytes()),
                                .update_counts = s.update_counts,
                                .touched = s.touched,
                                .schedule = s.schedule,
                                .scaler = s.scaler,
                                .step = s.step,
                                .progress = at});
  state_version = version;
}

Optimizer::Impl::~Impl() {
  try {
    drop_members();
  } catch (const Error&) {  // NOLINT: the device is lost
  }
}

Optimizer::Optimizer(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

Optimizer::Impl& Optimizer::own() const {
  FIRN_CHECK(impl_, "Optimizer", "use the optimizer that it was moved to",
             "this optimizer was moved from: it has no parameters");
  return *impl_;
}

void Optimizer::backward(const Loss& loss, const BackwardPass& pass) {
  require_loss(loss);
  FIRN_CHECK(!loss.coupled || (cycle_length() == 1 && own().at.micro_steps == 0), own().store.op(),
             "opt.step_two_pass(parts, encode, loss) computes it over the whole batch",
             "the loss couples the samples of its batch, so the gradients of micro-batches do not "
             "add up to that of the batch, and this cycle has {} micro-steps",
             std::max(cycle_length(), own().at.micro_steps + 1));
  run_backward(loss.sum, loss.weight, 0, pass);
}

void Optimizer::require_loss(const Loss& loss) const {
  const std::string& op = own().store.op();
  const Tensor& w = loss.weight;
  FIRN_CHECK(w.defined() && w.numel() == 1 && compute_dtype(w.dtype()) == w.dtype() &&
                 is_floating(w.dtype()) && w.device() == own().store.device(),
             op, "take the loss from a function of losses.h",
             "the loss's weight is {}, not an f32 or f64 scalar on {}",
             w.defined() ? firn::describe(w) : "undefined", own().store.device());
}

void Optimizer::backward(const Tensor& sum, double weight, const BackwardPass& pass) {
  require_option(own().store.op().c_str(), "the weight of a loss", weight, 0);
  run_backward(sum, Tensor(), weight, pass);
}

void Optimizer::run_backward(const Tensor& sum, const Tensor& weight, double host_weight,
                             const BackwardPass& pass) try {
  ParamStore& store = own().store;
  const std::string& op = store.op();
  FIRN_CHECK(sum.defined(), op, "", "the loss is undefined");
  FIRN_CHECK(
      sum.numel() == 1 && is_floating(sum.dtype()) && compute_dtype(sum.dtype()) == sum.dtype(), op,
      "sum it, in f32", "the loss is {}, not an f32 or f64 scalar", firn::describe(sum));
  FIRN_CHECK(sum.device() == store.device(), op, "move the model or the data",
             "the loss is {}, and the parameters are on {}", firn::describe(sum), store.device());
  FIRN_CHECK(sum.requires_grad(), op,
             "compute it from the parameters given to the optimizer, outside of NoGrad",
             "the loss {} requires no gradient", firn::describe(sum));
  check_ready();
  own().remember_place();
  const bool first = own().at.micro_steps == 0;
  own().at_replay([first](Impl& i) {
    i.check_skips();
    i.check_ready();
    i.require_place((i.at.micro_steps == 0) == first);
  });
  own().on_host([](Impl& i) { i.open_cycle(); });

  // A new seed each time: autograd may keep it as somebody's gradient.
  const Tensor seed = empty(sum.shape(), sum.dtype(), sum.device());
  const bool recording = runtime::capturing(store.device());
  std::vector<std::uint32_t> before;
  if (recording) before = store.contributions();
  own().broken = true;
  const kernels::PendingSeed pending =
      kernels::pending_seed(store.memory(), own().policy, seed.mutable_view(), sum.view(),
                            weight.defined() ? weight.view() : ConstView{}, host_weight);
  // At the cycle's first pass the arenas are not in use yet, so the loss may compute the seed
  // itself.
  const bool in_pass = first && autograd::takes_pending_seed(sum);
  if (!in_pass)
    kernels::optim_begin(pending,
                         first ? std::span<const kernels::OptimizerArena>() : store.arenas(),
                         store.stream());
  own().on_host([](Impl& i) { i.at.micro_steps += 1; });
  {
    const autograd::CycleScope cycle(own());
    autograd::backward_from(sum, seed, in_pass ? &pending : nullptr, pass.retain_graph);
  }
  own().broken = false;
  store.note_gradients();
  if (recording)
    own().at_replay([before = std::move(before), after = store.contributions()](Impl& i) {
      i.store.receive(before, after);
    });
}
FIRN_OUT_OF_MEMORY("backward")

void Optimizer::check_ready() const { own().check_ready(); }

void Optimizer::Impl::check_ready() {
  FIRN_CHECK(!broken, store.op(), "call zero_grad() to begin anew",
             "a backward pass of this cycle has failed half-way");
  FIRN_CHECK(!averaged, store.op(), "end the scope of use_ema() first",
             "the weights are their moving averages at the moment");
  adopt_state();
  end_members();
  store.adopt_touched();
  store.check_parameters();
  store.adopt_weights();
}

void Optimizer::Impl::require_place(bool as_recorded) const {
  FIRN_CHECK(as_recorded, store.op(),
             "record one graph for each place in the cycle, and replay them in turn",
             "a graph was replayed at another place of the cycle than it was recorded at ({} "
             "micro-steps so far)",
             at.micro_steps);
}

void Optimizer::Impl::remember_place() {
  if (!runtime::capturing(store.device())) return;
  struct Place {
    Progress at;
    bool broken;
    std::vector<std::uint32_t> contributions;
  };
  const auto place = std::make_shared<Place>();
  on_host([place](Impl& i) { *place = {i.at, i.broken, i.store.contributions()}; });
  runtime::on_abandon(store.device(), [alive = std::weak_ptr<Impl*>(self), place] {
    const auto impl = alive.lock();
    if (!impl) return;
    (*impl)->at = place->at;
    (*impl)->broken = place->broken;
    (*impl)->store.put_back(place->contributions);
  });
}

bool Optimizer::Impl::count_call() {
  remember_place();
  open_cycle();
  const auto count = [](Impl& i) {
    i.at.calls += 1;
    i.at.counted = i.at.micro_steps;
  };
  count(*this);
  const bool ends = at.calls >= at.length;
  at_replay([ends, count](Impl& i) {
    i.check_skips();
    i.check_ready();
    i.open_cycle();
    i.require_place((i.at.calls + 1 >= i.at.length) == ends);
    count(i);
  });
  return ends;
}

StepReport Optimizer::step() try {
  check_ready();
  Impl& i = own();
  FIRN_CHECK(!i.options.scaler.defined(), i.store.op(), "call step_all()",
             "its loss scale is shared with other optimizers");
  const bool due = i.has_new_micro_step();
  i.at_replay([due](Impl& self) { self.require_place(self.has_new_micro_step() == due); });
  if (!due) {
    i.warn_of_empty_step();
    return progress();
  }
  return i.count_call() ? end_cycle() : progress();
}
FIRN_OUT_OF_MEMORY("step")

StepReport Optimizer::flush(Partial partial) try {
  check_ready();
  if (partial == Partial::drop) zero_grad();
  if (partial != Partial::apply || own().at.micro_steps == 0) return progress();
  FIRN_CHECK(!own().options.scaler.defined(), own().store.op(), "call flush_all()",
             "its loss scale is shared with other optimizers");
  return end_cycle();
}
FIRN_OUT_OF_MEMORY("flush")

StepReport Optimizer::progress() const {
  return {own().store.step_state(), own().at.cycles, own().at.micro_steps,
          own().store.short_names()};
}

StepReport Optimizer::last_report() const {
  const Progress& at = own().at;
  if (at.calls > 0 || at.micro_steps > 0 || at.cycles == 0) return progress();
  return {own().store.step_state(), at.cycles, -1, own().store.short_names()};
}

LossTotals Optimizer::loss_totals() const {
  const math::StepState s = own().store.read_state();
  return {s.loss_total, s.weight_total};
}

bool Optimizer::Impl::decide() {
  remember_place();
  store.note_gradients();  // set_grad() may have dropped one since
  const bool recorded = store.upload_touched();
  if (runtime::capturing(store.device()))
    at_replay([touched = store.touched(), recorded](Impl& i) {
      i.store.note_gradients();
      FIRN_CHECK(i.store.touched() == touched, i.store.op(), "record the step anew",
                 "a graph was replayed for other parameters than it was recorded with");
      if (recorded) {
        i.store.assume_uploaded();
      } else {
        i.store.upload_touched();
      }
    });
  kernels::optim_norm(store.memory(), store.arenas(), policy, store.stream());
  const auto& touched = store.touched();
  return at.micro_steps == 0 || std::find(touched.begin(), touched.end(), 1) != touched.end();
}

void Optimizer::Impl::warn_if_unreached(bool reached) {
  if (reached || warned_unreached) return;
  warned_unreached = true;
  warn(store.op(), fmt::format("no gradient has reached any parameter: {}", store.names()),
       "compute the loss from these parameters: a copied or frozen model, detach() or NoGrad cuts "
       "the way to them");
}

void Optimizer::Impl::warn_of_empty_step() {
  if (warned_empty) return;
  warned_empty = true;
  warn(store.op(), "step() was called without a backward() since the last one: it does nothing",
       "call opt.backward(loss) first; loss.backward() does not count");
}

void Optimizer::Impl::commit(bool moves_scale) {
  const kernels::StepMemory memory = store.memory();
  const Stream stream = store.stream();
  kernels::optim_trust_ratios(memory, store.arenas(), stream);
  kernels::optim_update(memory, store.arenas(), policy, moves_scale, stream);
  on_host([](Impl& i) {
    i.store.bump_versions();
    i.store.begin_cycle();
    i.close_cycle();
    ++i.at.cycles;
  });
  at_replay([joined = members.size()](Impl& i) {
    FIRN_CHECK(i.members.size() == joined, i.store.op(), "record the step anew",
               "a graph was recorded when {} layers took part in the cycle, and now {} do", joined,
               i.members.size());
  });
  to_end = members.size();
  try {
    end_members();
  } catch (const Error&) {
    // A recorded step is not made after all. One that is made, is made: the rest can wait.
    if (!runtime::capturing(store.device())) return;
    to_end = 0;
    throw;
  }
}

void Optimizer::Impl::end_members() {
  for (; to_end > 0; --to_end)
    members[members.size() - to_end]->end_cycle(store.step_state().view());
}

void Optimizer::Impl::drop_members() {
  // Before its first backward pass a cycle has collected nothing; of one that is being recorded
  // nobody knows at what place it will be replayed.
  if (at.micro_steps == 0 && !broken && !runtime::capturing(store.device())) return;
  for (const auto& member : members) member->drop_cycle();
}

void Optimizer::Impl::join(const std::shared_ptr<autograd::CycleMember>& member) {
  if (std::find(members.begin(), members.end(), member) == members.end()) members.push_back(member);
}

std::int64_t Optimizer::Impl::micro_steps() const noexcept {
  return std::max({at.length, at.micro_steps, parts});
}

StepReport Optimizer::end_cycle() {
  Impl& i = own();
  i.check_skips();  // on a device, of cycles before
  const bool reached = i.decide();
  i.commit(true);
  StepReport report(i.store.step_state(), i.at.cycles, -1, i.store.short_names());
  i.check_skips();
  i.warn_if_unreached(reached);
  return report;
}

void Optimizer::Impl::check_skips() {
  if (options.max_skips == 0) return;
  const math::StepOutcome o = store.last_seen();
  if (o.status != math::StepStatus::skipped_non_finite || o.skips_in_row < options.max_skips ||
      o.cycle == complained)
    return;
  complained = o.cycle;
  std::string culprit = "the averaged gradient";
  if (o.culprit >= 0) {
    culprit = fmt::format("the gradient of {},", store.label(static_cast<std::size_t>(o.culprit)));
  }
  if (o.non_finite == math::NonFinite::weight) culprit = "the loss's weight";
  if (o.non_finite == math::NonFinite::loss) culprit = "the loss";
  FIRN_CHECK(
      false, store.op(),
      "this is no matter of the loss scale: look at the data, the learning rate, and the "
      "model's operations (AnomalyMode names the one)",
      "{} steps in a row were skipped, the last one because {} is not finite (loss scale {})",
      o.skips_in_row, culprit, o.loss_scale);
}

void Optimizer::zero_grad() {
  own().end_members();
  own().remember_place();
  own().drop_members();
  own().store.begin_cycle();
  kernels::optim_reset(own().store.memory(), own().store.stream());
  own().at_replay([](Impl& i) { i.store.begin_cycle(); });
  own().on_host([](Impl& i) {
    i.broken = false;
    i.close_cycle();
  });
}

void Optimizer::set_epoch(std::int64_t epoch) {
  FIRN_CHECK(epoch >= 0, own().store.op(), "", "the epoch is {}", epoch);
  own().options.accumulate.at(epoch);  // throws now rather than in the next cycle
  own().at.epoch = epoch;
}

std::int64_t Optimizer::cycle_length() const {
  return own().at.length > 0 ? own().at.length : own().options.accumulate.at(own().at.epoch);
}

std::int64_t Optimizer::cycle_position() const { return own().at.calls; }

double Optimizer::lr() const { return own().store.read_state().learning_rate; }

void Optimizer::set_lr(double lr) {
  require_option(own().store.op().c_str(), "lr", lr, 0);
  set_lr(Schedule(lr));
}

void Optimizer::set_lr(const Schedule& lr) {
  own().lr = lr;
  kernels::optim_set_schedule(own().store.memory(), table_of(lr), own().store.stream());
}

std::vector<Tensor> Optimizer::parameters() const { return own().store.parameters(); }

void Optimizer::refresh_masters() {
  FIRN_CHECK(!own().averaged, own().store.op(), "end the scope of use_ema() first",
             "the weights are their moving averages at the moment");
  own().store.refresh_masters();
}

std::vector<NamedState> Optimizer::state() const try {
  own().store.adopt_touched();
  own().store.upload_touched();
  std::vector<NamedState> out = own().store.state();
  out.push_back({"cycle", own().progress_memory});
  out.push_back({"kind", own().kind_memory});
  return out;
}
FIRN_OUT_OF_MEMORY("the optimizer's state")

}  // namespace firn::optim
