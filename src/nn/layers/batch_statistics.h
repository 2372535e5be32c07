// The running statistics of BatchNorm, and how they join an optimizer's cycle (autograd/cycle.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/cycle.h"
#include "autograd/node.h"
#include "autograd/peers.h"
#include "base/check.h"
#include "firn/nn/layers/batch_norm.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/rollback.h"
#include "firn/thread_context.h"
#include "firn/warning.h"
#include "nn/tree.h"
#include "ops/image/moments.h"

namespace firn::nn::detail {

/// The kernels' momentum for a mean of all batches.
inline constexpr double kCumulative = -1;

/// The running statistics of a layer and its copies: holds the buffers' handles and updates the
/// buffers. The pool belongs to one cycle at a time, its owner. The host knows the owner, so its
/// decisions in a captured pass must hold at each replay.
class BatchStatistics final : public autograd::CycleMember,
                              public std::enable_shared_from_this<BatchStatistics> {
 public:
  /// A forward pass in per_step mode, as its backward passes see it.
  struct Batch {
    std::shared_ptr<BatchStatistics> statistics;
    Ref<autograd::Leaf> weight, bias;  ///< null if the layer has none, or trains none
    std::uint64_t pooled_in = 0;       ///< the last period whose pool got these samples

    /// The cycle of the optimizer that trains the layer, or null.
    const autograd::Cycle* trainer() const noexcept {
      if (weight && weight->cycle) return weight->cycle;
      return bias ? bias->cycle : nullptr;
    }
  };

  BatchStatistics(const BatchNorm& layer, double momentum)
      : mean_(layer.running_mean),
        var_(layer.running_var),
        batches_(layer.num_batches_tracked),
        pooled_(layer.pooled),
        pooled_count_(layer.pooled_count),
        momentum_(momentum),
        of_all_ranks_(layer.accumulation() == BatchNormMode::whole_batch) {}

  /// True if the layer still has these buffers; the user may have replaced them.
  bool are_of(const BatchNorm& layer) const noexcept {
    return layer.running_mean.impl() == mean_.impl() && layer.running_var.impl() == var_.impl() &&
           layer.num_batches_tracked.impl() == batches_.impl() &&
           layer.pooled.impl() == pooled_.impl() &&
           layer.pooled_count.impl() == pooled_count_.impl();
  }

  /// Updates the running statistics with the moments of one batch.
  void update(const Moments& moments, double count) {
    autograd::about_to_change({&mean_, &var_, &batches_});
    ops::update_moments(moments, count, momentum_, mean_, var_, batches_);
  }
  /// Notes that the batch has new samples, in each replay too.
  static void begin(const std::shared_ptr<Batch>& b) {
    BatchStatistics& s = *b->statistics;
    if (!s.capturing()) [[likely]]
      return;
    s.remember(b);
    s.at_replay([b] { b->pooled_in = 0; });
  }
  /// Called when a backward pass reaches the output of a batch: pools its moments if they are the
  /// current cycle's. Without a cycle, updates the running statistics at once.
  static void pool(const std::shared_ptr<Batch>& b, const Moments& moments, double count) {
    BatchStatistics& s = *b->statistics;
    autograd::Cycle* const cycle = thread_context.cycle;
    if (!cycle) return s.update(moments, count);
    const Use use = s.use_of(*b, *cycle);
    if (use != Use::none) s.about_to_change_pool(b);
    if (s.capturing()) [[unlikely]] {
      s.remember(b);
      s.at_replay([b, cycle, use] {
        b->statistics->require(b->statistics->use_of(*b, *cycle) == use);
        b->statistics->note(use, *b, *cycle);
      });
    }
    if (use == Use::none) return;
    cycle->join(b->statistics);
    if (use == Use::replace) s.empty_pool();
    s.note(use, *b, *cycle);
    ops::pool_moments(moments, count, s.pooled_, s.pooled_count_);
  }

  void prepare_to_combine(const autograd::Cycle& cycle, const autograd::Peers& peers) override {
    exchange_ = {};
    if (!pooled_.defined()) return;
    const NoGrad guard;
    const bool mine = !owner_ || owner_ == &cycle;
    const std::int64_t c = pooled_.shape()[1];
    Exchange e;
    e.here = cat({pooled_.reshape({2 * c}), pooled_count_}, 0);
    if (!mine) zero_(e.here);
    e.all = zeros({peers.size(), 2 * c + 1}, DType::f64, e.here.device());
    for (std::int64_t r = 0; mine && r < peers.size(); ++r) {
      const Tensor rank = e.all.select(0, r);
      e.ranks.push_back({{rank.slice(0, 0, c), rank.slice(0, c, 2 * c)}, rank.select(0, 2 * c)});
    }
    if (mine) about_to_change_pool(nullptr);
    exchange_ = std::move(e);
  }
  void combine(const autograd::Cycle&, const autograd::Peers& peers) override {
    Exchange e = std::exchange(exchange_, {});
    if (!e.all.defined()) return;
    const NoGrad guard;
    peers.all_gather(e.here, e.all);
    if (!e.ranks.empty()) empty_pool();
    for (auto& [moments, values] : e.ranks) {
      const double count = values.item();
      if (!(count > 0)) continue;
      div_(moments.var, count);  // it is the sum of squared deviations
      ops::pool_moments(moments, count, pooled_, pooled_count_);
      if (of_all_ranks_) return;
    }
  }
  void end_cycle(const autograd::Cycle& cycle, const ConstView& step_state) override {
    keep_if_dry();
    if (!concerned_by(cycle, true)) return;
    ops::commit_moments(pooled_, pooled_count_, momentum_, step_state, mean_, var_, batches_);
    release();
    ++ended_;
  }
  void drop_cycle(const autograd::Cycle& cycle) override {
    if (!concerned_by(cycle, false)) return;
    empty_pool();
    release();
  }
  /// Drops the cycle, whichever it is.
  void clear() {
    if (!pooled_.defined()) return;
    about_to_change_pool(nullptr);
    empty_pool();
    release();
  }

  // The warning that running statistics change once per micro-step is given once.
  bool to_warn() const noexcept { return !warned_; }
  void learn_name(Module& layer) {
    if (kind_.empty()) kind_ = layer.type_name();
    if (named_ || !called_root()) return;
    named_ = true;
    if (const std::string path = path_in_call(layer); !path.empty()) name_ = path + ": ";
  }
  void warn_in_long_cycle() {
    if (runtime::dry_run()) return;  // the step that is planned warns
    if (warned_ || !thread_context.cycle || thread_context.cycle->micro_steps() < 2) return;
    warned_ = true;
    warn(kind_,
         fmt::format("{}the running statistics move in each of the cycle's {} micro-steps, by the "
                     "mean and variance of a micro-batch, instead of once per step by those of the "
                     "whole batch",
                     name_, thread_context.cycle->micro_steps()),
         "nn::convert_batch_norm(net, nn::BatchNormMode::per_step) pools them over the cycle; "
         "nn::convert_to_group_norm(net, groups) does without");
  }

 private:
  /// Effect of a backward pass on the pool, which may be another cycle's or have these samples.
  enum class Use : std::uint8_t { none, add, replace };

  Use use_of(const Batch& b, const autograd::Cycle& cycle) const noexcept {
    const autograd::Cycle* const trainer = b.trainer();
    if (b.pooled_in == period_ || (trainer && trainer != &cycle)) return Use::none;
    if (!owner_ || owner_ == &cycle) return Use::add;
    return trainer ? Use::replace : Use::none;
  }
  void note(Use use, Batch& b, const autograd::Cycle& cycle) noexcept {
    if (use == Use::none) return;
    if (use == Use::replace) release();
    owner_ = &cycle;
    b.pooled_in = period_;
  }
  void release() noexcept {
    owner_ = nullptr;
    ++period_;
  }
  void empty_pool() const {
    zero_(pooled_);
    zero_(pooled_count_);
  }
  /// True if the end of `cycle` uses or discards the pool. A pool without an owner is empty, or was
  /// restored in mid-cycle.
  bool concerned_by(const autograd::Cycle& cycle, bool ends) {
    if (!pooled_.defined()) return false;
    const auto concerned = [](const BatchStatistics& s, const autograd::Cycle* c) {
      return !s.owner_ || s.owner_ == c;
    };
    const bool yes = concerned(*this, &cycle);
    if (yes && !ends) about_to_change_pool(nullptr);
    if (capturing()) [[unlikely]] {
      remember(nullptr);
      at_replay([s = shared_from_this(), c = &cycle, yes, ends, concerned] {
        s->require(concerned(*s, c) == yes);
        if (!yes) return;
        s->release();
        if (ends) ++s->ended_;
      });
    }
    return yes;
  }

  /// Called before the pool changes and `b` (if given) is noted in it: RollbackPoints keep the
  /// present state. Samples that a cycle has used are not pooled once more.
  void about_to_change_pool(const std::shared_ptr<Batch>& b) {
    if (capturing()) [[unlikely]]
      at_replay([s = shared_from_this(), b] { s->keep_place(b); });
    keep_place(b);
    autograd::about_to_change({&pooled_, &pooled_count_}, Rollback::gradients);
  }
  /// In a dry run, has the place put back at the end of the run.
  void keep_if_dry() {
    if (!runtime::dry_run()) [[likely]]
      return;
    runtime::at_dry_end(this,
                        [s = shared_from_this(), owner = owner_, period = period_, ended = ended_] {
                          s->owner_ = owner;
                          s->period_ = period;
                          s->ended_ = ended;
                        });
  }
  void keep_place(const std::shared_ptr<Batch>& b) {
    keep_if_dry();
    if (!runtime::rollback_wanted()) [[likely]]
      return;
    const auto s = shared_from_this();
    runtime::before_change(Rollback::gradients, this, [&s]() -> std::function<void()> {
      return [s, owner = s->owner_, period = s->period_, ended = s->ended_] {
        if (s->ended_ != ended) {
          s->empty_pool();
          return s->release();
        }
        s->owner_ = owner;
        s->period_ = period;
      };
    });
    if (!b) return;
    runtime::before_change(Rollback::gradients, b.get(), [&b]() -> std::function<void()> {
      return [b, pooled_in = b->pooled_in] { b->pooled_in = pooled_in; };
    });
  }

  bool capturing() const noexcept {
    return pooled_.defined() && runtime::capturing(pooled_.device());
  }
  template <class Effect>
  void at_replay(Effect&& effect) const {
    runtime::on_replay(pooled_.device(), std::forward<Effect>(effect));
  }
  /// Puts the host's part back if captured work, or a replay of it, does not run after all.
  void remember(const std::shared_ptr<Batch>& b) {
    struct Place {
      const autograd::Cycle* owner;
      std::uint64_t period, pooled_in;
    };
    const auto place = std::make_shared<Place>();
    const auto note = [s = shared_from_this(), b, place] {
      *place = {s->owner_, s->period_, b ? b->pooled_in : 0};
    };
    note();
    at_replay(note);
    runtime::on_abandon(pooled_.device(), [s = shared_from_this(), b, place] {
      s->owner_ = place->owner;
      s->period_ = place->period;
      if (b) b->pooled_in = place->pooled_in;
    });
  }
  void require(bool as_captured) const {
    FIRN_CHECK(as_captured, "BatchNorm",
               "record the step anew, or give the layer's weight to one optimizer",
               "the pool of running statistics belongs to another cycle than it did when the graph "
               "was recorded");
  }

  /// Memory in which ranks combine their pools.
  struct Exchange {
    struct OfRank {
      Moments moments;  ///< with the sum of squared deviations in place of the variance
      Tensor count;
    };
    Tensor here, all;           ///< f64 [2c + 1] of this rank, and of each rank; undefined: no pool
    std::vector<OfRank> ranks;  ///< parts of `all`; empty: the pool is another cycle's
  };

  /// The cycle that has pooled; only compared, as it may be gone. Null: none since the last end.
  const autograd::Cycle* owner_ = nullptr;
  std::uint64_t period_ = 1;  ///< counts owners
  std::uint64_t ended_ = 0;   ///< ends of cycles that have used up the pool
  Tensor mean_, var_, batches_;
  Tensor pooled_, pooled_count_;  ///< undefined in per_micro_batch mode
  Exchange exchange_;             ///< between prepare_to_combine() and combine()
  double momentum_;
  bool of_all_ranks_;  ///< moments are those of all ranks already
  bool named_ = false, warned_ = false;
  std::string kind_, name_;
};

}  // namespace firn::nn::detail
