#include "dist/step/sharded.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "autograd/cycle.h"
#include "autograd/node.h"
#include "base/check.h"
#include "firn/ops/losses.h"
#include "firn/runtime/rollback.h"
#include "kernels/copy.h"
#include "kernels/optim.h"

namespace firn::optim {

ShardedStep::ShardedStep(OptimizerImpl& of, std::shared_ptr<const autograd::Peers> peers,
                         std::int64_t number)
    : ReplicatedStep(of, peers, number),
      layout_(of.store, this->peers().rank()),
      buckets_(layout_),
      sums_(make_bucket_sums(of, *this)) {
  const std::vector<std::uint8_t> all(step.store.ledger().size(), 1);
  reported_.resize(static_cast<std::size_t>(this->peers().size()));
  counted_ = empty({static_cast<std::int64_t>(all.size())}, DType::u8, step.store.device());
  write_bytes(counted_, all.data(), all.size());
  if (!step.store.weights_sharded()) return;
  weights_ = std::make_unique<WeightGatherer>(
      layout_, std::move(peers),
      [this](std::size_t bucket, bool ahead) {
        agree(ahead ? CyclePlace::weights_ahead : CyclePlace::weights, bucket);
      },
      [this](const std::exception_ptr& failure) {
        await_failure();  // outside of a cycle too
        report_failure(failure);
      });
}

void ShardedStep::begin() {
  ReplicatedStep::begin();
  step.now.parts_held = false;
  if (weights_) weights_->provide();
}

void ShardedStep::express_shards(double from, double to) {
  for (const Tensor& kept : step.store.gradients()) {
    if (!step.now.parts_held)
      zero_bytes(kept.impl()->data(), kept.device(), kept.bytes());
    else if (from != to)
      scale_gradient(kept, to / from, step.store.stream());
  }
  step.now.parts_held = true;
}

// ---- Micro-steps ----

void ShardedStep::agree(CyclePlace place, std::size_t what) {
  if (runtime::dry_run()) return;
  // The record leaves out values that only the device knows.
  const RankRecord record{.place = place,
                          .optimizer = number(),
                          .cycles = step.at.cycles,
                          .calls = step.at.calls,
                          .dropped = call_.dropped,
                          .batch = step.call.batch,
                          .members = static_cast<std::int64_t>(step.members.count()),
                          .what = static_cast<std::int64_t>(what)};
  exchange_records(record);
}

void ShardedStep::before_pass(const std::function<void()>& fn) {
  await_failure();
  try {
    fn();
  } catch (...) {
    report_failure(std::current_exception());
    throw;
  }
}

void ShardedStep::run_pass(const Pass& pass) {
  const double unit = step.loss_sums().unit;
  pass.begin({});
  if (pass.has_samples())
    run_with_others(pass.output(), unit, [&] { pass.run(true); });
  else
    run_for_others(unit);
}

std::span<const CycleSums> ShardedStep::exchange_of_pass(std::vector<std::uint8_t>& expected) {
  if (runtime::dry_run()) return {};
  auto sums = reported_.begin();
  for (const RankRecord& reported :
       exchange_records(record_of_pass(autograd::Outcome::done), expected)) {
    *sums++ = reported.sums;
    call_.most = std::max(call_.most, reported.planned);
  }
  return reported_;
}

void ShardedStep::exchange_bucket(const Bucket& bucket, const Tensor& memory, bool of_others) {
  if (weights_)
    agree(CyclePlace::bucket, static_cast<std::size_t>(&bucket - layout_.buckets().data()));
  if (of_others && memory.defined())
    zero_bytes(memory.impl()->data(), memory.device(), memory.bytes());
  sums_->take(bucket, memory);
}

void ShardedStep::run_with_others(const Tensor& output, double unit,
                                  const std::function<void()>& pass, bool of_others) {
  std::vector<std::uint8_t> expected;
  const auto expect = [&] {
    const autograd::CycleScope cycle(step);
    expected = buckets_.expect(output);
  };
  before_pass(std::ref(expect));
  // From here on ranks agree on failures after the pass. With sharded weights see end_exchanges().
  if (!weights_ && !runtime::dry_run()) call_.failure_reported = true;
  sums_->begin(exchange_of_pass(expected), unit);
  std::exception_ptr failure;
  try {
    buckets_.begin_pass(
        expected, [&](const Bucket& b, const Tensor& memory) { sums_->prepare(b, memory); },
        [&](const Bucket& b, const Tensor& memory) { exchange_bucket(b, memory, of_others); });
    if (pass) pass();
  } catch (...) {
    failure = std::current_exception();
  }
  end_exchanges(failure);
  sums_->end();
  if (!runtime::dry_run()) call_.failure_reported = false;
}

void ShardedStep::end_exchanges(std::exception_ptr failure) {
  // With sharded weights a rank that has failed does not know what the others exchange next. They
  // learn of the failure at their next exchange of records.
  if (weights_ && failure) {
    report_failure(failure);
    buckets_.abandon();
  }
  try {
    try {
      buckets_.end_pass(failure != nullptr);
    } catch (...) {
      if (weights_ || buckets_.lost()) throw;
      failure = std::current_exception();  // all buckets were exchanged
    }
    if (weights_ && !failure) agree(CyclePlace::micro_step_end);
    if (!weights_ && !runtime::dry_run() && !buckets_.lost())
      peers().agree(step.store.op().c_str(), autograd::outcome_of(failure));
  } catch (...) {
    if (weights_)
      report_failure(std::current_exception());
    else if (buckets_.lost())  // the others wait for a bucket
      peers().give_up("it has no memory to exchange gradients");
    // Report this rank's own failure, unless another rank has ended the cycle for all.
    if (!failure || autograd::outcome_of(failure) == autograd::Outcome::out_of_memory) throw;
  }
  if (failure) std::rethrow_exception(failure);
}

void ShardedStep::run_for_others(double unit) {
  if (!weights_) return run_with_others({}, unit, nullptr);
  RollbackPoint before({Rollback::random, Rollback::statistics, Rollback::data});
  const GradientLedger::Counts contributions = step.store.ledger().contributions();
  {
    const Loss loss = loss_of_others_();
    const Tensor zero = empty(loss.sum.shape(), loss.sum.dtype(), loss.sum.device());
    zero_bytes(zero.impl()->data(), zero.device(), zero.bytes());
    run_with_others(
        loss.sum, unit,
        [&] {
          const autograd::CycleScope cycle(step);
          autograd::backward_from(loss.sum, zero, nullptr, false, true);
        },
        true);
  }
  step.store.ledger().put_back(contributions);
  before.roll_back();
}

void ShardedStep::idle_micro_step() {
  step.run_guarded([this] { run_for_others(step.loss_sums().unit); }, nullptr);
}

void ShardedStep::set_loss_of_others(std::function<Loss()> loss) {
  if (weights_) loss_of_others_ = std::move(loss);
}

// ---- The end of a cycle ----

void ShardedStep::announce(Event event, std::vector<std::uint8_t>& received) {
  if (event == Event::end) sums_->prepare_summary();
  ReplicatedStep::announce(event, received);
}

void ShardedStep::decide() {
  if (runtime::dry_run()) return;
  const Phase before = std::exchange(step.now.phase, Phase::failed);
  const ParamStore& store = step.store;
  kernels::optim_decide(
      store.memory(), step.policy,
      math::has_gradient(store.read_state()) ? summarize(counted_) : math::GradientSummary(),
      store.stream());
  step.now.phase = before;
}

void ShardedStep::publish_weights() {
  if (!weights_) return ReplicatedStep::publish_weights();
  weights_->drop();  // they are outdated
  weights_->end_step();
}

void ShardedStep::drop_cycle() {
  if (weights_) weights_->release();
  ReplicatedStep::drop_cycle();
}

// ---- Weights ----

void ShardedStep::take_over_weights() {
  if (weights_) weights_->keep_writes();
}

std::shared_ptr<void> ShardedStep::hold_weights() { return weights_ ? weights_->hold() : nullptr; }

void ShardedStep::extend_state(std::vector<StateEntry>& state) {
  if (!step.now.parts_held && !runtime::dry_run()) express_shards(1, 1);
  for (StateEntry& e : state)
    if (weights_ && e.name.ends_with(".weight"))
      e.prepare = [this, weight = e.tensor,
                   prepare = std::move(e.prepare)](const Tensor& read) -> std::function<void()> {
        // Under hold() the whole weight is here too. Parts of the state may begin with the shard.
        return [this, weight, write = prepare(read),
                whole = weights_->held() ? read.to(weight.device()) : Tensor()] {
          write();
          if (!whole.defined()) return weights_->drop();  // gathered values are outdated
          kernels::copy(whole.view(), weight.mutable_view(), step.store.stream());
          weight.storage()->bump_version(step.store.op().c_str());
        };
      };
}

}  // namespace firn::optim
