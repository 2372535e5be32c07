// Shows why 16-bit training needs master weights and loss scaling: one small training, four times.
//
//   FP32                        the reference
//   FP16 naive                  weights are rounded to f16 after each step: an update below half a
//                               unit in the last place is lost, and training stalls
//   FP16 + masters              updates are kept in f32 masters; small gradients still underflow
//   FP16 + masters + scaling    the loss is scaled before the backward pass: tracks FP32
//
// The setting makes both failures visible. The learning rate is small, as in fine-tuning: Adam
// moves a weight by about 1e-5 a step, while half a unit in the last place of an f16 weight of 0.05
// is 1.5e-5. The loss is weighted by 1e-4, as one term of several might be. FP32 and Adam are
// insensitive to the factor, but it brings gradients of activations near f16's smallest number,
// 6e-8. Initial weights, batches and optimizer are equal in all four runs.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "firn/firn.h"

namespace {

using namespace firn;

constexpr double kLearningRate = 1e-5;
constexpr double kLossWeight = 1e-4;
constexpr std::int64_t kBatch = 256;
constexpr int kProbes = 8;

struct Net : nn::Module {
  nn::Linear fc1{784, 64}, fc2{64, 64}, fc3{64, 10};
  FIRN_MEMBERS(fc1, fc2, fc3)
  Tensor forward(const Tensor& x) override { return fc3(relu(fc2(relu(fc1(x))))); }
};

struct Data {
  data::LabelledImages train, test;
  std::string name;
};

data::LabelledImages first(const data::LabelledImages& set, std::int64_t n) {
  return {set.images.slice(0, 0, n).contiguous(), set.labels.slice(0, 0, n).contiguous()};
}

/// Makes images of ten random patterns, one for each class, with noise added.
data::LabelledImages generate(const std::vector<std::uint64_t>& patterns, std::int64_t n,
                              Generator& g) {
  std::vector<std::uint8_t> labels;
  for (std::int64_t i = 0; i < n; ++i) labels.push_back(static_cast<std::uint8_t>(i % 10));
  std::vector<Tensor> images;
  for (const std::uint8_t label : labels) {
    Generator of_class(patterns[label]);
    const Tensor pattern = relu(rand(
        {28, 28}, {.low = -200, .high = 200, .device = Device::cpu(), .generator = &of_class}));
    images.push_back(
        (pattern + rand({28, 28}, {.high = 55, .device = Device::cpu(), .generator = &g})).to(u8));
  }
  return {stack(images), tensor(labels, {n})};
}

Data load(bool generated, const std::string& folder) {
  if (!generated) {
    try {
      const auto set = data::load_fashion_mnist(folder);
      return {first(set.train, 8192), first(set.test, 2000), "FashionMNIST, 8192 of its images"};
    } catch (const IoError&) {
      if (!folder.empty()) throw;
    }
  }
  Generator g(7);
  const std::vector<std::uint64_t> patterns = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  auto train = generate(patterns, 2048, g);
  return {std::move(train), generate(patterns, 500, g), "generated, 2048 images"};
}

struct Row {
  const char* name;
  DType dtype;
  bool masters;
  optim::LossScale scale;
};

struct Result {
  double loss = 0, accuracy = 0;  ///< on the test images
  double flushed = 0;             ///< share of gradient elements that are 0 in f16 but not in f32
  double lost = 0;                ///< share of elements that a step with a gradient did not move
};

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

std::vector<std::vector<float>> states(const optim::Optimizer& opt, const std::string& what) {
  std::vector<std::vector<float>> out;
  for (const auto& s : opt.state())
    if (s.name.ends_with(what)) out.push_back(s.tensor.to_vector<float>());
  return out;
}

/// Counts the losses of gradients and updates in the sampled steps.
class Probe {
 public:
  /// Must be called between backward() and step().
  void before(const Net& net, const optim::Optimizer& opt, const Tensor& x, const Tensor& y) {
    Net exact;  // a copy of the weights, in f32
    exact.copy_from(net);
    (kLossWeight * cross_entropy(exact(x), y)).backward();
    gradients_ = states(opt, ".gradient");
    const auto parameters = exact.parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const auto reference = parameters[p].grad().to_vector<float>();
      for (std::size_t i = 0; i < reference.size(); ++i) {
        if (reference[i] == 0) continue;
        ++gradients_seen_;
        flushed_ += gradients_[p][i] == 0 ? 1 : 0;
      }
    }
    weights_ = kept(opt);
  }
  /// Must be called after the step.
  void after(const optim::Optimizer& opt) {
    const auto now = kept(opt);
    for (std::size_t p = 0; p < now.size(); ++p) {
      for (std::size_t i = 0; i < now[p].size(); ++i) {
        if (gradients_[p][i] == 0) continue;
        ++updates_seen_;
        lost_ += now[p][i] == weights_[p][i] ? 1 : 0;
      }
    }
  }
  double flushed() const { return share(flushed_, gradients_seen_); }
  double lost() const { return share(lost_, updates_seen_); }

