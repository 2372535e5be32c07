// No step in this file waits for a number from the device.
#include "program/trainer.h"

#include <algorithm>
#include <utility>

#include "firn/firn.h"
#include "firn/metrics/mean_loss.h"
#include "firn/optim/optim.h"
#include "program/model.h"

namespace sample {

using firn::Tensor;
namespace data = firn::data;
namespace nn = firn::nn;
namespace optim = firn::optim;

namespace {

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

data::LoaderBatch first_of(Batches& batches) {
  auto& loader = std::get<data::Loader>(batches);
  loader.seek({0, 0});
  for (const data::LoaderBatch& batch : loader.epoch(0)) return batch;
  throw firn::Error("trainer", "the set has no sample");
}

/// A test of the model: its loss and figures over batches. It is made and used under NoGrad.
class Test {
 public:
  Test(Training& training, const std::string& precision)
      : training_(training), precision_(precision), metrics_(training.figures()) {
    training.model().eval();
    for (firn::metrics::Metric* metric : training.others()) metrics_.push_back(metric);
    for (firn::metrics::Metric* metric : metrics_) metric->reset();
  }

  void add(const Tensor& x, const Tensor& y) {
    const PrecisionScope scope(precision_);
    const Tensor output = output_of(x);
    mean_.add(training_.loss(output, y, false));
    for (firn::metrics::Metric* metric : metrics_) metric->update_from(x, output, y);
  }
  std::vector<firn::metrics::Value> values() const {
    std::vector<firn::metrics::Value> values{{"loss", mean_.value()}};
    for (const firn::metrics::Metric* metric : training_.figures())
      for (firn::metrics::Value& value : metric->values()) values.push_back(std::move(value));
    return values;
  }

 private:
  /// A sharded model runs in micro-batches that keep all stages busy.
  Tensor output_of(const Tensor& x) {
    if (training_.sharded() == nullptr) return training_.model()(x);
    constexpr std::int64_t kParts = 4;
    return training_.sharded()->pipeline().infer(
        x.size(0), (x.size(0) + kParts - 1) / kParts,
        [&](std::int64_t first, std::int64_t last) { return x.slice(0, first, last); });
  }

