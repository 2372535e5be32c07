#include "train/fit/evaluation.h"

#include <deque>

#include "firn/autograd.h"
#include "firn/metrics/mean_loss.h"
#include "firn/ops/losses.h"
#include "firn/optim/ema.h"
#include "firn/optim/gathered_weights.h"
#include "firn/runtime/spans.h"
#include "nn/tree.h"
#include "optim/inside.h"

namespace firn::train {
namespace {

void validate_into(EpochReport& report, const Parts& parts, const Objective& objective,
                   const FitOptions& options) {
  const dist::Group& group = options.validate->options().group;
  // A rank without samples calls no module, so sharded weights are gathered before.
  std::deque<optim::GatheredWeights> whole;
  if (group.size() > 1)
    for (const auto& optimizer : parts.optimizers) whole.emplace_back(optimizer.object);
  for (const auto& metric : options.metrics) metric->reset();
  metrics::MeanLoss mean;
  options.validate->seek({0, 0});  // the whole set, even if an earlier loop was left
  for (const data::LoaderBatch& batch : options.validate->epoch(0)) {
    if (batch.size() == 0) continue;
    const Tensor output = objective.forward(batch);
    mean.add(objective.loss(output, batch.y()));
    for (const auto& metric : options.metrics) metric->update_from(batch.x(), output, batch.y());
  }
  report.validated = true;
  report.validation_loss = mean.value(group);
  for (const auto& metric : options.metrics) {
    if (group.size() > 1) metric->combine(group);
    for (metrics::Value& value : metric->values()) report.metrics.push_back(std::move(value));
    metric->add_details(report.details);
  }
}

}  // namespace

void evaluate_into(EpochReport& report, const Parts& parts, const Objective& objective,
                   const FitOptions& options) {
  if (!options.validate && !options.evaluate) return;
  const runtime::Span span(runtime::SpanKind::phase, "validation");
  std::deque<nn::detail::EvalScope> modes;
  for (const auto& module : parts.modules) modes.emplace_back(nn::detail::tree_of(module.object));
  std::deque<optim::AveragedWeights> averages;
  for (const auto& optimizer : parts.optimizers)
    if (optim::options_of(optimizer.object).ema > 0) averages.emplace_back(optimizer.object);
  const NoGrad guard;
  if (options.validate) return validate_into(report, parts, objective, options);
  for (metrics::Value& value : options.evaluate()) {
    if (value.name == "loss") {
      report.validated = true;
      report.validation_loss = value.value;
      continue;
    }
    report.metrics.push_back(std::move(value));
  }
}

}  // namespace firn::train