 private:
  /// Returns the weights from which training continues: the masters, if there are any.
  static std::vector<std::vector<float>> kept(const optim::Optimizer& opt) {
    auto masters = states(opt, ".master");
    return masters.empty() ? states(opt, ".weight") : masters;
  }
  std::vector<std::vector<float>> gradients_, weights_;
  std::int64_t gradients_seen_ = 0, flushed_ = 0, updates_seen_ = 0, lost_ = 0;
};

Result train_row(const Row& row, const Data& data, int steps) {
  manual_seed(1);
  Net net;
  net.to(row.dtype);
  optim::Adam opt(net.parameters(), {.lr = kLearningRate, .eps = 1e-12}, {.loss_scale = row.scale});
  data::Loader batches(data::ImageDataset(data.train, {.flatten = true}),
                       {.batch = kBatch, .shuffle = true, .seed = 1, .drop_last = true});
  Probe probe;
  int step = 0;
  for (std::int64_t epoch = 0; step < steps; ++epoch) {
    for (const auto& batch : batches.epoch(epoch)) {
      const Tensor &x = batch.x(), &y = batch.y();
      const bool looked_at = step % std::max(1, steps / kProbes) == 0;
      opt.backward(kLossWeight * cross_entropy(net(x.to(row.dtype)), y));
      if (looked_at) probe.before(net, opt, x, y);
      opt.step();
      if (!row.masters) opt.refresh_masters();  // drops the part that rounding to f16 lost
      if (looked_at) probe.after(opt);
      if (++step == steps) break;
    }
  }
  const NoGrad guard;
  Result r;
  data::Loader test(data::ImageDataset(data.test, {.flatten = true}), {.batch = 1000});
  for (const auto& batch : test.epoch(0)) {
    const Tensor logits = net(batch.x().to(row.dtype));
    r.loss += cross_entropy(logits, batch.y()).sum.item() / static_cast<double>(test.samples());
    r.accuracy +=
        eq(argmax(logits), batch.y()).to(f32).sum().item() / static_cast<double>(test.samples());
  }
  r.flushed = probe.flushed();
  r.lost = probe.lost();
  return r;
}

}  // namespace

int main(int argc, char** argv) {
  int steps = 4000;
  bool generated = false;
  std::string folder;
  CLI::App app{
      "Trains a small network in FP32, and in FP16 in three ways, and prints what is lost."};
  app.add_option("--steps", steps, "steps of each training")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--data", folder, "folder with FashionMNIST [as for images --data]");
  app.add_flag("--generated", generated,
               "train on generated images, as is done if the data set is absent");
  CLI11_PARSE(app, argc, argv);
  try {
    const Data data = load(generated, folder);
    std::printf("data  %s\nrun   784-64-64-10 ReLU, Adam, learning rate %g, loss x %g, ",
                data.name.c_str(), kLearningRate, kLossWeight);
    std::printf("batch %lld, %d steps\n\n", static_cast<long long>(kBatch), steps);
    std::printf("%-26s  %9s  %8s  %15s  %12s\n", "", "test loss", "accuracy", "gradients -> 0",
                "updates lost");
    for (const Row& row :
         {Row{"FP32", f32, true, optim::LossScale::none()},
          Row{"FP16 naive", f16, false, optim::LossScale::fixed(1)},
          Row{"FP16 + masters", f16, true, optim::LossScale::fixed(1)},
          Row{"FP16 + masters + scaling", f16, true, optim::LossScale::dynamic()}}) {
      const Result r = train_row(row, data, steps);
      std::printf("%-26s  %9.4f  %8.4f  %14.2f%%  %11.2f%%\n", row.name, r.loss, r.accuracy,
                  100 * r.flushed, 100 * r.lost);
      std::fflush(stdout);
    }
    std::printf(
        "\ngradients -> 0  share of gradient elements that are 0 here, but not in FP32\n"
        "updates lost    share of elements that a step left as they were, despite a gradient\n");
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
