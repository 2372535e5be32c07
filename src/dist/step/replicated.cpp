#include "dist/step/replicated.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "dist/step/shards.h"
#include "kernels/copy.h"

namespace firn::optim {

ReplicatedStep::ReplicatedStep(OptimizerImpl& of, std::shared_ptr<const autograd::Peers> peers,
                               std::int64_t number)
    : StepExtension(of, std::make_unique<StepExtension>(of)),
      exchange_(std::move(peers), of.store),
      number_(number),
      received_(of.store.ledger().size()),
      micro_steps_(zeros({1}, DType::i64, Device::cpu())),
      weights_(gather_weights(of.store, exchange_.peers().rank())) {}

autograd::StepRanks ReplicatedStep::ranks() const noexcept {
  return {alone() ? nullptr : &peers(), nullptr};
}

void ReplicatedStep::check_coupled(bool coupled) const {
  FIRN_CHECK(!coupled || alone(), step.store.op(), "compute it on one rank",
             "the loss couples the samples of its batch, and {} ranks have parts of it",
             peers().size());
}

void ReplicatedStep::begin_micro_step() {
  FIRN_CHECK(step.now.phase != Phase::combined, step.store.op(),
             "call step() again, or zero_grad()",
             "the last step has failed after the ranks had added up their gradients");
  if (step.at.micro_steps == 0 && !runtime::dry_run()) call_.drop_known = false;
  // On a device the host already knows the sums, and need not wait for them.
  if (step.at.micro_steps == 0 && !runtime::dry_run() && step.store.device().is_cpu())
    step.now.sums_before = step.loss_sums();
}

void ReplicatedStep::run_micro_steps(std::int64_t count, const MicroSteps& micro_step) {
  call_.planned = count;
  call_.most = 0;
  for (std::int64_t i = 0; i < std::max(count, call_.most); ++i)
    i < count ? micro_step(i) : idle_micro_step();
  call_.planned = 0;
}

// ---- Records ----

RankRecord ReplicatedStep::record_of_cycle() const {
  RankRecord out{.optimizer = number_,
                 .cycles = step.at.cycles,
                 .calls = step.at.calls,
                 .dropped = call_.dropped,
                 .batch = step.call.batch,
                 .members = static_cast<std::int64_t>(step.members.count()),
                 .rate = step.store.read_state().learning_rate,
                 .scale = step.policy.scale.scaled ? step.scaler.scale() : 1};
  if (const auto random = step.extension->random_of_cycle()) {
    out.seed = random->seed;
    out.offset = random->offset;
  } else if (step.at.micro_steps > 0) {
    out.sums = CycleSums::of(step.loss_sums(), step.now.sums_before);
  }
  return out;
}

RankRecord ReplicatedStep::record_of_pass(autograd::Outcome outcome) const {
  RankRecord out = record_of_cycle();
  out.place = CyclePlace::micro_step;
  out.planned = call_.planned;
  out.outcome = outcome;
  out.sums = CycleSums::of(step.loss_sums(), step.now.sums_before);
  return out;
}

std::span<const RankRecord> ReplicatedStep::exchange_records(const RankRecord& record,
                                                             std::span<std::uint8_t> flags) {
  call_.dropped = 0;
  try {
    return exchange_.exchange_records(step.store.op(), record, flags);
  } catch (...) {
    call_.failure_reported = true;
    call_.drop_known = !exchange_.any_failed();
    stopped();
    throw;
  }
}

// ---- Failures ----

void ReplicatedStep::await_failure() noexcept {
  if (!runtime::dry_run()) call_.failure_reported = call_.ended_by_others = false;
}

bool ReplicatedStep::report_failure(const std::exception_ptr& failure, bool last) noexcept {
  if (alone() || runtime::dry_run() || call_.failure_reported) return false;
  autograd::Outcome outcome = autograd::outcome_of(failure);
  const bool meets = exchanges_in_micro_steps();
  if (!meets && outcome == autograd::Outcome::out_of_memory && !last) return false;
  if (!meets || last) outcome = autograd::Outcome::failed;  // the other ranks do not try again
  call_.failure_reported = true;
  stopped();
  try {
    RankRecord record = record_of_pass(outcome);
    record.what = call_.begun ? 1 : 0;
    exchange_records(record);
  } catch (...) {  // this rank's own failure says more
    call_.ended_by_others = true;
  }
  return true;
}

void ReplicatedStep::end_for_others(const std::exception_ptr& failure, bool last) noexcept {
  if (!report_failure(failure, last)) return;
  if (!has_cycle()) call_.dropped = 1;
  if (!call_.begun && exchange_.any_begun()) step.extension->draw_for_cycle();
}

StepReport ReplicatedStep::whole_call(const std::function<StepReport()>& call) {
  await_failure();
  call_.begun = false;
  call_.dropped_before = call_.dropped;
  try {
    const StepReport report = call();
    if (!runtime::dry_run()) call_.failure_reported = true;
    return report;
  } catch (...) {
    end_for_others(std::current_exception(), true);
    throw;
  }
}

void ReplicatedStep::attempt(const std::function<void()>& micro_steps) {
  call_.attempted = !runtime::dry_run();
  await_failure();
  try {
    micro_steps();
  } catch (...) {
    end_for_others(std::current_exception(), false);
    throw;
  }
}

void ReplicatedStep::part_of_cycle(const std::function<void()>& part) {
  if (alone()) return part();
  await_failure();
  try {
    part();
    if (!runtime::dry_run()) call_.failure_reported = true;
  } catch (...) {
    end_for_others(std::current_exception(), true);
    step.zero_grad();
    throw;
  }
}

void ReplicatedStep::agree_to_retry(bool again) {
  if (!alone() && call_.failure_reported)
    peers().agree(step.store.op().c_str(),
                  again ? autograd::Outcome::done : autograd::Outcome::failed);
  call_.dropped = call_.dropped_before;  // the next try uses the same samples
}

// ---- The end of a cycle ----

bool ReplicatedStep::nothing_to_flush() {
  if (alone() || runtime::dry_run()) return StepExtension::nothing_to_flush();
  auto* const sum = micro_steps_.mutable_view().as<std::int64_t>();
  *sum = step.at.micro_steps;
  peers().all_reduce(micro_steps_);
  return *sum == 0;
}

void ReplicatedStep::add_gradients(double, double of_all) {
  step.store.zero_missing_gradients();
  add_copies(step.store.gradients(), of_all);
}

void ReplicatedStep::add_copies(std::span<const Tensor> gradients, double of_all) const {
  const double factor = of_all / step.loss_sums().unit;
  for (const Tensor& gradient : gradients) {
    if (factor != 1) scale_gradient(gradient, factor, step.store.stream());
    peers().all_reduce(gradient);
  }
}

void ReplicatedStep::combine() {
  if (alone() || runtime::dry_run() || step.now.phase == Phase::combined) return;
  runtime::refuse_capture(step.store.op().c_str(), step.store.device(),
                          "ranks exchange their gradients");
  step.members.prepare_to_combine(peers());
  GradientLedger& ledger = step.store.ledger();
  ledger.note();
  step.now.phase = Phase::failed;
  if (step.at.micro_steps == 0) begin_micro_step();  // only other ranks have begun the cycle
  for (std::size_t i = 0; i < received_.size(); ++i) received_[i] = ledger.noted(i);
  const double unit = step.loss_sums().unit;
  const CycleSums all = sum_of(exchange_records(record_of_cycle(), received_));
  call_.failure_reported = true;
  add_gradients(unit, all.unit);
  step.members.combine(peers());
  step.now.sums_of_all = all.after(step.now.sums_before);
  step.set_loss_sums(step.now.sums_of_all);
  wait_for_exchange();  // the update must not read gradients of an exchange that fails
  ledger.receive_from_ranks(received_);
  step.now.phase = Phase::combined;
}

void ReplicatedStep::wait_for_exchange() const {
  if (!step.store.device().is_cpu()) synchronize(step.store.stream());
}

void ReplicatedStep::publish_weights() {
  ParamStore& store = step.store;
  if (!store.sharded() || runtime::dry_run()) return;
  if (store.read_state().last.status != math::StepStatus::applied) return;
  const Phase before = std::exchange(step.now.phase, Phase::publishing);
  for (const Gathering& weights : weights_) weights.run(peers());
  wait_for_exchange();
  step.now.phase = before;
}

void ReplicatedStep::cycle_ended() {
  if (step.now.phase == Phase::combined) step.now.sums_before = step.now.sums_of_all;
  if (runtime::dry_run()) return;
  call_.attempted = call_.exchanged = false;
  call_.failure_reported = true;
}

void ReplicatedStep::drop_cycle() {
  StepExtension::drop_cycle();
  if (runtime::dry_run() || step.hooks.capturing()) return;
  restore_totals([this] { return step.now.sums_before; });
  if (has_cycle() && !call_.drop_known) ++call_.dropped;
  call_.attempted = call_.exchanged = call_.drop_known = false;
}

void ReplicatedStep::announce(Event event, std::vector<std::uint8_t>& received) {
  if (alone()) return;
  RankRecord record = record_of_cycle();
  if (event == Event::save) {
    record.place = CyclePlace::save;
    exchange_.exchange_records(step.store.op(), record, received);
    return;
  }
  step.members.prepare_to_combine(peers());
  exchange_records(record, received);
  call_.failure_reported = true;
}

void ReplicatedStep::end_exchange() {
  if (alone()) return;
  step.members.combine(peers());
  wait_for_exchange();
}

// ---- Kept state ----

std::function<void()> ReplicatedStep::keep() {
  return [this, call = call_] { call_ = call; };
}

void ReplicatedStep::state_adopted() {
  step.now.sums_before = step.loss_sums();
  call_.exchanged = false;
  if (!alone() && step.at.micro_steps > 0) leave_to_first_rank();
}

void ReplicatedStep::leave_to_first_rank() {
  if (peers().rank() == 0) return;
  // Shards of gradients stay. If rank 0 has a micro-step that step() has not counted, this rank
  // gets one of weight 0.
  const std::int64_t uncounted = step.at.has_new_micro_step() ? 1 : 0;
  step.store.ledger().begin_cycle();
  math::LossSums sums = step.loss_sums();
  sums.micro_steps = uncounted;
  sums.weight_sum = sums.loss_sum = 0;
  step.set_loss_sums(sums);
  step.now.sums_before = sums;
  step.at.micro_steps = uncounted;
  step.at.counted = 0;
}

std::string ReplicatedStep::why_not_saved() const {
  if (!alone() && step.at.micro_steps > 0 && step.members.count() > 0)
    return fmt::format("a cycle is under way, and {} layers have statistics of it on each rank",
                       step.members.count());
  return StepExtension::why_not_saved();
}

void ReplicatedStep::gather_entries(std::vector<StateEntry>& state) {
  const ParamStore& store = step.store;
  for (StateEntry& e : state) {
    const TensorParts mine = std::exchange(e.parts_in_memory, {});
    if (!mine.any()) continue;
    Tensor flat;
    autograd::on_every_rank(store.op().c_str(), &peers(), [&] {
      flat = empty({mine.bounds.back()}, mine.part.dtype(), store.device());
    });
    const auto rank = static_cast<std::size_t>(peers().rank());
    if (mine.part.numel() > 0)
      kernels::copy(mine.part.view(),
                    part_of(flat, {mine.bounds[rank], mine.bounds[rank + 1]}).mutable_view(),
                    store.stream());
    Gathering(flat, mine.bounds, peers().rank()).run(peers());
    if (rank == 0) e.tensor = flat.as_strided(e.tensor.shape(), e.strides);
  }
}

std::vector<Tensor> ReplicatedStep::gather_arenas(std::vector<Tensor> parts, bool to_all) {
  if (!step.store.sharded()) return parts;
  for (std::size_t a = 0; a < parts.size(); ++a) {
    if (parts[a].defined()) parts[a] = gather_arena(step.store, a, parts[a], peers());
    if (!to_all && peers().rank() != 0) parts[a] = Tensor();
  }
  if (!to_all && peers().rank() != 0) parts.clear();
  return parts;
}

void ReplicatedStep::add_cycle_of_all(std::vector<StateEntry>& state) {
  if (alone() || runtime::dry_run()) return;
  std::vector<std::uint8_t> received;
  autograd::on_every_rank(step.store.op().c_str(), &peers(),
                          [&] { received = step.store.ledger().noted(); });
  RankRecord record = record_of_cycle();
  record.place = CyclePlace::save;
  const CycleSums all = sum_of(exchange_.exchange_records(step.store.op(), record, received));
  if (all.micro_steps > 0) add_cycle_so_far(state, received, all);
}

void ReplicatedStep::add_cycle_so_far(std::vector<StateEntry>& state,
                                      const std::vector<std::uint8_t>& received,
                                      const CycleSums& all) {
  ParamStore& store = step.store;
  const bool sharded = store.gradients_sharded();  // they are already sums of all ranks
  std::vector<Tensor> gradients;
  Tensor touched, step_state, progress;
  autograd::on_every_rank(store.op().c_str(), &peers(), [&] {
    if (!sharded) {
      const OwnerScope owner(Owner::gradients);
      for (const Tensor& g : store.gradients()) gradients.push_back(g.clone());
    }
    touched = store.ledger().flags().clone();
    step_state = store.step_state().clone();
    progress = step.progress_memory.clone();
  });
  if (!sharded) add_copies(gradients, all.unit);
  write_bytes(touched, received.data(), received.size());
  const math::LossSums sums =
      all.after(step.at.micro_steps > 0 ? step.now.sums_before : step.loss_sums());
  write_bytes(step_state, &sums, sizeof(sums));
  auto& place = *reinterpret_cast<Progress*>(progress.mutable_view().as<std::int64_t>());
  place.counted += all.micro_steps - place.micro_steps;
  place.micro_steps = all.micro_steps;
  std::size_t parameter = 0;
  for (StateEntry& e : state) {
    if (e.name == "touched") e.tensor = touched;
    if (e.name == "step_state") e.tensor = step_state;
    if (e.name == "cycle") e.tensor = progress;
    if (!sharded && e.name.ends_with(".gradient")) e.tensor = store.part_in(gradients, parameter++);
  }
}

}  // namespace firn::optim
