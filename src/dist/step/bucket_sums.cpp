#include "dist/step/bucket_sums.h"

#include "dist/step/sharded.h"
#include "kernels/copy.h"
#include "kernels/optim.h"
#include "optim/exact/exact_step.h"
#include "optim/store/flat.h"

namespace firn::optim {
namespace {

/// Sums every rank's `memory`, and adds this rank's shard of the sum to `kept`.
void add_bucket(const Bucket& b, const Tensor& memory, const Tensor& kept,
                const autograd::Peers& peers, Stream stream) {
  const std::int64_t whole = b.equal_part * peers.size();
  if (whole > 0) peers.reduce_scatter(part_of(memory, {0, whole}));
  if (whole < b.elements()) peers.all_reduce(part_of(memory, {whole, b.elements()}));
  if (kept.numel() == 0) return;
  const std::int64_t first = b.bounds[static_cast<std::size_t>(peers.rank())];
  add_gradient(part_of(memory, {first, first + kept.numel()}), 1, kept, 1, stream);
}

/// Sums in the order of the ranks, added to the kept shards.
class SumsOfRanks final : public BucketSums {
 public:
  SumsOfRanks(OptimizerImpl& step, ShardedStep& ranks) : step_(step), ranks_(ranks) {}

  void begin(std::span<const CycleSums> reported, double unit) override {
    factor_ = 1;
    if (!reported.empty()) {  // use one unit for all ranks from now on
      math::LossSums own = step_.loss_sums();
      const double of_all = sum_of(reported).unit;
      ranks_.express_shards(unit, of_all);
      factor_ = of_all / own.unit;
      own.unit = of_all;
      step_.set_loss_sums(own);
    }
    kept_ = step_.store.gradients();
  }
  void take(const Bucket& bucket, const Tensor& gradients) override {
    if (!gradients.defined()) return;
    const Stream stream = step_.store.stream();
    if (factor_ != 1) scale_gradient(gradients, factor_, stream);
    add_bucket(bucket, gradients, bucket.kept_in(kept_), ranks_.peers(), stream);
  }
  void end() override { kept_.clear(); }
  math::GradientSummary summarize(const Tensor& of) override {
    const ParamStore& store = step_.store;
    math::GradientSummary mine;
    kernels::optim_summarize(store.memory(), store.update_arenas(), step_.policy, of.view(), mine,
                             store.stream());
    return ranks_.exchange().exchange_summary(mine);
  }

 private:
  OptimizerImpl& step_;
  ShardedStep& ranks_;
  double factor_ = 1;
  std::vector<Tensor> kept_;
};

/// Sums in the tree of exact mode. In each micro-step a rank computes one chunk or none.
class SumsInTree final : public BucketSums {
 public:
  SumsInTree(OptimizerImpl& step, ShardedStep& ranks, ExactSums& tree)
      : step_(step), ranks_(ranks), tree_(tree) {}

  void begin(std::span<const CycleSums> reported, double) override {
    const std::vector<CycleSums> none(static_cast<std::size_t>(ranks_.peers().size()));
    tree_.begin_micro_step(step_.store, reported.empty() ? none : reported);
  }
  void take(const Bucket& bucket, const Tensor& gradients) override {
    if (!gradients.defined()) return zero(bucket);
    bucket.equal_part > 0 ? take_shards(bucket, gradients) : take_parameters(bucket, gradients);
  }
  void end() override { tree_.end_turn(step_.store); }
  math::GradientSummary summarize(const Tensor&) override {
    return ranks_.layout().summary_in_order(step_.policy, ranks_.peers());
  }

 private:
  std::size_t rank() const noexcept { return static_cast<std::size_t>(ranks_.peers().rank()); }
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(ranks_.peers().size()); }
  void zero(const Bucket& bucket) const {
    for (std::size_t r = 0; r < ranks(); ++r) {
      const auto place = tree_.shard_of(r);
      if (place.empty() || bucket.kept.size() == 0) continue;
      const Tensor part = bucket.kept_in(place);
      zero_bytes(part.impl()->data(), part.device(), part.bytes());
    }
  }
  /// Copies `count` elements from `first` on to `at` in the shard of rank r's gradient, if that
  /// rank computes a chunk.
  void keep(std::size_t r, const Bucket& bucket, const Tensor& from, std::int64_t first,
            std::int64_t at, std::int64_t count) const {
    const auto place = tree_.shard_of(r);
    if (place.empty() || count == 0) return;
    kernels::copy(part_of(from, {first, first + count}).view(),
                  part_of(place[bucket.arena], {at, at + count}).mutable_view(),
                  step_.store.stream());
  }
  /// Takes a bucket whose shards consist of whole parameters: one rank's gradients after another.
  void take_parameters(const Bucket& bucket, const Tensor& mine) const {
    const std::int64_t first = bucket.bounds[rank()];
    const Tensor other = empty(mine.shape(), mine.dtype(), mine.device());
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (tree_.shard_of(r).empty()) continue;  // no rank has one
      const Tensor& flat = r == rank() ? mine : other;
      ranks_.peers().broadcast(flat, static_cast<int>(r));
      keep(r, bucket, flat, first, bucket.kept.first, bucket.kept.size());
    }
  }
  /// Takes a bucket with equal shards, and what is left over for the last rank.
  void take_shards(const Bucket& bucket, const Tensor& mine) const {
    const OwnerScope owner(Owner::gradients);
    const auto all = static_cast<std::int64_t>(ranks());
    const std::int64_t part = bucket.equal_part, rest = bucket.elements() - all * part;
    const Tensor parts = empty({all * part}, mine.dtype(), mine.device());
    ranks_.peers().all_to_all(part_of(mine, {0, all * part}), parts);
    for (std::size_t r = 0; r < ranks(); ++r)
      keep(r, bucket, parts, static_cast<std::int64_t>(r) * part, bucket.kept.first, part);
    if (rest == 0) return;
    const Tensor rests = empty({all * rest}, mine.dtype(), mine.device());
    ranks_.peers().all_gather(part_of(mine, {all * part, bucket.elements()}), rests);
    if (rank() + 1 != ranks()) return;
    for (std::size_t r = 0; r < ranks(); ++r)
      keep(r, bucket, rests, static_cast<std::int64_t>(r) * rest, bucket.kept.first + part, rest);
  }

  OptimizerImpl& step_;
  ShardedStep& ranks_;
  ExactSums& tree_;
};

}  // namespace

std::unique_ptr<BucketSums> make_bucket_sums(OptimizerImpl& step, ShardedStep& ranks) {
  if (auto* const exact = step.extension->find<ExactStep>())
    return std::make_unique<SumsInTree>(step, ranks, exact->sums());
  return std::make_unique<SumsOfRanks>(step, ranks);
}

}  // namespace firn::optim
