// The forms of fit().
#include "firn/train/fit.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/share.h"
#include "firn/data/resident_batches.h"
#include "firn/nn/module.h"
#include "firn/ops/losses.h"
#include "optim/inside.h"
#include "optim/policy/scaler.h"
#include "train/fit/feed.h"
#include "train/fit/loop.h"

namespace firn::train {
namespace {

constexpr const char* kOp = "fit";

/// Throws Error for options that need a model and a loss.
void check_own_step(const FitOptions& o) {
  const char* const name = o.validate           ? "validate"
                           : !o.metrics.empty() ? "metrics"
                           : o.forward          ? "forward"
                           : o.micro_batch      ? "micro_batch"
                                                : nullptr;
  FIRN_CHECK(name == nullptr, kOp, "give evaluate, and let the step call run_batch()",
             "with a step of your own, there is no model and loss for {}", name);
}

/// Ranks with sharded weights all compute each batch, and a rank's loader has only its own samples.
void require_samples_of_each(const data::Loader& loader) {
  const data::LoaderOptions& o = loader.options();
  const std::int64_t whole = std::min(o.batch, loader.samples());
  for (const std::int64_t batch : {whole, o.batch > 0 ? loader.samples() % o.batch : 0}) {
    const int last = o.group.size() - 1;
    FIRN_CHECK(batch == 0 || share_of(batch, last, o.group.size(), o.chunk).size() > 0, kOp,
               "set drop_last, or choose a batch that leaves each rank samples, also of the last "
               "one of an epoch",
               "rank {} has no samples of a batch of {}, and with sharded weights every rank needs "
               "some",
               last, batch);
  }
}

/// Returns the ranks that train together: those of the first optimizer that has some.
autograd::StepRanks ranks_of(const Parts& parts) {
  for (const auto& optimizer : parts.optimizers) {
    const auto ranks = optim::ranks_of(optimizer.object);
    if (ranks.copies || ranks.model) return ranks;
  }
  return {};
}

/// Runs the loop. If a rank's loader, log or callback throws, all ranks throw.
FitReport fit_with(const Parts& parts, Feed& feed, Objective objective, const FitOptions& options,
                   const dist::Group& group) {
  std::optional<FitReport> report;
  autograd::on_every_rank(kOp, ranks_of(parts), [&] {
    report =
        FitLoop(parts, feed, std::move(objective), options, options.group.value_or(group)).run();
  });
  return std::move(*report);
}

}  // namespace

FitReport fit(nn::Module& net, optim::Optimizer& optimizer, data::Loader& loader,
              const LossFunction& loss, const FitOptions& options) try {
  require_function(kOp, loss, "give a function of output and target", "the loss");
  const bool exact = optim::options_of(optimizer).exact.chunk > 0;
  const bool sharded = optim::weights_sharded(optimizer);
  FIRN_CHECK(options.micro_batch || (!exact && !sharded), kOp,
             "give micro_batch, and the loader the same chunk",
             "{} needs whole batches, which run_batch() cuts",
             exact ? "exact mode" : "an optimizer whose weights are sharded");
  FIRN_CHECK(options.micro_batch || !optim::retries(optim::options_of(optimizer).loss_scale), kOp,
             "give micro_batch, or set OverflowPolicy::skip",
             "OverflowPolicy::retry computes a batch again, which run_batch() can");
  FIRN_CHECK(!options.micro_batch || optimizer.cycle_length() == 1, kOp,
             "let the loader's batch be what a step takes",
             "micro_batch makes a step of each batch, and the optimizer accumulates {}",
             optimizer.cycle_length());
  FIRN_CHECK(!options.group || options.group->size() == loader.options().group.size(), kOp,
             "give the loader the group: LoaderOptions::group",
             "the group has {} ranks, and the loader divides batches among {}",
             options.group->size(), loader.options().group.size());
  if (sharded) require_samples_of_each(loader);
  Objective objective{options.forward, loss};
  if (!objective.forward)
    objective.forward = [&net](const data::LoaderBatch& batch) { return net(batch.x()); };
  LoaderFeed feed(loader, [&](const data::LoaderBatch& batch) {
    const auto loss_of = [&](const data::LoaderBatch& b) {
      return objective.loss(objective.forward(b), b.y());
    };
    if (options.micro_batch) {
      optimizer.run_batch(
          batch.total, *options.micro_batch,
          [&](std::int64_t first, std::int64_t last) { return loss_of(batch.part(first, last)); });
      return;
    }
    const auto part = [&] {
      if (batch.size() == 0)
        optimizer.no_samples();
      else
        optimizer.backward(loss_of(batch));
      optimizer.step();
    };
    optim::part_of_cycle(optimizer, std::ref(part));
  });
  const Parts parts{.modules = {{"", net}}, .optimizers = {{"", optimizer}}};
  return fit_with(parts, feed, objective, options, loader.options().group);
}
FIRN_OUT_OF_MEMORY(kOp)

FitReport fit(const Parts& parts, data::Loader& loader,
              const std::function<void(const data::LoaderBatch&)>& step,
              const FitOptions& options) try {
  require_function(kOp, step, "give a function of a batch", "the step");
  check_own_step(options);
  LoaderFeed feed(loader, step);
  return fit_with(parts, feed, {}, options, loader.options().group);
}
FIRN_OUT_OF_MEMORY(kOp)

FitReport fit(const Parts& parts, data::ResidentBatches& batches, const std::function<void()>& step,
              const FitOptions& options) try {
  require_function(kOp, step, "give a function of a batch", "the step");
  check_own_step(options);
  ResidentFeed feed(batches, step);
  return fit_with(parts, feed, {}, options, {});
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn::train
