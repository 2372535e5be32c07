// The CNN of two convolutions and two dense layers, without padding (1.2 million parameters).
#include "training.h"

namespace bench {

using namespace firn;

namespace {

struct Cnn : nn::Module {
  std::int64_t wide = sized(32, 8);
  nn::Conv2d conv1{1, wide, 3, {.activation = Activation::relu}};
  nn::Conv2d conv2{wide, 2 * wide, 3, {.activation = Activation::relu}};
  nn::Linear fc1{2 * wide * 144, 4 * wide}, fc2{4 * wide, 10};
  FIRN_MEMBERS(conv1, conv2, fc1, fc2)
  Tensor forward(const Tensor& x) override {
    const Tensor images = reshape(x, {-1, 1, 28, 28});
    return fc2(relu(fc1(flatten(max_pool2d(conv2(conv1(images)), 2), 1))));
  }
};

}  // namespace

void cnn() {
  const DeviceScope scope(kDevice);
  const auto set = random_images(sized<std::int64_t>(60000, 64));
  const auto model = [] { return std::make_unique<Cnn>(); };
  for (const TrainingSetting& s :
       {TrainingSetting{"fp16_adam", f16, false}, TrainingSetting{"fp32_adam", f32, false},
        TrainingSetting{"bf16_adam", bf16, false}})
    measure_training("cnn_b64", s, model, set, sized<std::int64_t>(64, 4), 1);
}

}  // namespace bench
