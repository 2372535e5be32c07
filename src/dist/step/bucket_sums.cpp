#include "dist/step/bucket_sums.h"

#include <utility>

#include "dist/step/sharded.h"
#include "kernels/copy.h"
#include "kernels/optim.h"
#include "optim/exact/exact_step.h"
#include "optim/store/flat.h"

namespace firn::optim {
namespace {

/// Parts of a bucket's gradients, and this rank's shard of their sum so far.
struct BucketParts {
  Tensor equal, mine;  ///< equal parts of all ranks, and this rank's one
  Tensor rest;         ///< elements that they leave over
  Tensor sum, kept;    ///< undefined: the shard is empty

  BucketParts() = default;
  BucketParts(const Bucket& b, const Tensor& memory, std::span<const Tensor> shards,
              const autograd::Peers& peers) {
    const std::int64_t part = b.equal_part, whole = part * peers.size(), rank = peers.rank();
    if (whole > 0) {
      equal = part_of(memory, {0, whole});
      mine = part_of(memory, {rank * part, (rank + 1) * part});
    }
    if (whole < b.elements()) rest = part_of(memory, {whole, b.elements()});
    if (b.kept.size() == 0) return;
    const std::int64_t first = b.bounds[static_cast<std::size_t>(rank)];
    sum = part_of(memory, {first, first + b.kept.size()});
    kept = b.kept_in(shards);
  }
};

/// Sums every rank's gradients, and adds this rank's shard of the sum to the kept one.
void add_bucket(const BucketParts& parts, const autograd::Peers& peers, Stream stream) {
  if (parts.equal.defined()) peers.reduce_scatter(parts.equal, parts.mine);
  if (parts.rest.defined()) peers.all_reduce(parts.rest);
  if (parts.kept.defined()) add_gradient(parts.sum, 1, parts.kept, 1, stream);
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
  }
  void prepare(const Bucket& bucket, const Tensor& gradients) override {
    if (gradients.defined()) parts_ = {bucket, gradients, step_.store.gradients(), ranks_.peers()};
  }
  void take(const Bucket&, const Tensor& gradients) override {
    if (!gradients.defined()) return;
    const Stream stream = step_.store.stream();
    if (factor_ != 1) scale_gradient(gradients, factor_, stream);
    add_bucket(std::exchange(parts_, {}), ranks_.peers(), stream);
  }
  void end() override { parts_ = {}; }
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
  BucketParts parts_;  ///< parts of the bucket that is taken next
};

/// Sums in the tree of exact mode. In each micro-step a rank computes one chunk or none.
class SumsInTree final : public BucketSums {
 public:
  SumsInTree(OptimizerImpl& step, ShardedStep& ranks, ExactSums& tree)
      : step_(step), ranks_(ranks), tree_(tree) {}

  void begin(std::span<const CycleSums> reported, double) override {
    tree_.begin_micro_step(step_.store, reported);
  }
  void prepare(const Bucket& bucket, const Tensor& gradients) override {
    next_ = {};
    if (!gradients.defined()) return prepare_zeros(bucket);
    bucket.equal_part > 0 ? prepare_shards(bucket, gradients)
                          : prepare_parameters(bucket, gradients);
  }
  void take(const Bucket&, const Tensor&) override {
    const Exchange e = std::exchange(next_, {});
    for (const Tensor& part : e.zeros) zero_bytes(part.impl()->data(), part.device(), part.bytes());
    for (const auto& [flat, root, kept] : e.parameters) {
      ranks_.peers().broadcast(flat, root);
      keep(kept);
    }
    if (!e.equal.defined()) return;
    ranks_.peers().all_to_all(e.equal, e.parts);
    for (const Kept& kept : e.kept) keep(kept);
    if (!e.rest.defined()) return;
    ranks_.peers().all_gather(e.rest, e.rests);
    for (const Kept& kept : e.kept_of_rest) keep(kept);
  }
  void end() override { tree_.end_micro_step(step_.store); }
  void prepare_summary() override { windows_ = ranks_.layout().prepare_summary(rank()); }
  math::GradientSummary summarize(const Tensor&) override {
    const auto windows = std::exchange(windows_, {});
    return ranks_.layout().summary_in_order(windows, step_.policy, ranks_.peers());
  }

