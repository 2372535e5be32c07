#include "dist/step/exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace firn::optim {

namespace {

const char* words_of(CyclePlace place) noexcept {
  switch (place) {
    case CyclePlace::micro_step:
      return "makes a micro-step";
    case CyclePlace::save:
      return "saves a run";
    case CyclePlace::weights:
      return "needs weights";
    case CyclePlace::weights_ahead:
      return "gathers weights ahead";
    case CyclePlace::bucket:
      return "has the gradients of a bucket";
    case CyclePlace::micro_step_end:
      return "ends a micro-step";
    default:
      return "ends a cycle";
  }
}

/// Throws Error unless rank r is at the same point as rank 0.
void require_same(const std::string& op, std::size_t r, const RankRecord& one,
                  const RankRecord& zero) {
  constexpr const char* kOrder = "make the same calls in the same order on every rank";
  FIRN_CHECK(one.optimizer == zero.optimizer, op, kOrder,
             "rank {} is at its optimizer number {}, and rank 0 at number {}", r, one.optimizer,
             zero.optimizer);
  FIRN_CHECK(one.dropped == zero.dropped, op,
             "if one rank drops a cycle, all must: what follows are other samples",
             "rank {} has dropped {} cycles since the last step, and rank 0 {}", r, one.dropped,
             zero.dropped);
  constexpr const char* kSameProgram =
      "with sharded weights (DistributeOptions::zero 3) all ranks run the same program; where one "
      "has no samples, it runs on others";
  const auto reads = [](CyclePlace place) {
    return place == CyclePlace::weights || place == CyclePlace::weights_ahead;
  };
  const bool reads_weights = reads(one.place) || reads(zero.place);
  FIRN_CHECK(one.place == zero.place, op,
             reads_weights
                 ? kSameProgram
                 : "with sharded gradients (DistributeOptions::zero) every micro-step is a call of "
                   "all ranks: one without samples calls no_samples()",
             "rank {} {}, and rank 0 {}", r, words_of(one.place), words_of(zero.place));
  FIRN_CHECK(
      one.what == zero.what, op, kSameProgram,
      "rank {} {} with number {}, and rank 0 with number {} of its buckets (the last parameters "
      "are in number 0)",
      r, words_of(one.place), one.what, zero.what);
  FIRN_CHECK(one.cycles == zero.cycles, op,
             "make the same steps on every rank; a rank without samples calls no_samples()",
             "rank {} ends its cycle number {}, and rank 0 its number {}", r, one.cycles + 1,
             zero.cycles + 1);
  FIRN_CHECK(
      one.calls == zero.calls, op,
      "call step() alike on every rank; one without samples calls no_samples() before, and a "
      "run saved in mid-cycle is loaded on all",
      "step() was called {} times in this cycle on rank {}, and {} times on rank 0", one.calls, r,
      zero.calls);
  FIRN_CHECK(one.batch == zero.batch, op, "give run_batch() the samples of all ranks",
             "rank {} is at a batch of {} samples, and rank 0 at one of {} (0: no run_batch())", r,
             one.batch, zero.batch);
  // During a cycle a layer may not have joined it yet on some ranks.
  const bool over = one.place == CyclePlace::end || one.place == CyclePlace::save;
  FIRN_CHECK(!over || one.members == zero.members, op,
             "make the same model on every rank, and its optimizer after it",
             "{} layers take part in the cycle of rank {}, and {} in that of rank 0", one.members,
             r, zero.members);
  FIRN_CHECK(one.rate == zero.rate, op, "call set_lr() on every rank",
             "the learning rate of rank {} is {}, and that of rank 0 {}", r, one.rate, zero.rate);
  FIRN_CHECK(one.scale == zero.scale, op, "call set_loss_scale() on every rank",
             "the loss scale of rank {} is {}, and that of rank 0 {}", r, one.scale, zero.scale);
  FIRN_CHECK(
      one.seed == zero.seed && one.offset == zero.offset, op,
      "call manual_seed() with the same seed on every rank, and draw alike between steps",
      "the random stream of rank {} is at ({}, {}) and that of rank 0 at ({}, {}), and exact "
      "mode takes the same numbers for a sample on every rank",
      r, one.seed, one.offset, zero.seed, zero.offset);
}

}  // namespace

