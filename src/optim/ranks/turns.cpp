// Micro-steps whose gradients the ranks divide (ZeRO stage 2): each is a turn of all ranks. They
// tell each other where they are, run their passes, exchange buckets, and agree on how that went.
#include <algorithm>
#include <exception>
#include <utility>

#include "autograd/cycle.h"
#include "autograd/node.h"
#include "base/check.h"
#include "firn/ops/losses.h"
#include "firn/runtime/rollback.h"
#include "kernels/optim.h"
#include "optim/impl.h"
#include "optim/store/division.h"

namespace firn::optim {
namespace {

/// Every rank's `memory` is added up, and this rank's part of the sum to `kept`.
void add_bucket(const ParamStore::Bucket& b, const Tensor& memory, const Tensor& kept,
                const autograd::Peers& peers, Stream stream) {
  const std::int64_t whole = b.equal_part * peers.size();
  if (whole > 0) peers.reduce_scatter(part_of(memory, {0, whole}));
  if (whole < b.elements()) peers.all_reduce(part_of(memory, {whole, b.elements()}));
  if (kept.numel() == 0) return;
  const std::int64_t first = b.bounds[static_cast<std::size_t>(peers.rank())];
  add_gradient(part_of(memory, {first, first + kept.numel()}), 1, kept, 1, stream);
}

}  // namespace

void Optimizer::Impl::divide_gradients() {
  buckets = std::make_unique<GradientBuckets>(store);
  const std::vector<std::uint8_t> all(store.ledger().size(), 1);
  counted = empty({static_cast<std::int64_t>(all.size())}, DType::u8, store.device());
  write_bytes(counted, all.data(), all.size());
  now.parts_held = false;
  if (!store.weights_divided()) return;
  lent = std::make_unique<LentWeights>(
      store, ranks->share_peers(),
      [this](std::size_t bucket) { meet(CyclePlace::weights, bucket); },
      [this](const std::exception_ptr& failure) {
        await_failure();  // outside of a cycle, too
        tell_failure(failure);
      });
}

RankRecord Optimizer::Impl::record_of_turn(autograd::Outcome outcome) const {
  RankRecord out = record_of_cycle();
  out.place = CyclePlace::micro_step;
  out.turns = call.planned_turns;
  out.outcome = outcome;
  out.sums = CycleSums::of(seed_sums(), now.sums_before);
  return out;
}

void Optimizer::Impl::express_parts(double from, double to) {
  for (const Tensor& kept : store.gradients()) {
    if (!now.parts_held)
      zero_bytes(kept.impl()->data(), kept.device(), kept.bytes());
    else if (from != to)
      scale_gradient(kept, to / from, store.stream());
  }
  now.parts_held = true;
}

std::span<const RankRecord> Optimizer::Impl::tell(const RankRecord& record,
                                                  std::span<std::uint8_t> flags) {
  call.dropped = 0;
  try {
    return ranks->tell(store.op(), record, flags);
  } catch (...) {
    call.failure_told = true;
    throw;
  }
}

void Optimizer::Impl::meet(CyclePlace place, std::size_t what) {
  if (runtime::dry_run()) return;
  // Without what a device would have to be asked for.
  const RankRecord record{.place = place,
                          .optimizer = number,
                          .cycles = at.cycles,
                          .calls = at.calls,
                          .dropped = call.dropped,
                          .batch = call.batch,
                          .members = static_cast<std::int64_t>(members.count()),
                          .what = static_cast<std::int64_t>(what)};
  std::vector<std::uint8_t> nothing(store.ledger().size());
  tell(record, nothing);
}

void Optimizer::Impl::take_turn(const Tensor& sum, double unit, const std::function<void()>& pass,
                                bool of_others) {
  const bool exact_mode = options.exact.quantum > 0, dry = runtime::dry_run();
  const autograd::Peers& peers = ranks->peers();
  if (!dry) call.failure_told = !lent;  // if one is, below
  std::vector<std::uint8_t> expected;
  {
    const autograd::CycleScope cycle(*this);
    expected = buckets->expect(sum);
  }
  std::vector<CycleSums> sums(static_cast<std::size_t>(peers.size()));
  double factor = 1;
  if (!dry) {
    const auto told = tell(record_of_turn(autograd::Outcome::done), expected);
    for (std::size_t r = 0; r < sums.size(); ++r) {
      sums[r] = told[r].sums;
      call.turns_of_all = std::max(call.turns_of_all, told[r].turns);
    }
    if (!exact_mode) {  // the unit of all, from now on
      math::SeedSums own = seed_sums();
      const double of_all = sum_of(told).unit;
      express_parts(unit, of_all);
      factor = of_all / own.unit;
      own.unit = of_all;
      set_seed_sums(own);
    }
  }
  const std::vector<Tensor> kept = store.gradients();
  if (exact_mode) exact.begin_turn(store, sums);
  std::exception_ptr failure;
  try {
    buckets->begin_pass(expected, [&](const ParamStore::Bucket& b, const Tensor& memory) {
      if (lent) meet(CyclePlace::bucket, static_cast<std::size_t>(&b - store.buckets().data()));
      if (of_others && memory.defined())
        zero_bytes(memory.impl()->data(), memory.device(), memory.bytes());
      if (exact_mode) return exact.take_bucket(store, b, memory, peers);
      if (!memory.defined()) return;
      if (factor != 1) scale_gradient(memory, factor, store.stream());
      add_bucket(b, memory, ParamStore::kept_in(b, kept), peers, store.stream());
    });
    if (pass) pass();
  } catch (...) {
    failure = std::current_exception();
  }
  // With divided weights nobody who has failed knows what the others exchange next: they learn of
  // it where they meet.
  if (lent && failure) {
    tell_failure(failure);
    buckets->abandon();
  }
  try {
    buckets->end_pass(failure != nullptr);
    if (lent && !failure) meet(CyclePlace::turn_end);
    if (!lent && !dry && !buckets->lost())
      peers.agree(store.op().c_str(), autograd::outcome_of(failure));
  } catch (...) {
    if (lent) tell_failure(std::current_exception());
    // What this rank has met says more, unless another rank has ended the cycle for all.
    if (!failure || autograd::outcome_of(failure) == autograd::Outcome::out_of_memory) throw;
  }
  if (failure) std::rethrow_exception(failure);
  if (exact_mode) exact.end_turn(store);
  if (!dry) call.failure_told = false;
}

void Optimizer::Impl::take_turn_of_others(double unit) {
  if (!lent) return take_turn({}, unit, nullptr);
  RollbackPoint before({Rollback::random, Rollback::statistics, Rollback::data});
  const GradientLedger::Counts contributions = store.ledger().contributions();
  {
    const Loss loss = loss_of_others();
    const Tensor seed = empty(loss.sum.shape(), loss.sum.dtype(), loss.sum.device());
    zero_bytes(seed.impl()->data(), seed.device(), seed.bytes());
    take_turn(
        loss.sum, unit,
        [&] {
          const autograd::CycleScope cycle(*this);
          autograd::backward_from(loss.sum, seed, nullptr, false, true);
        },
        true);
  }
  store.ledger().put_back(contributions);
  before.roll_back();
}

void Optimizer::Impl::run_turns(std::int64_t micro_steps,
                                const std::function<void(std::int64_t i)>& micro_step) {
  // In exact mode the turns are within the one micro-step.
  call.planned_turns = options.exact.quantum > 0 ? 0 : micro_steps;
  call.turns_of_all = 0;
  for (std::int64_t i = 0; i < std::max(micro_steps, call.turns_of_all); ++i)
    if (i < micro_steps)
      micro_step(i);
    else
      idle_turn();
  call.planned_turns = 0;
}

void Optimizer::Impl::idle_turn() {
  if (!buckets) return;
  run_guarded([this] { take_turn_of_others(seed_sums().unit); }, nullptr);
}

bool Optimizer::Impl::tell_failure(const std::exception_ptr& failure, bool last) noexcept {
  if (!has_ranks() || runtime::dry_run() || call.failure_told) return false;
  autograd::Outcome outcome = autograd::outcome_of(failure);
  if (!buckets && outcome == autograd::Outcome::out_of_memory && !last) return false;
  if (!buckets || last) outcome = autograd::Outcome::failed;  // the others do not try again
  call.failure_told = true;
  try {
    std::vector<std::uint8_t> nothing(store.ledger().size());
    RankRecord record = record_of_turn(outcome);
    record.what = call.begun ? 1 : 0;
    tell(record, nothing);
  } catch (...) {  // what has failed here says more
    call.ended_by_others = true;
  }
  return true;
}

void Optimizer::Impl::agree_to_retry(bool again) const {
  if (!has_ranks() || !call.failure_told) return;
  ranks->peers().agree(store.op().c_str(),
                       again ? autograd::Outcome::done : autograd::Outcome::failed);
}

math::GradientSummary Optimizer::Impl::summary_of_parts(const Tensor& of) const {
  if (options.exact.quantum > 0) return store.summary_in_order(policy, ranks->peers());
  math::GradientSummary mine;
  kernels::optim_summarize(store.memory(), store.update_arenas(), policy, of.view(), mine,
                           store.stream());
  return ranks->tell_summary(mine);
}

void Optimizer::Impl::decide_with_parts() {
  if (runtime::dry_run()) return;
  const Phase before = std::exchange(now.phase, Phase::failed);
  kernels::optim_decide(
      store.memory(), policy,
      math::has_gradient(store.read_state()) ? summary_of_parts(counted) : math::GradientSummary(),
      store.stream());
  now.phase = before;
}

}  // namespace firn::optim
