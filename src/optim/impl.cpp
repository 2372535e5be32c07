// What an Optimizer checks and takes over before it goes on.
#include "optim/impl.h"

#include <algorithm>
#include <exception>

#include "firn/ops/losses.h"
#include "firn/warning.h"
#include "kernels/copy.h"
#include "kernels/optim.h"
#include "optim/exact/exact_step.h"
#include "optim/policy/schedule_table.h"
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

// Checks the options, and settles what is left to the parameters' types.
StepOptions settle(const std::string& op, StepOptions o, const std::vector<GroupSetup>& groups) {
  require_option(op.c_str(), "clip_norm", o.clip_norm, 0, "0 is no limit");
  require_option(op.c_str(), "clip_value", o.clip_value, 0, "0 is no limit");
  for (const GroupSetup& g : groups) {
    require_options(op, g);
    if (!any_in_f32(g.parameters)) continue;
    require_f32(op, "clip_norm", o.clip_norm);
    require_f32(op, "clip_value", o.clip_value);
  }
  require_option(op.c_str(), "ema", o.ema, 0, 1, "0.999 is usual, 0 keeps no average");
  FIRN_CHECK(o.max_skips >= 0, op, "0 means no limit", "max_skips is {}", o.max_skips);
  FIRN_CHECK(o.exact.quantum >= 0, op, "0 switches exact mode off", "a quantum of {} samples",
             o.exact.quantum);
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
  out.norm_by_chunk = o.exact.quantum > 0;
  for (const GroupSetup& g : groups) {
    const double scale = std::max({1.0, g.lr_scale, g.lr_scale * g.other_lr_scale});
    const double most = any_in_f32(g.parameters) ? math::kLargestRate : math::kLargestRateInF64;
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
  require_lr(op, notes.lr, policy.largest_rate);
  kernels::optim_set_schedule(store.memory(), table_of(notes.lr), store.stream());
  for (const Tensor& p : store.parameters())
    if (const auto& member = autograd::leaf_of(p)->member) members.join(member);
  const std::string text = kind_of_state(store.op());
  std::copy(text.begin(), text.end(), kind_memory.mutable_view().as<std::uint8_t>());
  notes.state_version = version_of_state();
  notes.no_scale_chosen = !step.scaler.defined() &&
                          step.loss_scale.kind() == LossScale::Kind::automatic &&
                          options.loss_scale.kind() == LossScale::Kind::none;
  if (options.exact.quantum > 0) add_exact_mode(*this);
  if (options.keep_accumulator) copy = reserve_copy();
}

Optimizer::Impl::~Impl() {
  try {
    members.tell_waiting(store.step_state().view());
    drop_members();
  } catch (const std::exception&) {  // NOLINT: the device is lost, or there is no memory
  }
}

void Optimizer::Impl::set_ranks(std::unique_ptr<StepExtension> ranks) {
  if (!ranks) ranks = std::make_unique<StepExtension>(*this);
  if (options.exact.quantum > 0)
    extension->extend(std::move(ranks));
  else
    extension = std::move(ranks);
}

// ---- What was written from outside ----

std::uint32_t Optimizer::Impl::version_of_state() const noexcept {
  return store.version_of_state() + progress_memory.storage()->version() +
         kind_memory.storage()->version();
}

std::vector<StateEntry> Optimizer::Impl::state(const autograd::Peers* peers) {
  store.show_training_weights();
  adopt_gradients();
  store.ledger().tell_device(store.memory(), store.stream());
  extension->take_over_weights();
  auto out = store.state(peers, !extension->in_batch().random);
  out.push_back({"cycle", progress_memory});
  out.push_back({"kind", kind_memory});
  extension->extend_state(out);
  return out;
}

void Optimizer::Impl::gather_state() {
  const autograd::Peers* const peers = runtime::dry_run() ? nullptr : extension->copies();
  // What needs no other rank has memory.
  autograd::on_every_rank(store.op().c_str(), peers, [&] { state(nullptr); });
  auto out = state(peers);
  extension->add_cycle_of_all(out);
  state_of_all = std::move(out);
}

std::string Optimizer::Impl::why_not_saved() const {
  if (now.failed() && passes > 0) return "a backward() of its cycle is running";
  if (now.failed()) return "a backward() of its cycle has failed half-way";
  if (now.phase == Phase::publishing)
    return "the ranks' parts of the last step have not all come here";
  if (now.phase == Phase::combined)
    return "a step has failed after the ranks had added up their gradients";
  if (std::string why = extension->why_not_saved(); !why.empty()) return why;
  if (version_of_state() == notes.state_version || hooks.capturing() || runtime::dry_run())
    return {};
  try {
    check_copied(store.host_state());
  } catch (const Error& e) {
    return e.message();
  }
  return {};
}

Schedule Optimizer::Impl::check_copied(const ParamStore::HostState& s) const {
  const auto* kind = kind_memory.view().as<char>();
  return check_state(store.op(), {.kind = std::string(kind, kind_memory.bytes()),
                                  .update_counts = s.update_counts,
                                  .touched = s.touched,
                                  .schedule = s.schedule,
                                  .largest_rate = policy.largest_rate,
                                  .scaler = s.scaler,
                                  .step = s.step,
                                  .progress = at});
}

bool Optimizer::Impl::adopt_state() {
  const std::uint32_t version = version_of_state();
  if (version == notes.state_version || hooks.capturing()) return false;
  const ParamStore::HostState s = store.host_state();
  notes.lr = check_copied(s);
  store.note_seen(s.step.last);
  notes.complained = s.step.last.cycle;  // whoever made the state was told of what it says
  if (!now.failed()) now.phase = Phase::collecting;
  notes.state_version = version;
  return true;
}

void Optimizer::Impl::check_ready() {
  // Nothing can be read in a dry run: what was written from outside is taken over after it.
  if (!runtime::dry_run()) {
    const bool adopted = adopt_state();
    adopt_gradients();
    if (adopted) extension->state_adopted();
  }
  if (now.failed()) require_no_pass();
  FIRN_CHECK(
      !now.failed(), store.op(), "call zero_grad() to begin anew",
      "a backward pass of this cycle, or its exchange with other ranks, has failed half-way");
  FIRN_CHECK(
      now.phase != Phase::publishing, store.op(), "load the last saved run",
      "the ranks' parts of the last step have not all come here, so the weights are those of "
      "no step");
  FIRN_CHECK(!notes.averaged, store.op(), "end the scope of AveragedWeights first",
             "the weights are their moving averages at the moment");
  if (!runtime::dry_run()) members.tell_waiting(store.step_state().view());
  store.check_parameters();
  store.show_training_weights();
  extension->take_over_weights();
  store.adopt_weights();
}

math::SeedSums Optimizer::Impl::seed_sums() const {
  math::SeedSums out;
  copy_bytes(&out, Device::cpu(), store.step_state().impl()->data(), store.device(), sizeof(out));
  return out;
}

void Optimizer::Impl::set_seed_sums(const math::SeedSums& sums) const {
  copy_bytes(store.step_state().impl()->data(), store.device(), &sums, Device::cpu(), sizeof(sums));
}

// ---- What must hold ----

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
  require_own_scale("backward() of each and step_all()");
}

