// The optimizer that the options name, steps of a training, and its tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/train/fit.h"
#include "firn/train/graph_step.h"
#include "program/training.h"

namespace sample {

/// Returns the learning rate as a function of applied steps, for a run over a set of `samples`
/// samples. Throws Error in the name of `program` if the run has fewer steps than the warm-up.
firn::optim::Schedule make_schedule(const Options& options, std::int64_t samples,
                                    const std::string& program);
/// Returns the optimizer for such a run, with that schedule.
std::unique_ptr<firn::optim::Optimizer> make_optimizer(const Options& options,
                                                       const firn::nn::Module& model,
                                                       std::int64_t samples,
                                                       const std::string& program);

/// Trains on `batches`. With resident batches, a micro-step is a CUDA graph on a GPU, which never
/// waits for the host; a short last batch of an epoch has its own graph. The trainer refers to its
/// arguments, which must outlive it.
class Trainer {
 public:
  Trainer(Training& training, firn::optim::Optimizer& optimizer, Batches& batches,
          const Options& options);

  /// Runs the training by train::fit().
  firn::train::FitReport fit(const firn::train::FitOptions& options);
  /// Returns the bytes in use at the peak of a step of the first epoch, planned by shapes alone.
  std::size_t planned_peak(firn::Device device);
  /// Returns the nodes of the graph of a micro-step that ends a cycle; runs two steps to capture
  /// it. Throws Error in the name of `program` if there is no graph, as on the CPU.
  std::vector<std::string> nodes(const std::string& program);

 private:
  /// Moves everything to the beginning of the first epoch.
  void begin();
  void micro_step(const firn::Tensor& x, const firn::Tensor& y);
  /// Runs one step, of which each rank computes its share; --exact divides it into chunks.
  void step_by_batch(const firn::Tensor& x, const firn::Tensor& y);
  firn::Loss loss_of(const firn::Tensor& x, const firn::Tensor& y);

  Training& training_;
  firn::optim::Optimizer& optimizer_;
  firn::data::ResidentBatches* resident_;  ///< null with a loader
  Batches& batches_;
  const Options& options_;
  std::optional<firn::graph::Step> step_;  ///< only with resident batches
};

/// Returns the loss of all test batches as "loss", then the figures of the training, which keeps
/// them. All ranks make the call and get equal values.
std::vector<firn::metrics::Value> evaluate(Training& training, const std::string& precision);
/// Returns the bytes in use at the peak of a test batch, with its loss and figures, planned by
/// shapes alone.
std::size_t planned_test_peak(Training& training, const std::string& precision,
                              firn::Device device);

}  // namespace sample
