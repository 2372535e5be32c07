// A model whose layers are split into stages, one on each rank of mesh.pp().
//
//   const dist::Mesh mesh(group, {.pp = 2});
//   Stage stage(mesh);                       // the layers of stage mesh.pp().rank()
//   optim::AdamW opt(stage.parameters(), {.lr = 1e-3}, {.clip_norm = 1});
//   dist::distribute(opt, mesh);
//   dist::Pipeline pipeline(mesh, stage);
//   for (const auto& [x, y] : batches)       // equal on every stage
//     pipeline.run_batch(
//         opt, x.size(0), 8,
//         [&](std::int64_t first, std::int64_t last) { return x.slice(0, first, last); },
//         [&](const Tensor& out, std::int64_t first, std::int64_t last) {
//           return cross_entropy(out, y.slice(0, first, last));
//         });
#pragma once

#include <cstdint>
#include <functional>

#include "firn/dist/mesh.h"
#include "firn/nn/module.h"
#include "firn/ops/losses.h"
#include "firn/optim/optimizer.h"

namespace firn::dist {

/// Runs batches through the stages by the 1F1B schedule (Narayanan et al. 2019, PipeDream-Flush).
/// Each micro-batch is a micro-step: its activation goes to the next stage, and its gradient comes
/// back. Stage s of p computes p - 1 - s micro-batches ahead, then one forward and one
/// backward pass in turn. So it has at most p - s micro-batches in memory, however many a batch
/// has.
/// infer() runs samples through the stages without a backward pass.
///
/// A stage takes one floating tensor and returns one, of any shape; the first stage takes the
/// result of `inputs_of`. Stages do not share weights: tie only weights within one stage.
class Pipeline {
 public:
  /// `stage` must outlive the pipeline. With one stage in mesh.pp(), run_batch() is the optimizer's
  /// run_batch().
  Pipeline(const Mesh& mesh, nn::Module& stage);

  /// Returns the inputs of samples [first, last) of the batch; called on the first stage.
  using InputsOf = std::function<Tensor(std::int64_t first, std::int64_t last)>;
  /// Returns the loss of samples [first, last), from the last stage's output for them.
  using LossOf = std::function<Loss(const Tensor& output, std::int64_t first, std::int64_t last)>;

  /// Runs a whole cycle, as Optimizer::run_batch(): one step for a batch of `samples` samples of
  /// all copies of the model, in micro-batches of at most `micro_batch`. Each copy computes its
  /// share. Only the first stage calls inputs_of(), and only the last loss_of(); others may leave
  /// them out. Gradients, losses, weights and loss scales are those of the model on one rank, to
  /// rounding. The report and loss_totals() are the same on every stage.
  ///
  /// Throws Error unless distribute(optimizer, mesh) was called, in a dry run, if a function is
  /// missing, and on every stage if samples or micro_batch differ. Throws Error if a stage's output
  /// does not depend on its input, and as run_batch() of the optimizer does. Throws RankError if
  /// another stage fails. The cycle is then dropped.
  optim::StepReport run_batch(optim::Optimizer& optimizer, std::int64_t samples,
                              std::int64_t micro_batch, const InputsOf& inputs_of,
                              const LossOf& loss_of);
  /// Refuses, at compile time, a function that returns a tensor; the error says what to return.
  template <detail::GivesTensor<const Tensor&, std::int64_t, std::int64_t> Fn>
  optim::StepReport run_batch(optim::Optimizer&, std::int64_t, std::int64_t, const InputsOf&,
                              const Fn&) {
    detail::refuse_tensor_as_loss<Fn>();
  }

  /// Returns the model's output for `samples` samples, on every stage of every copy. It runs
  /// forward passes without gradients, in micro-batches of at most `micro_batch`, and joins their
  /// outputs along the first axis. Each copy computes all samples. Only the first stage calls
  /// inputs_of(); others may leave it out. Stages work on several micro-batches at once, so give at
  /// least as many as there are stages. The modules keep their mode: call eval() first.
  ///
  /// Throws Error if a function is missing, with several stages in a dry run, and if outputs cannot
  /// be joined. Throws Error on every stage if samples or micro_batch differ, or if some stages
  /// call run_batch(). Throws RankError if another stage fails.
  Tensor infer(std::int64_t samples, std::int64_t micro_batch, const InputsOf& inputs_of);

  /// The largest number of micro-batches in this stage's memory during the last run_batch().
  std::int64_t most_in_flight() const noexcept { return most_in_flight_; }

 private:
  class Batch;

  Mesh mesh_;
  nn::Module* stage_;
  std::int64_t most_in_flight_ = 0;
};

}  // namespace firn::dist