void Optimizer::Impl::require_outside_cycle(const char* name) const {
  FIRN_CHECK(!call.maker, store.op(),
             fmt::format("return from the function, and call it after {}", call.maker),
             "{} inside the function of {}, which makes the backward passes and the step itself",
             name, call.maker);
}

void Optimizer::Impl::fail_of_function() const {
  char text[128];  // the heap may have no memory for it
  const auto end = fmt::format_to_n(text, sizeof text, "the function given to {}", call.maker);
  detail::out_of_memory({text, std::min(end.size, sizeof text)});
}

void Optimizer::Impl::require_own_scale(const char* instead) const {
  FIRN_CHECK(!options.scaler.defined(), store.op(), fmt::format("call {}", instead),
             "its loss scale is shared with other optimizers");
}

void Optimizer::Impl::require_weight(const Loss& loss) const {
  const Tensor& w = loss.weight;
  FIRN_CHECK(w.defined() && w.numel() == 1 && compute_dtype(w.dtype()) == w.dtype() &&
                 is_floating(w.dtype()) && w.device() == store.device(),
             store.op(), "take the loss from a function of losses.h",
             "the loss's weight is {}, not an f32 or f64 scalar on {}",
             w.defined() ? firn::describe(w) : "undefined", store.device());
}

void Optimizer::Impl::require_place(bool as_captured) const {
  FIRN_CHECK(as_captured, store.op(),
             "record one graph for each place in the cycle, and replay them in turn",
             "a graph was replayed at another place of the cycle than it was recorded at ({} "
             "micro-steps so far)",
             at.micro_steps);
}

