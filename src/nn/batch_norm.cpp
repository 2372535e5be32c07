// BatchNorm, and how its running statistics take part in the optimizer's cycle (autograd/cycle.h).
#include "firn/nn/batch_norm.h"

#include <string>
#include <utility>
#include <vector>

#include "autograd/cycle.h"
#include "autograd/node.h"
#include "base/checked.h"
#include "firn/autograd.h"
#include "firn/channel_norm.h"
#include "firn/kernel_support.h"
#include "firn/ops.h"
#include "firn/warning.h"
#include "nn/tree.h"
#include "ops/image/moments.h"

namespace firn::nn {

/// The running statistics of a layer and its copies: holds the buffers' handles and updates the
/// buffers. The pool belongs to one cycle at a time, its owner. The host knows the owner, so what
/// it decides in a captured pass must hold at each replay.
class detail::BatchStatistics final : public autograd::CycleMember,
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
        momentum_(momentum) {}

  /// Whether the layer still has these buffers; the user may have replaced them.
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
  /// The batch has new samples, in each replay too.
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
    autograd::Cycle* const cycle = autograd::current_cycle;
    if (!cycle) return s.update(moments, count);
    const Use use = s.use_of(*b, *cycle);
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

  void end_cycle(const autograd::Cycle& cycle, const ConstView& step_state) override {
    if (!concerned_by(cycle)) return;
    ops::commit_moments(pooled_, pooled_count_, momentum_, step_state, mean_, var_, batches_);
    release();
  }
  void drop_cycle(const autograd::Cycle& cycle) override {
    if (concerned_by(cycle)) clear();
  }
  /// Drops the cycle, whichever it is.
  void clear() {
    if (!pooled_.defined()) return;
    empty_pool();
    release();
  }

  // The warning that running statistics change once per micro-step is given once.
  bool to_warn() const noexcept { return !warned_; }
  void learn_name(Module& layer) {
    Module* const root = called_root();
    if (kind_.empty()) kind_ = layer.type_name();
    if (named_ || !root) return;
    named_ = true;
    for (const NamedModule& m : root->named_modules())
      if (m.module == &layer && !m.name.empty()) name_ = m.name + ": ";
  }
  void warn_in_long_cycle() {
    if (warned_ || !autograd::current_cycle || autograd::current_cycle->micro_steps() < 2) return;
    warned_ = true;
    warn(kind_,
         fmt::format("{}the running statistics move in each of the cycle's {} micro-steps, by the "
                     "mean and variance of a micro-batch, instead of once per step by those of the "
                     "whole batch",
                     name_, autograd::current_cycle->micro_steps()),
         "nn::convert_batch_norm(net, nn::BatchNormMode::per_step) pools them over the cycle; "
         "nn::convert_to_group_norm(net, groups) does without");
  }

 private:
  /// What a backward pass does with the pool: it may be another cycle's, or have these samples.
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
  /// Whether the end of `cycle` uses or discards the pool. A pool without an owner is empty, or was
  /// restored in mid-cycle.
  bool concerned_by(const autograd::Cycle& cycle) {
    if (!pooled_.defined()) return false;
    const auto concerned = [](const BatchStatistics& s, const autograd::Cycle* c) {
      return !s.owner_ || s.owner_ == c;
    };
    const bool yes = concerned(*this, &cycle);
    if (capturing()) [[unlikely]] {
      remember(nullptr);
      at_replay([s = shared_from_this(), c = &cycle, yes, concerned] {
        s->require(concerned(*s, c) == yes);
        if (yes) s->release();
      });
    }
    return yes;
  }

  bool capturing() const noexcept {
    return pooled_.defined() && runtime::capturing(pooled_.device());
  }
  template <class Effect>
  void at_replay(Effect&& effect) const {
    runtime::on_replay(pooled_.device(), std::forward<Effect>(effect));
  }
  /// If captured work, or a replay of it, is not run after all, the host's part is put back.
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

  /// The cycle that has pooled; only compared, as it may be gone. Null: none since the last end.
  const autograd::Cycle* owner_ = nullptr;
  std::uint64_t period_ = 1;  ///< counts owners
  Tensor mean_, var_, batches_;
  Tensor pooled_, pooled_count_;  ///< undefined in per_micro_batch mode
  double momentum_;
  bool named_ = false, warned_ = false;
  std::string kind_, name_;
};

