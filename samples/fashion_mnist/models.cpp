// Models are structs with their layers as members and a forward.
#include "models.h"

#include "firn/firn.h"
#include "firn/io/safetensors.h"
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

/// [n, 784] or [n, 28, 28] as [n, 1, 28, 28].
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

firn::DType model_dtype(const std::string& precision) {
  if (precision == "fp16") return firn::f16;
  return precision == "bf16" ? firn::bf16 : firn::f32;
}

std::optional<firn::DType> autocast_dtype(const std::string& precision) {
  if (precision == "amp-fp16") return firn::f16;
  if (precision == "amp-bf16") return firn::bf16;
  return std::nullopt;
}

std::int64_t test_batch(const std::string& model) { return model == "mlp" ? 1000 : 250; }

std::unique_ptr<nn::Module> make_model(const Options& o, firn::Device device) {
  std::unique_ptr<nn::Module> model;
  if (o.model == "mlp") model = std::make_unique<Mlp>();
  if (o.model == "cnn") model = std::make_unique<Cnn>();
  if (o.model == "resnet") model = std::make_unique<ResNet>();
  if (!model)
    throw firn::Error("make_model", "no model is called " + o.model, "use mlp, cnn or resnet");
  model->to(model_dtype(o.precision));
  if (!o.load.empty()) firn::io::load_safetensors(o.load, *model);
  model->to(device);
  if (o.recompute != "auto") set_recompute(*model, o.recompute);
  if (o.exact > 0) nn::convert_batch_norm(*model, nn::BatchNormMode::whole_batch);
  return model;
}

void set_recompute(nn::Module& model, const std::string& recompute) {
  nn::checkpoint_nothing(model);
  if (recompute != "nothing")
    nn::checkpoint_blocks(model,
                          {.keep = recompute == "all" ? firn::Keep::inputs : firn::Keep::products});
}

}  // namespace sample
