#include "firn/nn/layers/batch_norm.h"

#include <string>
#include <utility>
#include <vector>

#include "autograd/batch_parts.h"
#include "autograd/node.h"
#include "base/checked.h"
#include "firn/autograd.h"
#include "firn/ops/channel_norm.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "nn/layers/batch_statistics.h"
#include "nn/layers/sizes.h"
#include "nn/tree.h"
#include "ops/image/moments.h"

namespace firn::nn {
namespace {

constexpr const char* kOneValue =
    "leave such a batch out, or evaluate with eval(), or use nn::GroupNorm";

const char* shape_for(int low, int high) {
  if (low < high) return "[n, c] or [n, c, l]";
  return high == 4 ? "[n, c, h, w]" : "[n, c, d, h, w]";
}

}  // namespace

FIRN_DEFINE_MEMBERS(BatchNorm, weight, bias, running_mean, running_var, num_batches_tracked, pooled,
                    pooled_count)
FIRN_DEFINE_MEMBERS(BatchNorm1d, weight, bias, running_mean, running_var, num_batches_tracked,
                    pooled, pooled_count)
FIRN_DEFINE_MEMBERS(BatchNorm2d, weight, bias, running_mean, running_var, num_batches_tracked,
                    pooled, pooled_count)
FIRN_DEFINE_MEMBERS(BatchNorm3d, weight, bias, running_mean, running_var, num_batches_tracked,
                    pooled, pooled_count)

BatchNorm::BatchNorm(const char* what, int low, int high, std::int64_t c,
                     const BatchNormOptions& options) try
    : what_(what),
      low_(low),
      high_(high),
      c_(c),
      eps_(options.eps),
      momentum_(options.momentum),
      accumulation_(options.accumulation) {
  require_named(what, "BatchNormMode", accumulation_, BatchNormMode::whole_batch);
  FIRN_CHECK(c > 0, what, "give the number of channels", "c = {} must be positive", c);
  checked_elements(what, {2, c});  // the shape of the pooled moments
  check_dtype(what, options.dtype);
  check_eps(what, options.eps);
  const double m = options.momentum.value_or(0);
  FIRN_CHECK(m >= 0 && m <= 1, what,
             "it is the share of the new batch; std::nullopt averages over all batches",
             "momentum = {} is not in [0, 1]", m);
  if (options.affine) {
    weight = Parameter::full({c}, 1, options.dtype, options.device);
    bias = Parameter::full({c}, 0, options.dtype, options.device);
  }
  if (options.accumulation == BatchNormMode::whole_batch)
    needs_batch_ = std::make_shared<const autograd::NeedsWholeBatch>();
  if (!options.track) return;
  const DType wide = compute_dtype(options.dtype);
  running_mean = Buffer(zeros({c}, wide, options.device), OnConversion::widen);
  running_var = Buffer(ones({c}, wide, options.device), OnConversion::widen);
  num_batches_tracked = Buffer(zeros({}, DType::i64, options.device));
  set_accumulation(options.accumulation);
}
FIRN_OUT_OF_MEMORY(what)

void BatchNorm::set_accumulation(BatchNormMode mode) try {
  require_named(what_, "BatchNormMode", mode, BatchNormMode::whole_batch);
  if (mode == accumulation_ && statistics_) return;
  FIRN_CHECK(!runtime::planning() || !statistics_, what_,
             "convert the layer before the step that is planned",
             "the mode of a layer that is there changes within a plan, which changes nothing");
  const bool whole = mode == BatchNormMode::whole_batch;
  auto needs_batch = whole ? std::make_shared<const autograd::NeedsWholeBatch>() : nullptr;
  Buffer moments, count;
  if (running_mean.defined() && mode != BatchNormMode::per_micro_batch) {
    const Device device = running_mean.device();
    moments = Buffer(zeros({2, c_}, DType::f64, device), OnConversion::keep);
    count = Buffer(zeros({1}, DType::f64, device), OnConversion::keep);
    moments.of_cycle = count.of_cycle = true;
  }
  // Tensors have come first: without memory for them the mode stays.
  needs_batch_ = std::move(needs_batch);
  accumulation_ = mode;
  if (!running_mean.defined()) return;
  if (statistics_) statistics_->clear();  // an optimizer may still hold the old statistics
  pooled = moments;
  pooled_count = count;
  statistics();
}
FIRN_OUT_OF_MEMORY(what_)

/// Called by clone(): the pool of the original's cycle stays with the original.
void BatchNorm::was_separated() {
  statistics_.reset();
  name_.reset();
  if (running_mean.defined()) statistics().clear();
}

void BatchNorm::become_group_norm(std::int64_t groups) {
  FIRN_CHECK(groups > 0 && c_ % groups == 0, "become_group_norm",
             "choose a divisor of the number of channels", "{} groups of {} channels", groups, c_);
  FIRN_CHECK(!runtime::planning(), "become_group_norm",
             "convert the layer before the step that is planned",
             "a layer is converted within a plan, which changes nothing");
  groups_ = groups;
  needs_batch_.reset();
  running_mean = running_var = num_batches_tracked = pooled = pooled_count = Buffer();
  statistics_.reset();
  if (autograd::Leaf* leaf = autograd::leaf_or_frozen(weight)) leaf->set_member(nullptr);
}

/// Returns the statistics object of the present buffers; makes it if needed. The optimizer finds it
/// through the weight's leaf: a restored cycle may end without a backward pass.
detail::BatchStatistics& BatchNorm::statistics() {
  autograd::Leaf* const leaf = autograd::leaf_or_frozen(weight);
  if (leaf) leaf->reserve_extras();
  if (!statistics_ || !statistics_->are_of(*this))
    statistics_ =
        std::make_shared<detail::BatchStatistics>(*this, momentum_.value_or(detail::kCumulative));
  if (leaf && leaf->member() != statistics_) leaf->set_member(statistics_);
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
  if (!running_mean.defined()) {
    FIRN_CHECK(x.numel() > 0, what_, "leave empty batches out, or let the layer track statistics",
               "input {} has no values, and so no mean", describe(x));
    return batch_norm(x, weight, bias, eps_);
  }
  return batch_norm(x, weight, bias, Moments{running_mean, running_var}, eps_);
}

/// Normalises the chunk that this thread computes, by the moments of its batch.
Tensor BatchNorm::normalize_in_batch(const Tensor& x, Moments& moments, double& count) {
  autograd::BatchParts* const parts = thread_context.batch_parts;
  FIRN_CHECK(parts, what_,
             "train with run_batch() of an optimizer with StepOptions::exact and "
             "DistributeOptions::zero below 2, or choose another mode (nn::convert_batch_norm())",
             "BatchNormMode::whole_batch needs to know the batch of which {} is a part",
             describe(x));
  if (!name_)
    name_ = std::make_shared<const std::string>(
        fmt::format("{} ({})", detail::path_in_call(*this), type_name()));
  const Tensor y = ops::batch_norm_of_parts(*parts, name_, x, weight, bias, eps_, moments, count);
  FIRN_CHECK(count != 1, what_, kOneValue, "the batch of input {} has one value per channel",
             describe(x));
  return y;
}

Tensor BatchNorm::train_forward(const Tensor& x) {
  Moments moments;
  Tensor y;
  auto count = static_cast<double>(x.numel() / c_);
  const bool whole = accumulation_ == BatchNormMode::whole_batch;
  if (whole) {
    y = normalize_in_batch(x, moments, count);
  } else {
    FIRN_CHECK(count > 0, what_, "leave empty batches out, or call eval()",
               "input {} has no values, and so no mean", describe(x));
    FIRN_CHECK(count != 1, what_, kOneValue,
               "input {} has one value per channel, and so no variance", describe(x));
    if (auto* const coupling = thread_context.coupling; coupling && coupling->layer.empty())
      coupling->layer = fmt::format("{} ({}) normalises the samples of a micro-batch together",
                                    detail::path_in_call(*this), type_name());
    y = batch_norm(x, weight, bias, eps_, &moments);
  }
  if (!running_mean.defined() || autograd::computing_again()) return y;
  detail::BatchStatistics& s = statistics();
  const bool pools = accumulation_ != BatchNormMode::per_micro_batch;
  if (!pools) s.update(moments, count);
  if (!y.requires_grad()) return y;
  if (pools) {
    // Each part has the moments of the whole batch, so only the first part pools them.
    if (whole && !thread_context.batch_parts->is_first()) return y;
    using detail::BatchStatistics;
    const auto batch = std::make_shared<BatchStatistics::Batch>(
        BatchStatistics::Batch{.statistics = statistics_,
                               .weight = Ref(autograd::leaf_or_frozen(weight)),
                               .bias = Ref(autograd::leaf_or_frozen(bias))});
    BatchStatistics::begin(batch);
    add_hook(y, [batch, moments, count](const Tensor&) {
      if (thread_context.gradient_path) return Tensor();  // grad() belongs to no cycle
      BatchStatistics::pool(batch, moments, count);
      return Tensor();
    });
  } else if (s.to_warn()) {
    s.learn_name(*this);
    add_hook(y, [s = statistics_](const Tensor&) {
      if (!thread_context.gradient_path) s->warn_in_long_cycle();
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
  if (accumulation_ == BatchNormMode::whole_batch && groups_ == 0)
    out += ", whole_batch";
  else if (pooled.defined())
    out += ", per_step";
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
  require_named("convert_batch_norm", "BatchNormMode", mode, BatchNormMode::whole_batch);
  detail::require_members("convert_batch_norm", m);
  const std::vector<BatchNorm*> all = batch_norms(m);
  for (BatchNorm* layer : all) layer->set_accumulation(mode);
  return static_cast<std::int64_t>(all.size());
}
FIRN_OUT_OF_MEMORY("convert_batch_norm")

std::int64_t convert_to_group_norm(Module& m, std::int64_t groups) try {
  FIRN_CHECK(!runtime::planning(), "convert_to_group_norm",
             "convert the model before the step that is planned",
             "a model is converted within a plan, which changes nothing");
  detail::require_members("convert_to_group_norm", m);
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
