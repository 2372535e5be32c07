// The construction of an Optimizer, and the checks before a cycle continues.
#include "optim/impl.h"

#include <algorithm>
#include <exception>

#include "kernels/copy.h"
#include "kernels/optim.h"
#include "optim/checks.h"
#include "optim/exact/exact_step.h"
#include "optim/policy/require_option.h"
#include "optim/policy/schedule_table.h"
#include "optim/saved_state.h"
#include "optim/store/state_check.h"

namespace firn::optim {
namespace {

bool is_16_bit(DType t) { return t == DType::f16 || t == DType::bf16; }

bool any_parameter(const std::vector<GroupSetup>& groups, bool (*is)(DType)) {
  for (const GroupSetup& g : groups)
    for (const NamedTensor& p : g.parameters)
      if (p.tensor.defined() && is(p.tensor.dtype())) return true;
  return false;
}

// Checks the options, and settles those that depend on the parameters' types.
StepOptions settle(const std::string& op, StepOptions o, const std::vector<GroupSetup>& groups) {
  require_option(op.c_str(), "clip_norm", o.clip_norm, 0, "0 is no limit");
  require_option(op.c_str(), "clip_value", o.clip_value, 0, "0 is no limit");
  for (const GroupSetup& g : groups) {
    for (const DType type : {DType::f32, DType::f64}) {
      if (!any_in(type, g.parameters)) continue;
      require_options(op, g, type);
      require_seen(op, type, "clip_norm", o.clip_norm);
      require_seen(op, type, "clip_value", o.clip_value);
    }
  }
  require_option(op.c_str(), "ema", o.ema, 0, 1, "0.999 is usual, 0 keeps no average");
  FIRN_CHECK(o.max_skips >= 0, op, "0 means no limit", "max_skips is {}", o.max_skips);
  FIRN_CHECK(o.exact.chunk >= 0, op, "0 switches exact mode off", "a chunk of {} samples",
             o.exact.chunk);
  if (o.scaler.defined()) {
    FIRN_CHECK(o.loss_scale.kind() == LossScale::Kind::automatic, op, "set one of them",
               "both loss_scale and scaler are set");
    o.loss_scale = o.scaler.policy();
    FIRN_CHECK(!retries(o.loss_scale), op, "make the scaler with OverflowPolicy::skip",
               "the scaler has OverflowPolicy::retry, and optimizers that share it step by "
               "step_all(), which computes no cycle again");
  } else if (o.loss_scale.kind() == LossScale::Kind::automatic) {
    const bool f16 = any_parameter(groups, [](DType t) { return t == DType::f16; });
    o.loss_scale = f16 ? LossScale::dynamic() : LossScale::none();
  }
  FIRN_CHECK(!o.stochastic_rounding || any_parameter(groups, is_16_bit), op,
             "leave it out, or convert the model before",
             "stochastic_rounding is set, and no parameter is f16 or bf16");
  for (const GroupSetup& g : groups)
    FIRN_CHECK(!o.stochastic_rounding || !is_schedule_free(g.rule), op,
               "leave it out: the parameters have f32 masters",
               "stochastic_rounding is set, and averaged weights are rounded to nearest");
  return o;
}

Tensor host_memory(std::size_t bytes) {
  const OwnerScope owner(Owner::optimizer);
  return zeros({static_cast<std::int64_t>(bytes / 8)}, DType::i64, Device::cpu());
}

math::StepPolicy step_policy(const StepOptions& o, const RunSetup& run,
                             const std::vector<GroupSetup>& groups) {
  math::StepPolicy out{.clip_norm = o.clip_norm,
                       .clip_value = o.clip_value,
                       .ema = o.ema,
                       .scale = policy_of(o.loss_scale),
                       .average = run.average,
                       .maximize = o.maximize};
  out.norm_by_chunk = o.exact.chunk > 0;
  for (const GroupSetup& g : groups) {
    const double scale = std::max({1.0, g.lr_scale, g.lr_scale * g.other_lr_scale});
    const double most =
        any_in(DType::f32, g.parameters) ? math::kLargestRate : math::kLargestRateInF64;
    out.largest_rate = std::min(out.largest_rate, most / scale);
  }
  return out;
}

}  // namespace

Optimizer::Impl::Impl(const char* op, std::vector<GroupSetup> groups, const RunSetup& run,
                      const StepOptions& step)
    : options(settle(op, step, groups)),
      policy(step_policy(options, run, groups)),
      kind_memory(zeros({32}, DType::u8, Device::cpu())),
      progress_memory(host_memory(sizeof(Progress))),
      at(*reinterpret_cast<Progress*>(progress_memory.mutable_view().as<std::int64_t>())),
      store(op, groups,
            {.masters = !options.stochastic_rounding,
             .average = options.ema > 0,
             .memory = options.state_memory,
             .watched = options.max_skips > 0,
             .scaler = options.scaler.defined() ? options.scaler.memory() : Tensor(),
             .cycle = this}),
      scaler(options.scaler.defined() ? options.scaler
                                      : LossScaler(options.loss_scale, store.scaler())),
      notes{.lr = run.lr},
      hooks(*this, store.op(), store.device()),
      extension(std::make_unique<StepExtension>(*this)) {
  require_lr(op, notes.lr, rates_of(store.arenas(), policy));
  kernels::optim_set_schedule(store.memory(), table_of(notes.lr), store.stream());
  for (const Tensor& p : store.parameters())
    if (const auto member = autograd::leaf_of(p)->member()) members.join(member);
  const std::string text = kind_of_state(store.op());
  std::copy(text.begin(), text.end(), kind_memory.mutable_view().as<std::uint8_t>());
  notes.state_version = version_of_state(*this);
  notes.no_scale_chosen = !step.scaler.defined() &&
                          step.loss_scale.kind() == LossScale::Kind::automatic &&
                          options.loss_scale.kind() == LossScale::Kind::none;
  if (options.exact.chunk > 0) add_exact_mode(*this);
  if (options.keep_accumulator) copy = reserve_copy(*this);
}

Optimizer::Impl::~Impl() {
  // A destructor that throws ends the program with this message. Otherwise the pass or the call
  // that is running would continue in freed memory.
  FIRN_CHECK(passes == 0, store.op(), "keep the optimizer until backward() has returned",
             "it is destroyed while a backward pass of its cycle is running");
  FIRN_CHECK(!call.running, store.op(),
             fmt::format("keep the optimizer until {} has returned", call.running),
             "it is destroyed while its {} is running", call.running);
  try {
    members.notify_waiting(store.step_state().view());
    drop_members();
  } catch (const std::exception&) {  // NOLINT: the device is lost, or there is no memory
  }
}

void Optimizer::Impl::set_ranks(std::unique_ptr<StepExtension> ranks) {
  if (!ranks) ranks = std::make_unique<StepExtension>(*this);
  if (options.exact.chunk > 0)
    extension->extend(std::move(ranks));
  else
    extension = std::move(ranks);
}

// ---- Checks ----

void Optimizer::Impl::check_ready() {
  // A dry run can read nothing, so writes from outside are taken over after it.
  if (!runtime::dry_run()) adopt_state(*this);
  if (now.failed()) require_no_pass();
  FIRN_CHECK(
      !now.failed(), store.op(), "call zero_grad() to begin anew",
      "a backward pass of this cycle, or its exchange with other ranks, has failed half-way");
  FIRN_CHECK(
      now.phase != Phase::publishing, store.op(), "load the last saved run",
      "the ranks' parts of the last step have not all come here, so the weights are those of "
      "no step");
  require_training_weights();
  if (!runtime::dry_run()) members.notify_waiting(store.step_state().view());
  store.check_parameters();
  store.show_training_weights();
  extension->take_over_weights();
  store.adopt_weights();
}

math::LossSums Optimizer::Impl::loss_sums() const {
  math::LossSums out;
  copy_bytes(&out, Device::cpu(), store.step_state().impl()->data(), store.device(), sizeof(out));
  return out;
}

void Optimizer::Impl::set_loss_sums(const math::LossSums& sums) const {
  copy_bytes(store.step_state().impl()->data(), store.device(), &sums, Device::cpu(), sizeof(sums));
}

void Optimizer::Impl::require_training_weights() const {
  FIRN_CHECK(!notes.averaged, store.op(), "end the scope of AveragedWeights first",
             "the weights are their moving averages at the moment");
}

void Optimizer::Impl::require_no_pass() const {
  FIRN_CHECK(passes == 0, store.op(), "call it after backward() has returned",
             "a backward pass of this cycle is running");
}

void Optimizer::Impl::require_no_cycle() {
  require_no_pass();
  FIRN_CHECK(at.micro_steps == 0 && at.calls == 0, store.op(),
             "end it with step() or flush(), or drop it with zero_grad()",
             "a cycle is under way: it has {} micro-steps", at.micro_steps);
  check_ready();
  require_own_scale(*this, "backward() of each and step_all()");
}

void Optimizer::Impl::require_outside_rule(const char* name) const {
  FIRN_CHECK(!in_rule, store.op(), "return from the function, and call it after the step",
             "{} inside the function of its rule, which computes the update of a step", name);
}

void Optimizer::Impl::require_outside_cycle(const char* name) const {
  require_outside_rule(name);
  FIRN_CHECK(!call.maker, store.op(),
             fmt::format("return from the function, and call it after {}", call.maker),
             "{} inside the function of {}, which makes the backward passes and the step itself",
             name, call.maker);
}

// ---- Layers ----

std::int64_t Optimizer::Impl::micro_steps() const noexcept {
  return std::max({at.length, at.micro_steps, call.parts});
}

void Optimizer::Impl::about_to_change_gradients() {
  hooks.now_and_at_replay([](Impl& i) { about_to_change_cycle(i); });
}

void Optimizer::Impl::adopt_gradients() {
  // A running pass adds to gradients, and neither a dry run nor a capture can read the record.
  if (passes == 0 && !runtime::dry_run() && !hooks.capturing()) optim::adopt_gradients(*this);
}

void Optimizer::Impl::drop_members() {
  // Before its first backward pass a cycle has collected nothing. But a captured call may be
  // replayed at any point of a cycle.
  if (at.micro_steps == 0 && !now.failed() && !hooks.capturing()) return;
  members.drop();
}

}  // namespace firn::optim
