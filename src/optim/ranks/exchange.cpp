// The end of a cycle that several ranks make together.
#include "optim/ranks/exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/elementwise.h"
#include "kernels/optim.h"
#include "optim/impl.h"

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
    case CyclePlace::bucket:
      return "has the gradients of a bucket";
    case CyclePlace::turn_end:
      return "ends a micro-step";
    default:
      return "ends a cycle";
  }
}

/// Throws Error unless rank r is where rank 0 is.
void require_same(const std::string& op, std::size_t r, const RankRecord& one,
                  const RankRecord& zero) {
  constexpr const char* kOrder = "make the same calls in the same order on every rank";
  FIRN_CHECK(one.optimizer == zero.optimizer, op, kOrder,
             "rank {} is at its optimizer number {}, and rank 0 at number {}", r, one.optimizer,
             zero.optimizer);
  constexpr const char* kSameProgram =
      "with divided weights (DistributeOptions::zero 3) all ranks run the same program; where one "
      "has no samples, it runs on others";
  const bool reads_weights = one.place == CyclePlace::weights || zero.place == CyclePlace::weights;
  FIRN_CHECK(one.place == zero.place, op,
             reads_weights
                 ? kSameProgram
                 : "with divided gradients (DistributeOptions::zero) every micro-step is a call of "
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
  FIRN_CHECK(one.dropped == zero.dropped, op,
             "if one rank drops a cycle, all must: what follows are other samples",
             "rank {} has dropped {} cycles since the last step, and rank 0 {}", r, one.dropped,
             zero.dropped);
  FIRN_CHECK(one.batch == zero.batch, op, "give run_batch() the samples of all ranks",
             "rank {} is at a batch of {} samples, and rank 0 at one of {} (0: no run_batch())", r,
             one.batch, zero.batch);
  FIRN_CHECK(one.members == zero.members, op,
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

CycleSums sum_of(std::span<const RankRecord> records) {
  CycleSums all = records.front().sums;
  for (const RankRecord& r : records)
    if (r.sums.weight > 0 && (!(all.weight > 0) || r.sums.unit < all.unit)) all = r.sums;
  all = {.unit = all.unit, .scale = all.scale};
  for (const RankRecord& r : records) all.add(r.sums);
  return all;
}

void add_summary(math::GradientSummary& to, const math::GradientSummary& from) noexcept {
  to.sum_of_squares += from.sum_of_squares;
  to.clipped_squares += from.clipped_squares;
  to.largest = std::max(to.largest, from.largest);
  if (from.culprit >= 0 && (to.culprit < 0 || from.culprit < to.culprit)) to.culprit = from.culprit;
}

void write_bytes(const Tensor& to, const void* from, std::size_t bytes) {
  copy_bytes(to.impl()->data(), to.device(), from, Device::cpu(), bytes);
}

void scale_gradient(const Tensor& y, double factor, Stream stream) {
  kernels::axpby(factor, y.view(), 0, y.mutable_view(), stream);
}

void add_gradient(const Tensor& x, double a, const Tensor& y, double b, Stream stream) {
  kernels::axpby(a, x.view(), b, y.mutable_view(), stream);
}

RankExchange::RankExchange(std::shared_ptr<const autograd::Peers> peers, const ParamStore& store)
    : peers_(std::move(peers)) {
  const OwnerScope owner(Owner::optimizer);
  const auto bytes = static_cast<std::int64_t>(sizeof(RankRecord) + store.ledger().size());
  mine_ = zeros({bytes}, DType::u8, Device::cpu());
  all_ = zeros({peers_->size() * bytes}, DType::u8, Device::cpu());
  records_.resize(static_cast<std::size_t>(peers_->size()));
  if (!store.gradients_divided()) return;
  constexpr auto summary = static_cast<std::int64_t>(sizeof(math::GradientSummary));
  summary_ = zeros({summary}, DType::u8, Device::cpu());
  summaries_ = zeros({peers_->size() * summary}, DType::u8, Device::cpu());
}

math::GradientSummary RankExchange::tell_summary(const math::GradientSummary& mine) const {
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

std::span<const RankRecord> RankExchange::tell(const std::string& op, const RankRecord& record,
                                               std::span<std::uint8_t> received) {
  auto* const mine = mine_.mutable_view().as<std::uint8_t>();
  std::memcpy(mine, &record, sizeof(record));
  std::copy(received.begin(), received.end(), mine + sizeof(record));
  peers_->all_gather(mine_, all_);
  const std::uint8_t* told = all_.view().as<std::uint8_t>();
  for (RankRecord& r : records_) {
    std::memcpy(&r, told, sizeof(r));
    const std::uint8_t* const flags = told + sizeof(r);
    for (std::size_t i = 0; i < received.size(); ++i)
      received[i] = static_cast<std::uint8_t>(received[i] | flags[i]);
    told += mine_.numel();
  }
  const auto failed = [](const RankRecord& r) { return r.outcome != autograd::Outcome::done; };
  if (std::any_of(records_.begin(), records_.end(), failed)) {
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

// ---- Of the optimizer ----

void Optimizer::Impl::take_part(std::shared_ptr<const autograd::Peers> peers, std::int64_t of_all) {
  ranks.emplace(std::move(peers), store);
  now.sums_before = seed_sums();
  overlapped.reset();
  if (ranks->peers().overlaps() && !store.gradients_divided())
    overlapped = std::make_unique<OverlappedSums>(store, ranks->peers());
  number = of_all;
  call.dropped = 0;
}

void Optimizer::Impl::wait_for_exchange() const {
  if (!store.device().is_cpu()) synchronize(store.stream());
}

void Optimizer::Impl::receive_weights() {
  if (lent) {
    lent->drop();  // they are old
    lent->end_step();
  }
  if (!store.divided() || runtime::dry_run() || lent) return;
  if (store.read_state().last.status != math::StepStatus::applied) return;
  const Phase before = std::exchange(now.phase, Phase::publishing);
  store.gather_weights(ranks->peers());
  wait_for_exchange();
  now.phase = before;
}

void Optimizer::Impl::require_uncoupled(bool coupled) const {
  FIRN_CHECK(!coupled || !has_ranks(), store.op(), "compute it on one rank",
             "the loss couples the samples of its batch, and {} ranks have parts of it",
             ranks->peers().size());
}

Share Optimizer::Impl::share_of(std::int64_t n) const noexcept {
  if (!has_ranks()) return {0, n};
  return firn::share_of(n, ranks->peers().rank(), ranks->peers().size());
}

void Optimizer::Impl::no_samples() {
  check_ready();
  const Tensor seed = zeros({}, DType::f32, store.device());
  const Tensor loss = zeros({}, DType::f32, store.device());
  micro_step([&] {
    const double unit = seed_sums().unit;
    kernels::optim_begin(kernels::pending_seed(store.memory(), policy, seed.mutable_view(),
                                               loss.view(), ConstView{}),
                         std::span<const kernels::OptimizerArena>(), store.stream());
    // In exact mode the turns follow.
    if (buckets && options.exact.quantum == 0) take_turn_of_others(unit);
    if (exchanges_beside()) exchange_beside({}, nullptr);
  });
}

void Optimizer::Impl::forget_on_rank() {
  const bool shared = has_ranks() || model || options.exact.quantum > 0;
  if (!shared || runtime::dry_run() || hooks.capturing()) return;
  if (at.micro_steps > 0 || now.failed()) {
    math::SeedSums sums = seed_sums();
    const math::SeedSums before = exact.in_memory() ? exact.before() : now.sums_before;
    sums.weight_total = before.weight_total;
    sums.loss_total = before.loss_total;
    set_seed_sums(sums);
  }
  if (at.length > 0 || now.failed() || call.attempted) ++call.dropped;
  call.attempted = false;
}

math::SeedSums Optimizer::Impl::seed_sums() const {
  math::SeedSums out;
  copy_bytes(&out, Device::cpu(), store.step_state().impl()->data(), store.device(), sizeof(out));
  return out;
}

void Optimizer::Impl::set_seed_sums(const math::SeedSums& sums) const {
  write_bytes(store.step_state(), &sums, sizeof(sums));
}

RankRecord Optimizer::Impl::record_of_cycle() const {
  RankRecord out{.optimizer = number,
                 .cycles = at.cycles,
                 .calls = at.calls,
                 .dropped = call.dropped,
                 .batch = call.batch,
                 .members = static_cast<std::int64_t>(members.count()),
                 .rate = store.read_state().learning_rate,
                 .scale = policy.scale.scaled ? scaler.scale() : 1};
  if (options.exact.quantum > 0) {
    out.seed = exact.random().seed;
    out.offset = exact.random().offset;
  } else if (at.micro_steps > 0) {
    out.sums = CycleSums::of(seed_sums(), now.sums_before);
  }
  return out;
}

void Optimizer::Impl::combine() {
  if (options.exact.quantum > 0)
    combine_quanta();
  else
    combine_ranks();
}

void Optimizer::Impl::add_ranks(std::span<const Tensor> gradients, double unit) const {
  const double factor = unit / seed_sums().unit;
  for (const Tensor& gradient : gradients) {
    if (factor != 1) scale_gradient(gradient, factor, store.stream());
    ranks->peers().all_reduce(gradient);
  }
}

void Optimizer::Impl::combine_ranks() {
  if (!has_ranks() || runtime::dry_run() || now.phase == Phase::combined) return;
  runtime::refuse_capture(store.op().c_str(), store.device(), "ranks exchange their gradients");
  GradientLedger& ledger = store.ledger();
  ledger.note();
  now.phase = Phase::failed;
  if (at.micro_steps == 0) note_sums_before();  // others end a cycle that has none here
  std::vector<std::uint8_t> received = ledger.noted();
  const double unit = seed_sums().unit;
  const CycleSums all = sum_of(tell(record_of_cycle(), received));
  call.failure_told = true;
  if (buckets) {  // they are sums of all already
    express_parts(unit, all.unit);
  } else if (!now.exchanged) {
    store.zero_missing_gradients();
    add_ranks(store.gradients(), all.unit);
  }
  members.combine(ranks->peers());
  now.sums_of_all = all.after(now.sums_before);
  set_seed_sums(now.sums_of_all);
  wait_for_exchange();  // the update must not read gradients of an exchange that fails
  ledger.receive_from_ranks(received);
  now.phase = Phase::combined;
}

// ---- A cycle in a saved run ----

std::string Optimizer::Impl::why_not_saved() const {
  if (now.failed() && passes > 0) return "a backward() of its cycle is running";
  if (now.failed()) return "a backward() of its cycle has failed half-way";
  if (now.phase == Phase::publishing)
    return "the ranks' parts of the last step have not all come here";
  if (now.phase == Phase::combined)
    return "a step has failed after the ranks had added up their gradients";
  if (call.batch > 0 && !call.between_quanta)
    return options.exact.quantum > 0
               ? "a run_batch() is under way; it can be saved in MicroBatch::between"
               : "a run_batch() is under way, which would begin anew";
  if (has_ranks() && at.micro_steps > 0 && members.count() > 0)
    return fmt::format("a cycle is under way, and {} layers have statistics of it on each rank",
                       members.count());
  if (version_of_state() == notes.state_version || hooks.capturing() || runtime::dry_run())
    return {};
  try {
    check_copied(store.host_state());
  } catch (const Error& e) {
    return e.message();
  }
  return {};
}

void Optimizer::Impl::gather_state() {
  const bool others = has_ranks() && !runtime::dry_run();
  const autograd::Peers* const peers = others ? &ranks->peers() : nullptr;
  const auto together = [&](const auto& fn) {
    autograd::on_every_rank(store.op().c_str(), peers, fn);
  };
  std::vector<std::uint8_t> received;
  together([&] {
    state(nullptr);  // what needs no other rank has memory
    received = !in_batch()      ? store.ledger().noted()
               : exact.loaded() ? exact.loaded()->received
                                : exact.received();
  });
  auto out = state(peers);
  if (in_batch()) {
    if (others) ranks->tell(store.op(), record_of_save(), received);
    add_batch_so_far(out, received);
  } else if (others) {
    const CycleSums all = sum_of(ranks->tell(store.op(), record_of_save(), received));
    if (all.micro_steps > 0) add_cycle_so_far(out, received, all);
  }
  state_of_all = std::move(out);
}

void Optimizer::Impl::add_cycle_so_far(std::vector<StateEntry>& state,
                                       const std::vector<std::uint8_t>& received,
                                       const CycleSums& all) {
  std::vector<Tensor> gradients;  // divided ones are those of all ranks
  Tensor touched, step_state, progress;
  autograd::on_every_rank(store.op().c_str(), &ranks->peers(), [&] {
    if (!buckets) {
      const OwnerScope owner(Owner::gradients);
      for (const Tensor& g : store.gradients()) gradients.push_back(g.clone());
    }
    touched = store.ledger().flags().clone();
    step_state = store.step_state().clone();
    progress = progress_memory.clone();
  });
  if (!buckets) add_ranks(gradients, all.unit);
  write_bytes(touched, received.data(), received.size());
  const math::SeedSums sums = all.after(at.micro_steps > 0 ? now.sums_before : seed_sums());
  write_bytes(step_state, &sums, sizeof(sums));
  auto& place = *reinterpret_cast<Progress*>(progress.mutable_view().as<std::int64_t>());
  place.counted += all.micro_steps - place.micro_steps;
  place.micro_steps = all.micro_steps;
  std::size_t parameter = 0;
  for (StateEntry& e : state) {
    if (e.name == "touched") e.tensor = touched;
    if (e.name == "step_state") e.tensor = step_state;
    if (e.name == "cycle") e.tensor = progress;
    if (!buckets && e.name.ends_with(".gradient"))
      e.tensor = store.gradient_in(gradients, parameter++);
  }
}

void Optimizer::Impl::leave_to_first_rank() {
  if (ranks->peers().rank() == 0) return;
  // Parts of divided gradients stay. If rank 0 has a micro-step that step() has not counted, this
  // rank has one of weight 0.
  const std::int64_t uncounted = at.has_new_micro_step() ? 1 : 0;
  store.ledger().begin_cycle();
  math::SeedSums sums = seed_sums();
  sums.micro_steps = uncounted;
  sums.weight_sum = sums.loss_sum = 0;
  set_seed_sums(sums);
  now.sums_before = sums;
  at.micro_steps = uncounted;
  at.counted = 0;
}

}  // namespace firn::optim
