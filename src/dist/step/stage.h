// Cycles of an optimizer whose parameters are a stage of a model. Gradients arrive from the next
// stage, together with the sum and the weight of the loss.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "firn/optim/optimizer.h"

namespace firn::optim {

/// The samples [first, last) of a batch that one copy of the model computes, in micro-batches of at
/// most `size`.
struct StageCycle {
  std::int64_t first = 0, last = 0, size = 1;

  std::int64_t micro_batches() const noexcept { return 1 + (last - first - 1) / size; }
  std::int64_t begin(std::int64_t i) const noexcept { return first + i * size; }
  std::int64_t end(std::int64_t i) const noexcept { return std::min(begin(i) + size, last); }
};

/// Makes a cycle as Optimizer::run_batch() does. micro_step(cycle, i) runs the backward pass of
/// micro-batch i and all that comes before it. Each try of the cycle begins with i = 0.
StepReport run_stage(
    Optimizer& optimizer, std::int64_t samples, std::int64_t micro_batch,
    const std::function<void(const StageCycle& cycle, std::int64_t i)>& micro_step);

/// Makes a micro-step of a stage that is not the last. `gradient` is the gradient of `output`, with
/// the last stage's scale. `loss` and `weight` are the sum and the weight of its loss. Throws what
/// Optimizer::backward() throws.
void backward_stage(Optimizer& optimizer, const Tensor& output, const Tensor& gradient, double loss,
                    double weight);

}  // namespace firn::optim
