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

/// The learning rate as a function of applied steps, for a run over a set of so many samples.
/// Throws Error in the name of `program` if the run has fewer steps than the warm-up.
firn::optim::Schedule make_schedule(const Options& options, std::int64_t samples,
                                    const std::string& program);
/// The optimizer for such a run, with that schedule.
std::unique_ptr<firn::optim::Optimizer> make_optimizer(const Options& options,
                                                       const firn::nn::Module& model,
                                                       std::int64_t samples,
                                                       const std::string& program);

/// Trains on `batches`. With resident ones a micro-step is a CUDA graph on a GPU, which never waits
/// for the host; a short last batch of an epoch has a graph of its own. The trainer refers to what
/// it is given, which must outlive it.
class Trainer {
 public:
  Trainer(Training& training, firn::optim::Optimizer& optimizer, Batches& batches,
          const Options& options);

  /// The run, by train::fit().
  firn::train::FitReport fit(const firn::train::FitOptions& options);
  /// Bytes in use at the peak of a step of the first epoch, planned by shapes alone.
  std::size_t planned_peak(firn::Device device);
  /// The nodes of the graph of a micro-step that ends a cycle; runs two steps to capture it. Throws
  /// Error in the name of `program` if there is no graph, as on the CPU.
  std::vector<std::string> nodes(const std::string& program);

 private:
  /// Everything stands at the beginning of the first epoch.
  void begin();
  void micro_step(const firn::Tensor& x, const firn::Tensor& y);
  /// One step, of which each rank computes its part; with --exact in quanta.
  void step_by_batch(const firn::Tensor& x, const firn::Tensor& y);
  firn::Loss loss_of(const firn::Tensor& x, const firn::Tensor& y);

  Training& training_;
  firn::optim::Optimizer& optimizer_;
  firn::data::ResidentBatches* resident_;  ///< else a loader
  Batches& batches_;
  const Options& options_;
  std::optional<firn::graph::Step> step_;  ///< of resident batches
};

/// The loss of all test batches as "loss", then the figures of the training, which keeps them. A
/// call of all ranks, which get the same.
std::vector<firn::metrics::Value> evaluate(Training& training, const std::string& precision);
/// Bytes in use at the peak of a test batch, its loss and figures included, planned by shapes
/// alone.
std::size_t planned_test_peak(Training& training, const std::string& precision,
                              firn::Device device);

}  // namespace sample