namespace {

/// Returns the sums of all elements of a list, whose sums are of(element).
template <class List, class Of>
CycleSums sum_of(const List& list, const Of& of) {
  CycleSums all = of(list.front());
  for (const auto& element : list) {
    const CycleSums& s = of(element);
    if (s.weight > 0 && (!(all.weight > 0) || s.unit < all.unit)) all = s;
  }
  all = {.unit = all.unit, .scale = all.scale};
  for (const auto& element : list) all.add(of(element));
  return all;
}

}  // namespace

CycleSums sum_of(std::span<const CycleSums> sums) {
  return sum_of(sums, [](const CycleSums& s) -> const CycleSums& { return s; });
}

CycleSums sum_of(std::span<const RankRecord> records) {
  return sum_of(records, [](const RankRecord& r) -> const CycleSums& { return r.sums; });
}

void add_summary(math::GradientSummary& to, const math::GradientSummary& from) noexcept {
  to.sum_of_squares += from.sum_of_squares;
  to.clipped_squares += from.clipped_squares;
  to.largest = std::max(to.largest, from.largest);
  if (from.culprit >= 0 && (to.culprit < 0 || from.culprit < to.culprit)) to.culprit = from.culprit;
}

RankExchange::RankExchange(std::shared_ptr<const autograd::Peers> peers, const ParamStore& store)
    : peers_(std::move(peers)) {
  const OwnerScope owner(Owner::optimizer);
  const auto bytes = static_cast<std::int64_t>(sizeof(RankRecord) + store.ledger().size());
  mine_ = zeros({bytes}, DType::u8, Device::cpu());
  all_ = zeros({peers_->size() * bytes}, DType::u8, Device::cpu());
  records_.resize(static_cast<std::size_t>(peers_->size()));
  if (!store.gradients_sharded()) return;
  constexpr auto summary = static_cast<std::int64_t>(sizeof(math::GradientSummary));
  summary_ = zeros({summary}, DType::u8, Device::cpu());
  summaries_ = zeros({peers_->size() * summary}, DType::u8, Device::cpu());
}

math::GradientSummary RankExchange::exchange_summary(const math::GradientSummary& mine) const {
  std::memcpy(summary_.mutable_view().as<std::uint8_t>(), &mine, sizeof(mine));
  peers_->all_gather(summary_, summaries_);
  math::GradientSummary out = mine;
  for (std::size_t r = 0; r < records_.size(); ++r) {
    math::GradientSummary of_rank;
    std::memcpy(&of_rank, summaries_.view().as<std::uint8_t>() + r * sizeof(of_rank),
                sizeof(of_rank));
    if (r == 0)
      out = of_rank;
    else
      add_summary(out, of_rank);
  }
  return out;
}

std::span<const RankRecord> RankExchange::exchange_records(const std::string& op,
                                                           const RankRecord& record,
                                                           std::span<std::uint8_t> received) {
  auto* const mine = mine_.mutable_view().as<std::uint8_t>();
  std::memcpy(mine, &record, sizeof(record));
  if (received.empty()) std::fill(mine + sizeof(record), mine + mine_.numel(), std::uint8_t{0});
  std::copy(received.begin(), received.end(), mine + sizeof(record));
  peers_->all_gather(mine_, all_);
  const std::uint8_t* reported = all_.view().as<std::uint8_t>();
  for (RankRecord& r : records_) {
    std::memcpy(&r, reported, sizeof(r));
    const std::uint8_t* const flags = reported + sizeof(r);
    for (std::size_t i = 0; i < received.size(); ++i)
      received[i] = static_cast<std::uint8_t>(received[i] | flags[i]);
    reported += mine_.numel();
  }
  if (any_failed()) {
    peers_->agree(op.c_str(), record.outcome);
    return records_;
  }
  const RankRecord& zero = records_.front();
  for (std::size_t r = 1; r < records_.size(); ++r) require_same(op, r, records_[r], zero);
  return records_;
}

bool RankExchange::any_begun() const noexcept {
  return std::any_of(records_.begin(), records_.end(), [](const RankRecord& r) {
    return r.outcome == autograd::Outcome::done || r.what != 0;
  });
}

bool RankExchange::any_failed() const noexcept {
  return std::any_of(records_.begin(), records_.end(),
                     [](const RankRecord& r) { return r.outcome != autograd::Outcome::done; });
}

}  // namespace firn::optim