  Training& training_;
  const std::string& precision_;
  std::vector<firn::metrics::Metric*> metrics_;
  firn::metrics::MeanLoss mean_;
};

}  // namespace

data::LoaderOptions resident_options(const Options& o, firn::Device device) {
  return {.batch = o.micro_batch, .shuffle = true, .seed = o.seed, .device = device};
}

data::LoaderOptions loader_options(const Options& o, firn::Device device) {
  auto options = resident_options(o, device);
  if (o.by_batches()) options.batch = o.effective_batch(0);
  return options;
}

optim::Schedule make_schedule(const Options& o, std::int64_t samples, const std::string& program) {
  const std::int64_t total = o.total_steps(samples);
  if (o.warmup >= total)
    throw firn::Error(program,
                      "--warmup " + std::to_string(o.warmup) + " does not fit --epochs " +
                          std::to_string(o.epochs) + ": the run has " + std::to_string(total) +
                          " steps",
                      "use a smaller --warmup or more --epochs");
  const std::int64_t steps = total - o.warmup;
  optim::Schedule s = o.lr;
  if (o.schedule == "cosine") s = optim::cosine(o.lr, steps);
  if (o.schedule == "linear") s = optim::linear_schedule(o.lr, 0, steps);
  if (o.schedule == "one-cycle") s = optim::one_cycle(o.lr, steps);
  // The rate drops by a factor of ten after one third and two thirds of the run.
  if (o.schedule == "step") s = optim::step_decay(o.lr, (steps + 2) / 3);
  return o.warmup > 0 ? optim::warmup(o.warmup, s) : s;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Options& o, const nn::Module& model,
                                                 std::int64_t samples, const std::string& program) {
  const double decay = o.weight_decay.value_or(0);
  const auto groups = groups_of(model, decay > 0);
  const optim::Schedule lr = make_schedule(o, samples, program);
  const optim::StepOptions step{.accumulate = o.accumulate,
                                .clip_norm = o.clip,
                                .loss_scale = loss_scale(o.loss_scale),
                                .ema = o.ema,
                                .exact = {.chunk = o.exact}};
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

Trainer::Trainer(Training& training, optim::Optimizer& optimizer, Batches& batches,
                 const Options& options)
    : training_(training),
      optimizer_(optimizer),
      resident_(std::get_if<data::ResidentBatches>(&batches)),
      batches_(batches),
      options_(options) {
  if (resident_ == nullptr) return;
  step_.emplace(
      optimizer,
      [this] {
        const auto [x, y] = resident_->next();
        micro_step(x, y);
      },
      [this] { return resident_->next_size(); });
}

firn::Loss Trainer::loss_of(const Tensor& x, const Tensor& y) {
  const PrecisionScope scope(options_.precision);
  return training_.loss(training_.model()(x), y, true);
}

void Trainer::micro_step(const Tensor& x, const Tensor& y) {
  optimizer_.backward(loss_of(x, y));
  optimizer_.step();
}

void Trainer::step_by_batch(const Tensor& x, const Tensor& y) {
  const auto part = [](const Tensor& all, std::int64_t first, std::int64_t last) {
    return all.slice(0, first, last);
  };
  if (Sharded* const sharded = training_.sharded()) {
    sharded->pipeline().run_batch(
        optimizer_, x.size(0), options_.micro_batch,
        [&](std::int64_t first, std::int64_t last) { return part(x, first, last); },
        [&](const Tensor& output, std::int64_t first, std::int64_t last) {
          const PrecisionScope scope(options_.precision);
          return training_.loss(output, part(y, first, last), true);
        });
    return;
  }
  optimizer_.run_batch(x.size(0), options_.micro_batch, [&](std::int64_t first, std::int64_t last) {
    return loss_of(part(x, first, last), part(y, first, last));
  });
}

firn::train::FitReport Trainer::fit(const firn::train::FitOptions& options) {
  const firn::train::Parts parts{.modules = {{"", training_.model()}},
                                 .optimizers = {{"", optimizer_}}};
  if (resident_ == nullptr)
    return firn::train::fit(
        parts, std::get<data::Loader>(batches_),
        [this](const data::LoaderBatch& batch) {
          options_.by_batches() ? step_by_batch(batch.x(), batch.y())
                                : micro_step(batch.x(), batch.y());
        },
        options);
  return firn::train::fit(
      parts, *resident_,
      [this] {
        if (!options_.by_batches()) return (*step_)();
        const auto [x, y] = resident_->next(std::min(
            options_.effective_batch(resident_->position().epoch), resident_->remaining()));
        step_by_batch(x, y);
      },
      options);
}

void Trainer::begin() {
  training_.model().train();
  optimizer_.set_epoch(0);
  if (resident_ != nullptr) resident_->begin_epoch(0);
}

std::size_t Trainer::planned_peak(firn::Device device) {
  std::optional<data::LoaderBatch> batch;  // made before, since a plan reads no file
  if (resident_ == nullptr) batch = first_of(batches_);
  const auto cycle = [&] {
    begin();
    const std::int64_t n = optimizer_.cycle_length();
    if (batch)
      for (std::int64_t i = 0; i < n; ++i) micro_step(batch->x(), batch->y());
    else
      for (std::int64_t i = 0; i < n && resident_->remaining() > 0; ++i) (*step_)();
  };
  return firn::plan_memory(cycle, device).peak;
}

std::vector<std::string> Trainer::nodes(const std::string& program) {
  begin();
  std::int64_t last = 0;
  for (int cycle = 0; cycle < 2; ++cycle) {  // the first runs eagerly, the second is captured
    for (std::int64_t i = 0; i < optimizer_.cycle_length(); ++i) {
      last = step_->variant();
      (*step_)();
    }
  }
  const firn::graph::Graph* graph = step_->graph(last);
  if (graph == nullptr)
    throw firn::Error(
        program, "no step was captured",
        "use --device cuda, and batches so small that an epoch has two steps or more");
  return graph->names();
}

std::vector<firn::metrics::Value> evaluate(Training& training, const std::string& precision) {
  const firn::NoGrad guard;
  Test test(training, precision);
  if (auto* const resident = std::get_if<data::ResidentBatches>(&training.tests())) {
    resident->begin_epoch(0);
    while (resident->remaining() > 0) {
      const auto [x, y] = resident->next();
      test.add(x, y);
    }
  } else {
    auto& loader = std::get<data::Loader>(training.tests());
    loader.seek({0, 0});
    for (const data::LoaderBatch& batch : loader.epoch(0)) test.add(batch.x(), batch.y());
  }
  return test.values();
}

std::size_t planned_test_peak(Training& training, const std::string& precision,
                              firn::Device device) {
  auto* const resident = std::get_if<data::ResidentBatches>(&training.tests());
  std::optional<data::LoaderBatch> batch;
  if (resident == nullptr) batch = first_of(training.tests());
  const auto one_batch = [&] {
    const firn::NoGrad guard;
    Test test(training, precision);
    if (batch) return test.add(batch->x(), batch->y());
    resident->begin_epoch(0);
    const auto [x, y] = resident->next();
    test.add(x, y);
  };
  return firn::plan_memory(one_batch, device).peak;
}

}  // namespace sample