namespace {

constexpr double kCumulative = -1;  // the kernels' momentum for a mean of all batches

const char* shape_for(int low, int high) {
  if (low < high) return "[n, c] or [n, c, l]";
  return high == 4 ? "[n, c, h, w]" : "[n, c, ...]";
}

}  // namespace

BatchNorm::BatchNorm(const char* what, int low, int high, std::int64_t c,
                     const BatchNormOptions& options)
    : what_(what),
      low_(low),
      high_(high),
      c_(c),
      eps_(options.eps),
      momentum_(options.momentum),
      accumulation_(options.accumulation) {
  FIRN_CHECK(c > 0, what, "give the number of channels", "c = {} must be positive", c);
  checked_elements(what, {2, c});  // the shape of the pooled moments
  FIRN_CHECK(options.eps >= 0, what, "a small number such as 1e-5 keeps the division finite",
             "eps = {} must not be negative", options.eps);
  const double m = options.momentum.value_or(0);
  FIRN_CHECK(m >= 0 && m <= 1, what,
             "it is the share of the new batch; std::nullopt averages over all batches",
             "momentum = {} is not in [0, 1]", m);
  if (options.affine) {
    weight = Parameter::full({c}, 1, options.dtype, options.device);
    bias = Parameter::full({c}, 0, options.dtype, options.device);
  }
  if (!options.track) return;
  const DType wide = compute_dtype(options.dtype);
  running_mean = Buffer(zeros({c}, wide, options.device), OnConversion::widen);
  running_var = Buffer(ones({c}, wide, options.device), OnConversion::widen);
  num_batches_tracked = Buffer(zeros({}, DType::i64, options.device));
  set_accumulation(options.accumulation);
}

void BatchNorm::set_accumulation(BatchNormMode mode) {
  if (mode == accumulation_ && statistics_) return;
  accumulation_ = mode;
  if (!running_mean.defined()) return;
  if (statistics_) statistics_->clear();  // an optimizer may still hold the old statistics
  pooled = pooled_count = Buffer();
  if (mode == BatchNormMode::per_step) {
    const Device device = running_mean.device();
    pooled = Buffer(zeros({2, c_}, DType::f64, device), OnConversion::keep);
    pooled_count = Buffer(zeros({1}, DType::f64, device), OnConversion::keep);
    pooled.of_cycle = pooled_count.of_cycle = true;
  }
  statistics();
}

/// Called by clone(): what the original's cycle has pooled stays with the original.
void BatchNorm::was_separated() {
  statistics_.reset();
  if (running_mean.defined()) statistics().clear();
}

void BatchNorm::become_group_norm(std::int64_t groups) {
  FIRN_CHECK(groups > 0 && c_ % groups == 0, "convert_to_group_norm",
             "choose a divisor of the number of channels", "{} groups of {} channels", groups, c_);
  groups_ = groups;
  running_mean = running_var = num_batches_tracked = pooled = pooled_count = Buffer();
  statistics_.reset();
  if (autograd::Leaf* leaf = autograd::leaf_or_frozen(weight)) leaf->member.reset();
}

/// Returns the statistics object of the present buffers; makes it if needed. The optimizer finds it
/// through the weight's leaf: a restored cycle may end without a backward pass.
detail::BatchStatistics& BatchNorm::statistics() {
  if (!statistics_ || !statistics_->are_of(*this))
    statistics_ = std::make_shared<detail::BatchStatistics>(*this, momentum_.value_or(kCumulative));
  if (autograd::Leaf* leaf = autograd::leaf_or_frozen(weight); leaf && leaf->member != statistics_)
    leaf->member = statistics_;
  return *statistics_;
}

void BatchNorm::check_input(const Tensor& x) const {
  FIRN_CHECK(x.defined() && x.rank() >= low_ && x.rank() <= high_ && x.shape()[1] == c_, what_,
             "axis 1 holds the channels", "input {} is not {} with c = {}", describe(x),
             shape_for(low_, high_), c_);
  FIRN_CHECK(!running_mean.defined() || compute_dtype(x.dtype()) == running_mean.dtype(), what_,
             "convert the module with to(dtype), or cast the input",
             "input {} and running statistics {} differ in dtype", describe(x),
             describe(running_mean));
}

