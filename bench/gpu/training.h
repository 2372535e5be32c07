// Training steps of a model on bytes that live on the device: take a batch, forward, loss,
// backward, optimizer. As one captured graph, whatever the number of micro-batches (`step`), and op
// by op
// (`uncaptured`).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bench.h"

namespace bench {

struct TrainingSetting {
  const char* name;
  firn::DType dtype;  ///< of the model; the optimizer keeps f32 masters of 16-bit ones
  bool sgd;
};

/// `count` images of 28 x 28 random bytes and labels that can be learnt from them.
firn::data::LabelledImages random_images(std::int64_t count);

using MakeModel = std::function<std::unique_ptr<firn::nn::Module>()>;

/// Reports the time of a step of `batch` images in so many micro-steps, its nodes, and that the
/// host waits for nothing in it. The model is made on the current default device.
void measure_training(const std::string& work, const TrainingSetting& setting,
                      const MakeModel& make_model, const firn::data::LabelledImages& set,
                      std::int64_t batch, std::int64_t micro_steps);

}  // namespace bench
