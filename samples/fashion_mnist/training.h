// Models, optimizers by name, one epoch of training, and evaluation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "firn/data/batches.h"
#include "firn/nn/module.h"
#include "firn/optim/optimizer.h"
#include "options.h"

namespace sample {

/// The model named on the command line, on `device`.
std::unique_ptr<firn::nn::Module> make_model(const std::string& name, firn::Device device);

std::unique_ptr<firn::optim::Optimizer> make_optimizer(const Options& options,
                                                       const firn::nn::Module& model);

/// Called after each batch with the number of samples done; may throw to stop.
using OnBatch = std::function<void(std::int64_t)>;

/// One pass over `batches`; returns the mean training loss, weighted by samples.
double train_epoch(firn::nn::Module& model, firn::optim::Optimizer& optimizer,
                   const firn::data::Batches& batches, std::int64_t epoch, const OnBatch& on_batch);

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
  std::vector<double> class_accuracy;  ///< 0 for a class without images
};
Evaluation evaluate(firn::nn::Module& model, const firn::data::Batches& batches);

}  // namespace sample
