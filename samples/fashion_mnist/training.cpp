// The training loop: no step waits for a number from the device.
#include "training.h"

#include <array>
#include <optional>
#include <utility>

#include "firn/firn.h"
#include "firn/nn/linear.h"
#include "firn/nn/losses.h"
#include "firn/optim/optim.h"

namespace sample {

using firn::Tensor;
namespace nn = firn::nn;
namespace optim = firn::optim;

namespace {

struct Mlp : nn::Module {
  nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};
  FIRN_MEMBERS(fc1, fc2, fc3)
  Tensor forward(const Tensor& x) override {
    return firn::mlp(firn::flatten(x, 1), std::array<Tensor, 3>{fc1.weight, fc2.weight, fc3.weight},
                     std::array<Tensor, 3>{fc1.bias, fc2.bias, fc3.bias});
  }
};

/// A loss averaged over many batches: sums stay on the device, in f64, until they are asked for.
class MeanLoss {
 public:
  void add(const firn::Loss& loss) {
    const firn::NoGrad guard;
    const Tensor sum = loss.sum.to(firn::f64);
    const Tensor weight = loss.weight.to(firn::f64);
    sum_ = sum_.defined() ? sum_ + sum : sum;
    weight_ = weight_.defined() ? weight_ + weight : weight;
  }
  double value() const {
    return weight_.defined() && weight_.item() > 0 ? sum_.item() / weight_.item() : 0;
  }

 private:
  Tensor sum_, weight_;
};

/// What --precision means beside model_dtype(): the dtype of autocast.
struct Precision {
  explicit Precision(const std::string& name) {
    if (name == "amp-fp16") autocast = firn::f16;
    if (name == "amp-bf16") autocast = firn::bf16;
  }
  /// model(x) and its loss.
  std::pair<Tensor, firn::Loss> run(nn::Module& m, const Tensor& x, const Tensor& y) const {
    std::optional<firn::Autocast> guard;
    if (autocast) guard.emplace(*autocast);
    const Tensor logits = m(x);
    return {logits, nn::cross_entropy(logits, y)};
  }
  std::optional<firn::DType> autocast;
};

optim::LossScale loss_scale(const std::string& text) {
  if (text == "none") return optim::LossScale::none();
  if (text == "dynamic") return optim::LossScale::dynamic();
  return optim::LossScale::fixed(std::stod(text));
}

}  // namespace

firn::DType model_dtype(const std::string& precision) {
  if (precision == "fp16") return firn::f16;
  return precision == "bf16" ? firn::bf16 : firn::f32;
}

std::unique_ptr<nn::Module> make_model(const Options& o, firn::Device device) {
  std::unique_ptr<nn::Module> model;
  if (o.model == "mlp") model = std::make_unique<Mlp>();
  if (!model) throw firn::Error("make_model", "no model is called " + o.model, "use --model mlp");
  model->to(model_dtype(o.precision));
  model->to(device);
  return model;
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
  // Two drops by ten: after one and two thirds of the run.
  if (o.schedule == "step") s = optim::step_decay(o.lr, (steps + 2) / 3);
  return o.warmup > 0 ? optim::warmup(o.warmup, s) : s;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Options& o, const nn::Module& model,
                                                 std::int64_t images) {
  const auto parameters = model.parameters();
  const optim::Schedule lr = make_schedule(o, images);
  const optim::StepOptions step{
      .accumulate = o.accumulate, .clip_norm = o.clip, .loss_scale = loss_scale(o.loss_scale)};
  if (o.optimizer == "sgd")
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = lr}, step);
  if (o.optimizer == "adamw")
    return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = lr}, step);
  return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = lr}, step);
}

Trainer::Trainer(nn::Module& model, optim::Optimizer& optimizer,
                 firn::data::ResidentBatches& batches, const std::string& precision)
    : model_(model),
      optimizer_(optimizer),
      batches_(batches),
      step_(
          optimizer,
          [&model, &optimizer, &batches, p = Precision(precision)] {
            const auto [x, y] = batches.next();
            optimizer.backward(p.run(model, x, y).second);
            optimizer.step();
          },
          [&batches] { return batches.next_size(); }) {}

Trained Trainer::epoch(std::int64_t number, const OnBatch& on_batch) {
  model_.train();
  optimizer_.set_epoch(number);
  batches_.begin_epoch(number);
  while (batches_.remaining() > 0) {
    step_();
    on_batch(batches_.samples() - batches_.remaining());
  }
  const optim::StepReport last = optimizer_.flush();
  const optim::LossTotals now = optimizer_.loss_totals();
  const double weight = now.weight - before_.weight;
  const double loss = weight > 0 ? (now.loss - before_.loss) / weight : 0;
  before_ = now;
  return {.loss = loss,
          .loss_scale = optimizer_.loss_scale(),
          .lr = optimizer_.lr(),
          .applied_steps = last.applied_steps(),
          .skipped_steps = last.skipped_steps()};
}

std::vector<std::string> Trainer::nodes() {
  model_.train();
  optimizer_.set_epoch(0);
  batches_.begin_epoch(0);
  std::int64_t last = 0;
  for (int cycle = 0; cycle < 2; ++cycle) {  // one runs as it is, the next is recorded
    for (std::int64_t i = 0; i < optimizer_.cycle_length(); ++i) {
      last = step_.variant();
      step_();
    }
  }
  const firn::graph::Graph* graph = step_.graph(last);
  if (graph == nullptr)
    throw firn::Error("fashion_mnist", "no step was recorded",
                      "use --device cuda, and batches of which an epoch has two steps' worth");
  return graph->names();
}

Evaluation evaluate(nn::Module& model, firn::data::ResidentBatches& batches,
                    const std::string& precision) {
  const Precision p(precision);
  const firn::NoGrad guard;
  model.eval();
  batches.begin_epoch(0);
  MeanLoss mean;
  std::vector<Tensor> predictions, classes;  // on the device until all are there
  while (batches.remaining() > 0) {
    const auto [x, y] = batches.next();
    const auto [logits, loss] = p.run(model, x, y);
    mean.add(loss);
    predictions.push_back(firn::argmax(logits));
    classes.push_back(y);
  }
  Evaluation e;
  e.loss = mean.value();
  constexpr std::size_t kClasses = firn::data::FashionMnist::kClasses;
  std::vector<std::int64_t> correct(kClasses), images(kClasses);
  std::int64_t all_correct = 0;
  const auto predicted = firn::cat(predictions, 0).to_vector<std::int64_t>();
  const auto labels = firn::cat(classes, 0).to_vector<std::int64_t>();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<std::size_t>(labels[i]);
    const int hit = predicted[i] == labels[i] ? 1 : 0;
    ++images[label];
    correct[label] += hit;
    all_correct += hit;
  }
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  for (std::size_t c = 0; c < kClasses; ++c)
    e.class_accuracy.push_back(share(correct[c], images[c]));
  e.accuracy = share(all_correct, batches.samples());
  return e;
}

}  // namespace sample
