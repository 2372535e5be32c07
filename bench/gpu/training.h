// Training steps of a model on bytes on the device: take a batch, forward, loss, backward,
// optimizer. They run as one captured graph for any number of micro-batches (`step`), and op by op
// (`uncaptured`).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bench.h"

namespace bench {

struct TrainingSetting {
  const char* name;
  firn::DType dtype;  ///< dtype of the model; 16-bit ones get f32 masters
  bool sgd;
};

/// Returns `count` images of 28 x 28 random bytes, and labels that can be learnt from them.
firn::data::LabelledImages random_images(std::int64_t count);

using MakeModel = std::function<std::unique_ptr<firn::nn::Module>()>;

/// Reports the time of a step of `batch` images in `micro_steps` micro-steps, its nodes, and the
/// number of waits of the host in it. The model is made on the current default device.
void measure_training(const std::string& work, const TrainingSetting& setting,
                      const MakeModel& make_model, const firn::data::LabelledImages& set,
                      std::int64_t batch, std::int64_t micro_steps);

}  // namespace bench
