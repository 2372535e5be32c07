// The training loop: no step waits for a number from the device.
#include "training.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "firn/firn.h"
#include "firn/nn/losses.h"
#include "firn/optim/optim.h"
#include "models.h"

namespace sample {

using firn::Tensor;
namespace nn = firn::nn;
namespace optim = firn::optim;

namespace {

/// While it lives, ops are those of --precision.
class PrecisionScope {
 public:
  explicit PrecisionScope(const std::string& precision) {
    if (const auto t = autocast_dtype(precision)) guard_.emplace(*t);
  }

 private:
  std::optional<firn::Autocast> guard_;
};

firn::Loss loss_of(const Tensor& logits, const Tensor& y, double label_smoothing = 0) {
  firn::CrossEntropyOptions options;
  options.label_smoothing = label_smoothing;
  return nn::cross_entropy(logits, y, options);
}

optim::LossScale loss_scale(const std::string& text) {
  if (text == "none") return optim::LossScale::none();
  if (text == "dynamic") return optim::LossScale::dynamic();
  return optim::LossScale::fixed(std::stod(text));
}

/// Weight decay applies to matrices and kernels, not to biases and the scales of norms.
std::vector<optim::ParamGroup> groups_of(const nn::Module& model, bool decay) {
  if (!decay) return {{.parameters = model.parameters()}};
  std::vector<optim::ParamGroup> groups(2);
  groups[1].weight_decay = 0;
  for (const Tensor& p : model.parameters()) groups[p.rank() > 1 ? 0 : 1].parameters.push_back(p);
  return groups;
}

/// The whole model's, in micro-batches that keep all stages at work.
Tensor logits_of(firn::dist::Pipeline& pipeline, const Tensor& x) {
  constexpr std::int64_t kParts = 4;
  return pipeline.infer(
      x.size(0), (x.size(0) + kParts - 1) / kParts,
      [&](std::int64_t first, std::int64_t last) { return x.slice(0, first, last); });
}

}  // namespace

Tensor logits_of(nn::Module& model, const Tensor& x, const std::string& precision) {
  const PrecisionScope scope(precision);
  return model(x);
}

optim::Schedule make_schedule(const Options& o, std::int64_t images) {
  const std::int64_t total = o.total_steps(images);
  if (o.warmup >= total)
    throw firn::Error("fashion_mnist",
                      "--warmup " + std::to_string(o.warmup) + " does not fit --epochs " +
                          std::to_string(o.epochs) + ": the run has " + std::to_string(total) +
                          " steps",
                      "use a smaller --warmup or more --epochs");
  const std::int64_t steps = total - o.warmup;
  optim::Schedule s = o.lr;
  if (o.schedule == "cosine") s = optim::cosine(o.lr, steps);
  if (o.schedule == "linear") s = optim::linear_schedule(o.lr, 0, steps);
  if (o.schedule == "one-cycle") s = optim::one_cycle(o.lr, steps);
  // Two drops by a factor of ten, after one third and two thirds of the run.
  if (o.schedule == "step") s = optim::step_decay(o.lr, (steps + 2) / 3);
  return o.warmup > 0 ? optim::warmup(o.warmup, s) : s;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Options& o, const nn::Module& model,
                                                 std::int64_t images) {
  const auto groups = groups_of(model, o.weight_decay.value_or(0) > 0);
  const optim::Schedule lr = make_schedule(o, images);
  const optim::StepOptions step{.accumulate = o.accumulate,
                                .clip_norm = o.clip,
                                .loss_scale = loss_scale(o.loss_scale),
                                .ema = o.ema,
                                .exact = {.quantum = o.exact}};
  const double decay = o.weight_decay.value_or(0);
  if (o.optimizer == "sgd")
    return std::make_unique<optim::SGD>(groups, optim::SGDOptions{.lr = lr, .weight_decay = decay},
                                        step);
  if (o.optimizer == "adamw") {
    optim::AdamWOptions options{.lr = lr};
    if (o.weight_decay) options.weight_decay = decay;
    return std::make_unique<optim::AdamW>(groups, options, step);
  }
  return std::make_unique<optim::Adam>(groups, optim::AdamOptions{.lr = lr, .weight_decay = decay},
                                       step);
}

Trainer::Trainer(nn::Module& model, optim::Optimizer& optimizer,
                 firn::data::ResidentBatches& batches, const Options& options,
                 firn::dist::Pipeline* pipeline)
    : model_(model),
      optimizer_(optimizer),
      batches_(batches),
      step_(
          optimizer,
          [&model, &optimizer, &batches, precision = options.precision,
           smoothing = options.label_smoothing] {
            const auto [x, y] = batches.next();
            const auto loss = [&, x = x, y = y] {
              const PrecisionScope scope(precision);
              return loss_of(model(x), y, smoothing);
            };
            optimizer.backward(loss());
            optimizer.step();
          },
          [&batches] { return batches.next_size(); }),
      options_(options),
      pipeline_(pipeline) {}

void Trainer::step_by_batch(std::int64_t images) {
  const firn::data::Batch batch = batches_.next(images);
  const auto inputs = [&](std::int64_t first, std::int64_t last) {
    return batch.x.slice(0, first, last);
  };
  const auto loss = [&](const Tensor& logits, std::int64_t first, std::int64_t last) {
    const PrecisionScope scope(options_.precision);
    return loss_of(logits, batch.y.slice(0, first, last), options_.label_smoothing);
  };
  if (pipeline_ != nullptr) {
    pipeline_->run_batch(optimizer_, images, options_.micro_batch, inputs, loss);
    return;
  }
  optimizer_.run_batch(images, options_.micro_batch, [&](std::int64_t first, std::int64_t last) {
    return loss(logits_of(model_, inputs(first, last), options_.precision), first, last);
  });
}

void Trainer::step() {
  if (options_.ranks == 1 && options_.exact == 0) return step_();
  const std::int64_t epoch = batches_.position().epoch;
  step_by_batch(std::min(options_.effective_batch(epoch), batches_.remaining()));
}

void Trainer::begin() {
  model_.train();
  optimizer_.set_epoch(0);
  batches_.begin_epoch(0);
}

void Trainer::cycle() {
  begin();
  for (std::int64_t i = 0, n = optimizer_.cycle_length(); i < n && batches_.remaining() > 0; ++i)
    step_();
}

std::vector<std::string> Trainer::nodes() {
  begin();
  std::int64_t last = 0;
  for (int cycle = 0; cycle < 2; ++cycle) {  // the first runs eagerly, the second is captured
    for (std::int64_t i = 0; i < optimizer_.cycle_length(); ++i) {
      last = step_.variant();
      step_();
    }
  }
  const firn::graph::Graph* graph = step_.graph(last);
  if (graph == nullptr)
    throw firn::Error(
        "fashion_mnist", "no step was captured",
        "use --device cuda, and batches so small that an epoch has two steps or more");
  return graph->names();
}

Evaluation evaluate(nn::Module& model, firn::data::ResidentBatches& batches,
                    const std::string& precision, firn::dist::Pipeline* pipeline) {
  const firn::NoGrad guard;
  const auto run = [&](const Tensor& x, const Tensor& y) {
    const PrecisionScope scope(precision);
    const Tensor logits = pipeline != nullptr ? logits_of(*pipeline, x) : model(x);
    return std::pair(logits, loss_of(logits, y));
  };
  model.eval();
  batches.begin_epoch(0);
  constexpr std::size_t kClasses = firn::data::FashionMnist::kClasses;
  firn::metrics::MeanLoss mean;
  firn::metrics::Accuracy accuracy;
  firn::metrics::Confusion confusion({.classes = kClasses});
  firn::metrics::Mistakes mistakes({.height = 28, .width = 28});
  while (batches.remaining() > 0) {
    const auto [x, y] = batches.next();
    const auto [logits, loss] = run(x, y);
    mean.add(loss);
    accuracy.update(logits, y);
    confusion.update(logits, y);
    mistakes.update_from(x, logits, y);
  }
  Evaluation e{mean.value(), accuracy.values()[0].value, {}, confusion.matrix(), mistakes};
  for (std::size_t c = 0; c < kClasses; ++c) {
    const auto& row = e.confusion[c];
    const auto images = std::accumulate(row.begin(), row.end(), std::int64_t{0});
    e.class_accuracy.push_back(
        images > 0 ? static_cast<double>(row[c]) / static_cast<double>(images) : 0);
  }
  return e;
}

}  // namespace sample