 private:
  /// Received elements, and their place in the shard of a rank's gradient. Undefined: none.
  struct Kept {
    Tensor from, to;
  };
  /// The gradients of one rank, which broadcasts them.
  struct OfRank {
    Tensor flat;
    int root;
    Kept kept;
  };
  /// The exchange of a bucket.
  struct Exchange {
    std::vector<Tensor> zeros;         ///< shards that become zero if no rank has a gradient
    std::vector<OfRank> parameters;    ///< if shards consist of whole parameters
    Tensor equal, parts, rest, rests;  ///< else what is sent and received; undefined: nothing
    std::vector<Kept> kept, kept_of_rest;
  };

  int rank() const noexcept { return ranks_.peers().rank(); }
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(ranks_.peers().size()); }
  void prepare_zeros(const Bucket& bucket) {
    for (std::size_t r = 0; r < ranks(); ++r) {
      const auto place = tree_.shard_of(r);
      if (!place.empty() && bucket.kept.size() > 0) next_.zeros.push_back(bucket.kept_in(place));
    }
  }
  /// Returns `count` elements from `first` on, which go to `at` in the shard of rank r's gradient,
  /// if that rank computes a chunk.
  Kept kept_of(std::size_t r, const Bucket& bucket, const Tensor& from, std::int64_t first,
               std::int64_t at, std::int64_t count) const {
    const auto place = tree_.shard_of(r);
    if (place.empty() || count == 0) return {};
    return {part_of(from, {first, first + count}), part_of(place[bucket.arena], {at, at + count})};
  }
  void keep(const Kept& kept) const {
    if (kept.to.defined())
      kernels::copy(kept.from.view(), kept.to.mutable_view(), step_.store.stream());
  }
  /// Prepares a bucket whose shards consist of whole parameters: one rank's gradients after
  /// another.
  void prepare_parameters(const Bucket& bucket, const Tensor& mine) {
    const std::int64_t first = bucket.bounds[static_cast<std::size_t>(rank())];
    const Tensor other = empty(mine.shape(), mine.dtype(), mine.device());
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (tree_.shard_of(r).empty()) continue;  // no rank has one
      const int root = static_cast<int>(r);
      const Tensor& flat = root == rank() ? mine : other;
      next_.parameters.push_back(
          {flat, root, kept_of(r, bucket, flat, first, bucket.kept.first, bucket.kept.size())});
    }
  }
  /// Prepares a bucket with equal shards, and what is left over for the last rank.
  void prepare_shards(const Bucket& bucket, const Tensor& mine) {
    const OwnerScope owner(Owner::gradients);
    const auto all = static_cast<std::int64_t>(ranks());
    const std::int64_t part = bucket.equal_part, rest = bucket.elements() - all * part;
    next_.parts = empty({all * part}, mine.dtype(), mine.device());
    for (std::size_t r = 0; r < ranks(); ++r)
      next_.kept.push_back(kept_of(r, bucket, next_.parts, static_cast<std::int64_t>(r) * part,
                                   bucket.kept.first, part));
    if (rest > 0) {
      next_.rest = part_of(mine, {all * part, bucket.elements()});
      next_.rests = empty({all * rest}, mine.dtype(), mine.device());
      for (std::size_t r = 0; r < ranks() && rank() + 1 == all; ++r)
        next_.kept_of_rest.push_back(kept_of(r, bucket, next_.rests,
                                             static_cast<std::int64_t>(r) * rest,
                                             bucket.kept.first + part, rest));
    }
    next_.equal = part_of(mine, {0, all * part});
  }

  OptimizerImpl& step_;
  ShardedStep& ranks_;
  ExactSums& tree_;
  Exchange next_;                ///< exchange of the bucket that is taken next
  std::vector<Window> windows_;  ///< for the summary of this cycle
};

}  // namespace

std::unique_ptr<BucketSums> make_bucket_sums(OptimizerImpl& step, ShardedStep& ranks) {
  if (auto* const exact = step.extension->find<ExactStep>())
    return std::make_unique<SumsInTree>(step, ranks, exact->sums());
  return std::make_unique<SumsOfRanks>(step, ranks);
}

}  // namespace firn::optim
