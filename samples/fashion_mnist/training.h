// Optimizers by name, a step of training, and evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "firn/data/resident_batches.h"
#include "firn/dist/parallel/pipeline.h"
#include "firn/metrics/mistakes.h"
#include "firn/nn/module.h"
#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/train/graph_step.h"
#include "options.h"

namespace sample {

/// The optimizer for a run over `images` training images. Throws Error if the run has fewer steps
/// than the warm-up.
std::unique_ptr<firn::optim::Optimizer> make_optimizer(const Options& options,
                                                       const firn::nn::Module& model,
                                                       std::int64_t images);

/// The learning rate as a function of applied steps.
firn::optim::Schedule make_schedule(const Options& options, std::int64_t images);

/// model(x) in --precision.
firn::Tensor logits_of(firn::nn::Module& model, const firn::Tensor& x,
                       const std::string& precision);

/// Trains `model` on `batches`, whose batches are micro-batches. On a GPU a micro-step is a CUDA
/// graph that never waits for the host; a short last batch of an epoch has a graph of its own. The
/// trainer refers to what it is given, which must outlive it. With a pipeline, `model` is a stage
/// of it.
class Trainer {
 public:
  Trainer(firn::nn::Module& model, firn::optim::Optimizer& optimizer,
          firn::data::ResidentBatches& batches, const Options& options,
          firn::dist::Pipeline* pipeline = nullptr);

  /// A micro-step with the next batch; over ranks and with --exact, a whole step.
  void step();
  /// One step of the first epoch, for a plan of its memory.
  void cycle();
  /// The nodes of the graph of a micro-step that ends a cycle; runs two steps to capture it. Throws
  /// Error if there is no graph, as on the CPU.
  std::vector<std::string> nodes();

 private:
  /// Everything stands at the beginning of the first epoch.
  void begin();
  /// One step, of which each rank computes its part; with --exact in quanta.
  void step_by_batch(std::int64_t images);

  firn::nn::Module& model_;
  firn::optim::Optimizer& optimizer_;
  firn::data::ResidentBatches& batches_;
  firn::graph::Step step_;
  const Options& options_;
  firn::dist::Pipeline* pipeline_;
};

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
  std::vector<double> class_accuracy;  ///< 0 for a class without images
  /// Numbers of images by true class, then by predicted class.
  std::vector<std::vector<std::int64_t>> confusion;
  firn::metrics::Mistakes mistakes;  ///< those that it is most sure about
};
/// Of the model, or of the whole of which it is a stage; then a call of all ranks, which get the
/// same.
Evaluation evaluate(firn::nn::Module& model, firn::data::ResidentBatches& batches,
                    const std::string& precision, firn::dist::Pipeline* pipeline = nullptr);

}  // namespace sample
