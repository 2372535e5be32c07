// The MLP 784-512-512-10.
#include "firn/nn/layers/mlp.h"
#include "training.h"

namespace bench {

using namespace firn;

void mlp() {
  const DeviceScope scope(kDevice);
  const auto set = random_images(sized<std::int64_t>(60000, 64));
  const auto model = [] {
    const std::int64_t width = sized(512, 16);
    return std::make_unique<nn::MLP>(std::vector<std::int64_t>{784, width, width, 10});
  };
  const TrainingSetting settings[] = {{"fp16_adam", f16, false},
                                      {"fp32_sgd", f32, true},
                                      {"fp32_adam", f32, false},
                                      {"bf16_adam", bf16, false}};
  for (const TrainingSetting& s : settings) {
    measure_training("mlp_b64", s, model, set, sized<std::int64_t>(64, 8), 1);
    measure_training("mlp_16x4", s, model, set, sized<std::int64_t>(64, 8), 4);
    measure_training("mlp_b4096", s, model, set, sized<std::int64_t>(4096, 16), 1);
  }
}

}  // namespace bench