void Optimizer::Impl::check_skips() {
  if (options.max_skips == 0) return;
  const math::StepOutcome o = store.last_seen();
  if (o.status != math::StepStatus::skipped_non_finite || o.skips_in_row < options.max_skips ||
      o.cycle == notes.complained)
    return;
  notes.complained = o.cycle;
  std::string culprit = "the averaged gradient";
  if (o.culprit >= 0) {
    culprit = fmt::format("the gradient of {},", store.label(static_cast<std::size_t>(o.culprit)));
  }
  if (o.non_finite == math::NonFinite::weight) culprit = "the loss's weight";
  if (o.non_finite == math::NonFinite::loss) culprit = "the loss";
  if (o.non_finite == math::NonFinite::learning_rate) culprit = "the learning rate";
  FIRN_CHECK(
      false, store.op(),
      "this is no matter of the loss scale: look at the data, the learning rate, and the "
      "model's operations (AnomalyMode names the one)",
      "{} steps in a row were skipped, the last one because {} is not finite (loss scale {})",
      o.skips_in_row, culprit, o.loss_scale);
}

void Optimizer::Impl::warn_if_unreached(bool reached) {
  if (!notes.unheld.empty() && !notes.warned_unheld) {
    notes.warned_unheld = notes.warned_unreached = true;
    warn(store.op(),
         fmt::format("nothing but the optimizer holds these parameters, and no gradient reaches "
                     "them: {}",
                     notes.unheld),
         "a module or parameter was assigned to after the optimizer was made, and what replaced it "
         "is not trained: make the optimizer afterwards, or copy_() values into the old parameter");
    return;
  }
  if (reached || notes.warned_unreached) return;
  notes.warned_unreached = true;
  warn(store.op(), fmt::format("no gradient has reached any parameter: {}", store.names()),
       "compute the loss from these parameters: a copied or frozen model, detach() or NoGrad cuts "
       "the way to them");
}

void Optimizer::Impl::warn_if_unscaled() {
  if (!notes.no_scale_chosen || !reads_f16()) return;
  notes.no_scale_chosen = false;
  warn(store.op(),
       "Autocast runs f32 parameters in f16, and no loss scale is set: gradients below 6e-8 become "
       "0 on their way",
       "set StepOptions::loss_scale to LossScale::dynamic(), or to LossScale::none() if that is "
       "meant; bf16 needs none");
}

void Optimizer::Impl::warn_of_empty_step() {
  if (notes.warned_empty) return;
  notes.warned_empty = true;
  warn(store.op(), "step() was called without a backward() since the last one: it does nothing",
       "call opt.backward(loss) first; loss.backward() does not count");
}

// ---- Layers ----

std::int64_t Optimizer::Impl::micro_steps() const noexcept {
  return std::max({at.length, at.micro_steps, call.parts});
}

void Optimizer::Impl::drop_members() {
  // Before its first backward pass a cycle has collected nothing. A captured call may be replayed
  // at any place.
  if (at.micro_steps == 0 && !now.failed() && !hooks.capturing()) return;
  members.drop();
}

}  // namespace firn::optim
