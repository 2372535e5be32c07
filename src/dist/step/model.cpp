// The decision of a step by the ranks of one model.
#include "dist/step/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/optim.h"
#include "optim/impl.h"

namespace firn::optim {
namespace {

bool same_bits(double a, double b) noexcept {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// Throws Error unless rank r is at the same point as rank 0.
void require_same(const std::string& op, std::size_t r, const ModelRecord& one,
                  const ModelRecord& zero) {
  constexpr const char* kOrder = "make the same calls in the same order on every rank";
  FIRN_CHECK(one.optimizer == zero.optimizer, op, kOrder,
             "rank {} of a model ends a cycle of its optimizer number {}, and rank 0 one of number "
             "{}",
             r, one.optimizer, zero.optimizer);
  FIRN_CHECK(one.cycles == zero.cycles, op, "make the same steps on every rank",
             "rank {} of a model ends its cycle number {}, and rank 0 its number {}", r,
             one.cycles + 1, zero.cycles + 1);
  FIRN_CHECK(one.dropped == zero.dropped, op,
             "if one rank drops a cycle, all must: what follows are other samples",
             "rank {} of a model has dropped {} cycles since the last step, and rank 0 {}", r,
             one.dropped, zero.dropped);
  FIRN_CHECK(one.rate == zero.rate && one.scale == zero.scale, op,
             "call set_lr() and set_loss_scale() on every rank",
             "rank {} of a model has learning rate {} and loss scale {}, and rank 0 {} and {}", r,
             one.rate, one.scale, zero.rate, zero.scale);
  FIRN_CHECK(
      one.micro_steps == zero.micro_steps && same_bits(one.weight, zero.weight) &&
          same_bits(one.loss, zero.loss) && one.unit == zero.unit,
      op, "the ranks that have parts of one model compute the losses of the same samples",
      "rank {} of a model has {} micro-steps, a weight of {} and losses of {}, and rank 0 {}, "
      "{} and {}",
      r, one.micro_steps, one.weight, one.loss, zero.micro_steps, zero.weight, zero.loss);
}

}  // namespace

ModelRanks::ModelRanks(std::shared_ptr<const autograd::Peers> peers, int parts,
                       std::vector<std::uint8_t> sharded, Device device)
    : peers_(std::move(peers)), parts_(parts) {
  const OwnerScope owner(Owner::optimizer);
  const auto n = static_cast<std::int64_t>(sharded.size());
  sharded_ = empty({n}, DType::u8, device);
  whole_ = empty({n}, DType::u8, device);
  write_bytes(sharded_, sharded.data(), sharded.size());
  for (std::uint8_t& d : sharded) d = !d;
  write_bytes(whole_, sharded.data(), sharded.size());
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(ModelRecord));
  mine_ = zeros({bytes}, DType::u8, Device::cpu());
  all_ = zeros({peers_->size() * bytes}, DType::u8, Device::cpu());
  records_.resize(static_cast<std::size_t>(peers_->size()));
}

std::string ModelRanks::place() const {
  return fmt::format("part {} of {} of stage {} of {}", peers_->rank() % parts_, parts_,
                     peers_->rank() / parts_, peers_->size() / parts_);
}

math::GradientSummary ModelRanks::exchange_records(const std::string& op,
                                                   const ModelRecord& record) {
  std::memcpy(mine_.mutable_view().as<std::uint8_t>(), &record, sizeof(record));
  peers_->all_gather(mine_, all_);
  std::memcpy(records_.data(), all_.view().as<std::uint8_t>(), all_.bytes());
  for (std::size_t r = 1; r < records_.size(); ++r) require_same(op, r, records_[r], records_[0]);

  math::GradientSummary out;
  out.any = false;
  const auto parts = static_cast<std::size_t>(parts_);
  const std::size_t stage = static_cast<std::size_t>(peers_->rank()) / parts;
  for (std::size_t r = 0; r < records_.size(); ++r) {
    const ModelRecord& record_of_r = records_[r];
    const auto add = [&out](const math::GradientSummary& s) {
      out.sum_of_squares += s.sum_of_squares;
      out.clipped_squares += s.clipped_squares;
    };
    if (r % parts == 0) add(record_of_r.whole);
    add(record_of_r.sharded);
    for (const math::GradientSummary* s : {&record_of_r.whole, &record_of_r.sharded}) {
      out.any = out.any || s->any;
      out.largest = std::max(out.largest, s->largest);
      if (s->culprit < 0) continue;
      out.elsewhere = true;
      if (r / parts == stage && (out.culprit < 0 || s->culprit < out.culprit))
        out.culprit = s->culprit;
    }
  }
  return out;
}

autograd::StepRanks ModelStep::ranks() const noexcept { return {next().copies(), &model_.peers()}; }

void ModelStep::decide() {
  if (runtime::dry_run()) return;
  const ParamStore& store = step.store;
  runtime::refuse_capture(store.op().c_str(), store.device(), "ranks exchange what they decide by");
  auto& copies = static_cast<ReplicatedStep&>(next());
  const Phase before = std::exchange(step.now.phase, Phase::failed);
  const math::LossSums sums = step.loss_sums();
  ModelRecord mine{.optimizer = copies.number(),
                   .cycles = step.at.cycles,
                   .dropped = copies.dropped(),
                   .micro_steps = sums.micro_steps,
                   .rate = store.read_state().learning_rate,
                   .scale = step.policy.scale.scaled ? step.scaler.scale() : 1,
                   .unit = sums.unit,
                   .weight = sums.weight_sum,
                   .loss = sums.loss_sum};
  mine.sharded = summarize(model_.sharded());
  mine.whole = summarize(model_.whole());
  const math::GradientSummary all = model_.exchange_records(store.op(), mine);
  copies.clear_dropped();
  kernels::optim_decide(store.memory(), step.policy, all, store.stream());
  step.now.phase = before;
}

}  // namespace firn::optim
