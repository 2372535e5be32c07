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
#include "firn/optim/schedule.h"
#include "options.h"

namespace sample {

/// The model named on the command line, on `device`, in the dtype that its parameters are held in.
std::unique_ptr<firn::nn::Module> make_model(const Options& options, firn::Device device);

/// The optimizer for a run over `images` training images. Throws Error where that has fewer steps
/// than the warm-up.
std::unique_ptr<firn::optim::Optimizer> make_optimizer(const Options& options,
                                                       const firn::nn::Module& model,
                                                       std::int64_t images);

/// The learning rate as a function of applied steps.
firn::optim::Schedule make_schedule(const Options& options, std::int64_t images);

/// Called after each micro-batch with the number of samples done; may throw to stop.
using OnBatch = std::function<void(std::int64_t)>;

struct Trained {
  double loss = 0;  ///< mean over the epoch's samples
  double loss_scale = 1;
  double lr = 0;                   ///< of the next step
  std::int64_t applied_steps = 0;  ///< of the whole run so far
  std::int64_t skipped_steps = 0;  ///< of the whole run so far
};

/// One pass over `batches`, whose batches are micro-batches. A cycle that the epoch's end cuts
/// short is applied with the weight that it has.
Trained train_epoch(firn::nn::Module& model, firn::optim::Optimizer& optimizer,
                    const firn::data::Batches& batches, std::int64_t epoch,
                    const std::string& precision, const OnBatch& on_batch);

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
  std::vector<double> class_accuracy;  ///< 0 for a class without images
};
Evaluation evaluate(firn::nn::Module& model, const firn::data::Batches& batches,
                    const std::string& precision);

}  // namespace sample
