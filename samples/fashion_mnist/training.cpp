// The training loop: no step waits for a number from the device.
#include "training.h"

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
    return fc3(firn::relu(fc2(firn::relu(fc1(firn::flatten(x, 1))))));
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

/// What --precision means: the dtype of parameters and inputs, and that of autocast.
struct Precision {
  explicit Precision(const std::string& name)
      : model(name == "fp16"   ? firn::f16
              : name == "bf16" ? firn::bf16
                               : firn::f32) {
    if (name == "amp-fp16") autocast = firn::f16;
    if (name == "amp-bf16") autocast = firn::bf16;
  }
  /// model(x) and its loss.
  std::pair<Tensor, firn::Loss> run(nn::Module& m, const Tensor& x, const Tensor& y) const {
    std::optional<firn::Autocast> guard;
    if (autocast) guard.emplace(*autocast);
    const Tensor logits = m(x.to(model));
    return {logits, nn::cross_entropy(logits, y)};
  }
  firn::DType model;
  std::optional<firn::DType> autocast;
};

optim::LossScale loss_scale(const std::string& text) {
  if (text == "none") return optim::LossScale::none();
  if (text == "dynamic") return optim::LossScale::dynamic();
  return optim::LossScale::fixed(std::stod(text));
}

}  // namespace

std::unique_ptr<nn::Module> make_model(const Options& o, firn::Device device) {
  std::unique_ptr<nn::Module> model;
  if (o.model == "mlp") model = std::make_unique<Mlp>();
  if (!model) throw firn::Error("make_model", "no model is called " + o.model, "use --model mlp");
  model->to(Precision(o.precision).model);
  if (!device.is_cpu()) model->to(device);
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

Trained train_epoch(nn::Module& model, optim::Optimizer& optimizer,
                    const firn::data::Batches& batches, std::int64_t epoch,
                    const std::string& precision, const OnBatch& on_batch) {
  const Precision p(precision);
  model.train();
  optimizer.set_epoch(epoch);
  MeanLoss mean;
  std::int64_t done = 0;
  for (auto& [x, y] : batches.epoch(epoch)) {
    const firn::Loss loss = p.run(model, x, y).second;
    optimizer.backward(loss);
    optimizer.step();
    mean.add(loss);
    done += y.numel();
    on_batch(done);
  }
  const optim::StepReport last = optimizer.flush();
  return {.loss = mean.value(),
          .loss_scale = optimizer.loss_scale(),
          .lr = optimizer.lr(),
          .applied_steps = last.applied_steps(),
          .skipped_steps = last.skipped_steps()};
}

Evaluation evaluate(nn::Module& model, const firn::data::Batches& batches,
                    const std::string& precision) {
  const Precision p(precision);
  const firn::NoGrad guard;
  model.eval();
  MeanLoss mean;
  constexpr std::size_t kClasses = firn::data::FashionMnist::kClasses;
  std::vector<std::int64_t> correct(kClasses), images(kClasses);
  for (auto& [x, y] : batches.epoch(0)) {
    const auto [logits, loss] = p.run(model, x, y);
    mean.add(loss);
    const auto predicted = firn::argmax(logits).to_vector<std::int64_t>();
    const auto labels = y.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto label = static_cast<std::size_t>(labels[i]);
      ++images[label];
      correct[label] += predicted[i] == labels[i] ? 1 : 0;
    }
  }
  Evaluation e;
  e.loss = mean.value();
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  std::int64_t all_correct = 0;
  for (std::size_t c = 0; c < kClasses; ++c) {
    e.class_accuracy.push_back(share(correct[c], images[c]));
    all_correct += correct[c];
  }
  e.accuracy = share(all_correct, batches.samples());
  return e;
}

}  // namespace sample