Tensor BatchNorm::forward(const Tensor& x) {
  check_input(x);
  if (groups_ > 0) return group_norm(x, groups_, weight, bias, eps_);
  if (training()) return train_forward(x);
  if (!running_mean.defined()) return batch_norm(x, weight, bias, eps_);
  return batch_norm(x, weight, bias, Moments{running_mean, running_var}, eps_);
}

Tensor BatchNorm::train_forward(const Tensor& x) {
  const std::int64_t count = x.numel() / c_;
  FIRN_CHECK(count != 1, what_,
             "leave such a batch out, or evaluate with eval(), or use nn::GroupNorm",
             "input {} has one value per channel, and so no variance", describe(x));
  Moments moments;
  const Tensor y = batch_norm(x, weight, bias, eps_, &moments);
  if (!running_mean.defined()) return y;
  detail::BatchStatistics& s = statistics();
  const bool pools = accumulation_ == BatchNormMode::per_step;
  if (!pools) s.update(moments, static_cast<double>(count));
  if (!y.requires_grad()) return y;
  if (pools) {
    using detail::BatchStatistics;
    const auto batch = std::make_shared<BatchStatistics::Batch>(
        BatchStatistics::Batch{.statistics = statistics_,
                               .weight = Ref(autograd::leaf_or_frozen(weight)),
                               .bias = Ref(autograd::leaf_or_frozen(bias))});
    BatchStatistics::begin(batch);
    add_hook(y, [batch, moments, n = static_cast<double>(count)](const Tensor&) {
      BatchStatistics::pool(batch, moments, n);
      return Tensor();
    });
  } else if (s.to_warn()) {
    s.learn_name(*this);
    add_hook(y, [s = statistics_](const Tensor&) {
      s->warn_in_long_cycle();
      return Tensor();
    });
  }
  return y;
}

std::string BatchNorm::type_name() const { return groups_ > 0 ? "GroupNorm" : Module::type_name(); }

std::string BatchNorm::extra_repr() const {
  std::string out = groups_ > 0 ? fmt::format("{}, {}, eps = {}", groups_, c_, eps_)
                                : fmt::format("{}, eps = {}", c_, eps_);
  if (groups_ == 0 && running_mean.defined())
    out += momentum_ ? fmt::format(", momentum = {}", *momentum_) : ", cumulative average";
  if (!weight.defined()) out += ", affine = false";
  if (groups_ == 0 && !running_mean.defined()) out += ", track = false";
  if (pooled.defined()) out += ", per_step";
  return out;
}

// ---- Conversion of a model ----

namespace {

std::vector<BatchNorm*> batch_norms(Module& root) {
  std::vector<BatchNorm*> all;
  for (const NamedModule& m : root.named_modules())
    if (auto* layer = dynamic_cast<BatchNorm*>(m.module); layer && !layer->is_group_norm())
      all.push_back(layer);
  return all;
}

}  // namespace

std::int64_t convert_batch_norm(Module& m, BatchNormMode mode) try {
  const std::vector<BatchNorm*> all = batch_norms(m);
  for (BatchNorm* layer : all) layer->set_accumulation(mode);
  return static_cast<std::int64_t>(all.size());
}
FIRN_OUT_OF_MEMORY("convert_batch_norm")

std::int64_t convert_to_group_norm(Module& m, std::int64_t groups) try {
  for (const NamedModule& n : m.named_modules())
    if (const auto* layer = dynamic_cast<BatchNorm*>(n.module); layer && !layer->is_group_norm())
      FIRN_CHECK(groups > 0 && layer->channels() % groups == 0, "convert_to_group_norm",
                 "choose a divisor of the channels of all, such as 1",
                 "{} groups cannot be made of the {} channels of {} {}", groups, layer->channels(),
                 layer->type_name(), n.name);
  const std::vector<BatchNorm*> all = batch_norms(m);
  for (BatchNorm* layer : all) layer->become_group_norm(groups);
  return static_cast<std::int64_t>(all.size());
}
FIRN_OUT_OF_MEMORY("convert_to_group_norm")

}  // namespace firn::nn
