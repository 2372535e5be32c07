// Models are structs with their layers as members and a forward.
#include "models.h"

#include <utility>

#include "firn/firn.h"
#include "firn/nn/init.h"
#include "firn/nn/layers/batch_norm.h"
#include "firn/nn/layers/conv.h"
#include "firn/nn/layers/dropout.h"
#include "firn/nn/layers/linear.h"
#include "firn/nn/layers/mlp.h"
#include "firn/nn/layers/residual.h"

namespace sample {

using firn::Tensor;
namespace nn = firn::nn;

namespace {

/// Reshapes [n, 784] or [n, 28, 28] to [n, 1, 28, 28].
Tensor as_images(const Tensor& x) { return firn::reshape(x, {x.size(0), 1, 28, 28}); }

struct Mlp : nn::MLP {
  Mlp() : nn::MLP({kMlpSizes.begin(), kMlpSizes.end()}) {}
  FIRN_MEMBERS(layers)
  Tensor forward(const Tensor& x) override { return nn::MLP::forward(firn::flatten(x, 1)); }
};

struct Cnn : nn::Module {
  nn::Conv2d conv1{1, 32, 3, {.activation = firn::Activation::relu}};
  nn::Conv2d conv2{32, 64, 3, {.activation = firn::Activation::relu}};
  nn::Dropout dropout1{0.25}, dropout2{0.5};
  nn::Linear fc1{64 * 12 * 12, 128}, fc2{128, 10};
  FIRN_MEMBERS(conv1, conv2, dropout1, dropout2, fc1, fc2)
  Tensor forward(const Tensor& x) override {
    const Tensor features = firn::max_pool2d(conv2(conv1(as_images(x))), 2);
    const Tensor hidden = firn::relu(fc1(firn::flatten(dropout1(features), 1)));
    return fc2(dropout2(hidden));
  }
};

struct ResNet : nn::Module {
  /// With per_step, running statistics do not depend on the division into micro-batches.
  static nn::BatchNormOptions pooled() { return {.accumulation = nn::BatchNormMode::per_step}; }

  nn::Conv2d conv{1, 16, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d norm{16, pooled()};
  nn::Sequential stages;
  nn::Linear fc{64, 10};
  FIRN_MEMBERS(conv, norm, stages, fc)

  ResNet() {
    nn::init::kaiming_normal_(conv.weight, {.fan = nn::init::Fan::out});
    std::int64_t channels = 16;
    for (const std::int64_t wider : {16, 32, 64}) {
      for (int block = 0; block < 2; ++block) {
        stages.push_back(
            nn::BasicBlock(channels, wider, channels == wider ? 1 : 2, {.norm = pooled()}));
        channels = wider;
      }
    }
  }
  Tensor forward(const Tensor& x) override {
    return fc(firn::global_avg_pool2d(stages(firn::relu(norm(conv(as_images(x)))))));
  }
};

}  // namespace

std::unique_ptr<nn::Module> make_model(const std::string& name, const Options& o,
                                       firn::Device device) {
  std::unique_ptr<nn::Module> model;
  if (name == "mlp") model = std::make_unique<Mlp>();
  if (name == "cnn") model = std::make_unique<Cnn>();
  if (name == "resnet") model = std::make_unique<ResNet>();
  if (!model)
    throw firn::Error("make_model", "no model is called " + name, "use mlp, cnn or resnet");
  return prepared(std::move(model), o, device);
}

}  // namespace sample
