// The step of one process, which is the end of the list of extensions.
#include "optim/step_extension.h"

#include <algorithm>

#include "autograd/node.h"
#include "firn/ops/losses.h"
#include "optim/calls/scopes.h"
#include "optim/impl.h"

namespace firn::optim {

// ---- A pass ----

void Pass::begin(std::span<const kernels::OptimizerArena> arenas) const {
  kernels::optim_begin(pending_, arenas, step_.store.stream());
}

void Pass::begin() const {
  begin(first_ ? std::span<const kernels::OptimizerArena>() : step_.store.arenas());
}

void Pass::run(bool awaited) const {
  const autograd::CycleScope cycle(step_);
  autograd::backward_from(output_, gradient_, nullptr, retain_graph_, awaited);
}

void Pass::run_at_once() const {
  // In a cycle's first pass no arena holds a gradient, so the loss may compute the initial
  // gradient.
  const bool in_pass = first_ && autograd::takes_pending_gradient(output_);
  if (!in_pass) begin();
  const autograd::CycleScope cycle(step_);
  autograd::backward_from(output_, gradient_, in_pass ? &pending_ : nullptr, retain_graph_);
}

// ---- The list ----

StepExtension::StepExtension(OptimizerImpl& of, std::unique_ptr<StepExtension> next)
    : step(of), next_(std::move(next)) {}
StepExtension::~StepExtension() = default;

autograd::StepRanks StepExtension::ranks() const noexcept {
  return next_ ? next_->ranks() : autograd::StepRanks();
}

std::string StepExtension::place() const { return next_ ? next_->place() : std::string(); }

void StepExtension::together(const std::function<void()>& fn) const {
  autograd::on_every_rank(step.store.op().c_str(), ranks(), fn);
}

Share StepExtension::share_of(std::int64_t n) const noexcept {
  const autograd::Peers* const peers = copies();
  return peers ? firn::share_of(n, peers->rank(), peers->size()) : Share{0, n};
}

void StepExtension::restore_totals(const std::function<math::LossSums()>& before) const {
  if (runtime::dry_run() || step.hooks.capturing()) return;
  if (step.at.micro_steps == 0 && !step.now.failed()) return;
  math::LossSums sums = step.loss_sums();
  const math::LossSums earlier = before();
  sums.weight_total = earlier.weight_total;
  sums.loss_total = earlier.loss_total;
  step.set_loss_sums(sums);
}

// ---- Micro-steps ----

void StepExtension::check_call(Call call) const {
  if (next_) next_->check_call(call);
}
void StepExtension::check_coupled(bool coupled) const {
  if (next_) next_->check_coupled(coupled);
}
void StepExtension::begin_micro_step() {
  if (next_) next_->begin_micro_step();
}
void StepExtension::idle_micro_step() {
  if (next_) next_->idle_micro_step();
}

void StepExtension::before_pass(const std::function<void()>& fn) {
  next_ ? next_->before_pass(fn) : fn();
}

void StepExtension::run_pass(const Pass& pass) {
  if (next_) return next_->run_pass(pass);
  pass.has_samples() ? pass.run_at_once() : pass.begin({});
}

// ---- Calls that make a whole cycle ----

void StepExtension::run_micro_steps(std::int64_t count, const MicroSteps& micro_step) {
  if (next_) return next_->run_micro_steps(count, micro_step);
  for (std::int64_t i = 0; i < count; ++i) micro_step(i);
}

StepReport StepExtension::run_batch(std::int64_t samples, std::int64_t size, const LossOf& loss,
                                    const MicroSteps& between) {
  if (next_) return next_->run_batch(samples, size, loss, between);
  const Share share = step.extension->share_of(samples);
  const OthersScope others(step, [&] {
    const std::int64_t first = share.size() > 0 ? share.first : 0;
    return loss(first, std::min(first + size, share.size() > 0 ? share.last : samples));
  });
  if (share.size() == 0) return step.run_cycle(1, [&](std::int64_t) { step.no_samples(); });
  return step.run_cycle(1 + (share.size() - 1) / size, [&](std::int64_t i) {
    const std::int64_t first = share.first + i * size;
    step.add_loss(loss(first, first + std::min(size, share.last - first)));
  });
}

void StepExtension::set_loss_of_others(std::function<Loss()> loss) {
  if (next_) next_->set_loss_of_others(std::move(loss));
}
StepReport StepExtension::whole_call(const std::function<StepReport()>& call) {
  return next_ ? next_->whole_call(call) : call();
}
void StepExtension::attempt(const std::function<void()>& micro_steps) {
  next_ ? next_->attempt(micro_steps) : micro_steps();
}
void StepExtension::part_of_cycle(const std::function<void()>& part) {
  next_ ? next_->part_of_cycle(part) : part();
}
void StepExtension::cycle_drawn() noexcept {
  if (next_) next_->cycle_drawn();
}
void StepExtension::draw_for_cycle() noexcept {
  if (next_) next_->draw_for_cycle();
}
bool StepExtension::may_try_again() const noexcept { return !next_ || next_->may_try_again(); }
void StepExtension::agree_to_retry(bool again) {
  if (next_) next_->agree_to_retry(again);
}

// ---- The end of a cycle ----

bool StepExtension::nothing_to_flush() {
  return next_ ? next_->nothing_to_flush() : step.at.micro_steps == 0;
}
void StepExtension::combine() {
  if (next_) next_->combine();
}
void StepExtension::decide() {
  if (next_) return next_->decide();
  kernels::optim_norm(step.store.memory(), step.store.arenas(), step.policy, step.store.stream());
}
math::GradientSummary StepExtension::summarize(const Tensor& of) {
  if (next_) return next_->summarize(of);
  math::GradientSummary out;
  kernels::optim_summarize(step.store.memory(), step.store.arenas(), step.policy, of.view(), out,
                           step.store.stream());
  return out;
}
void StepExtension::publish_weights() {
  if (next_) next_->publish_weights();
}
void StepExtension::cycle_ended() {
  if (next_) next_->cycle_ended();
}
void StepExtension::drop_cycle() {
  if (next_) return next_->drop_cycle();
  kernels::optim_reset(step.store.memory(), step.store.stream());
}
void StepExtension::announce(Event event, std::vector<std::uint8_t>& received) {
  if (next_) next_->announce(event, received);
}
void StepExtension::end_exchange() {
  if (next_) next_->end_exchange();
}

// ---- Kept state ----

void StepExtension::state_adopted() {
  if (next_) next_->state_adopted();
}
void StepExtension::take_over_weights() {
  if (next_) next_->take_over_weights();
}
void StepExtension::extend_state(std::vector<StateEntry>& state) {
  if (next_) next_->extend_state(state);
}
std::vector<StateEntry> StepExtension::entries_in_file() {
  return next_ ? next_->entries_in_file() : std::vector<StateEntry>();
}
void StepExtension::gather_entries(std::vector<StateEntry>& state) {
  if (next_) next_->gather_entries(state);
}
std::vector<Tensor> StepExtension::gather_arenas(std::vector<Tensor> parts, bool to_all) {
  return next_ ? next_->gather_arenas(std::move(parts), to_all) : parts;
}
void StepExtension::add_cycle_of_all(std::vector<StateEntry>& state) {
  if (next_) next_->add_cycle_of_all(state);
}
std::string StepExtension::why_not_saved() const {
  if (next_) return next_->why_not_saved();
  const bool begins_anew = step.call.batch > 0 && !step.extension->in_batch().random;
  return begins_anew ? "a run_batch() is under way, which would begin anew" : "";
}
StepExtension::InBatch StepExtension::in_batch() const noexcept {
  return next_ ? next_->in_batch() : InBatch();
}
std::optional<RandomKey> StepExtension::random_of_cycle() const noexcept {
  return next_ ? next_->random_of_cycle() : std::nullopt;
}
std::shared_ptr<void> StepExtension::hold_weights() {
  return next_ ? next_->hold_weights() : nullptr;
}
std::function<void()> StepExtension::keep() { return next_ ? next_->keep() : nullptr; }

}  // namespace firn::optim
