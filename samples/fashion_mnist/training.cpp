// The training loop: no step waits for a number from the device.
#include "training.h"

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

}  // namespace

std::unique_ptr<nn::Module> make_model(const std::string& name, firn::Device device) {
  std::unique_ptr<nn::Module> model;
  if (name == "mlp") model = std::make_unique<Mlp>();
  if (!model) throw firn::Error("make_model", "no model is called " + name, "use --model mlp");
  if (!device.is_cpu()) model->to(device);
  return model;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Options& o, const nn::Module& model) {
  const auto parameters = model.parameters();
  if (o.optimizer == "sgd")
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = o.lr});
  if (o.optimizer == "adamw")
    return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = o.lr});
  return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = o.lr});
}

double train_epoch(nn::Module& model, optim::Optimizer& optimizer,
                   const firn::data::Batches& batches, std::int64_t epoch,
                   const OnBatch& on_batch) {
  model.train();
  MeanLoss mean;
  std::int64_t done = 0;
  for (auto& [x, y] : batches.epoch(epoch)) {
    const firn::Loss loss = nn::cross_entropy(model(x), y);
    optimizer.backward(loss);
    optimizer.step();
    mean.add(loss);
    done += y.numel();
    on_batch(done);
  }
  return mean.value();
}

Evaluation evaluate(nn::Module& model, const firn::data::Batches& batches) {
  const firn::NoGrad guard;
  model.eval();
  MeanLoss mean;
  constexpr std::size_t kClasses = firn::data::FashionMnist::kClasses;
  std::vector<std::int64_t> correct(kClasses), images(kClasses);
  for (auto& [x, y] : batches.epoch(0)) {
    const Tensor logits = model(x);
    mean.add(nn::cross_entropy(logits, y));
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
