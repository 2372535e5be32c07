// Cycles of an optimizer whose parameters are a stage of a model: gradients come in from the next
// stage, together with the loss that they are of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "firn/optim/optimizer.h"

namespace firn::optim {

/// A copy's samples [first, last) of a batch, in micro-batches of at most `size`.
struct StageCycle {
  std::int64_t first = 0, last = 0, size = 1;

  std::int64_t micro_batches() const noexcept { return 1 + (last - first - 1) / size; }
  std::int64_t begin(std::int64_t i) const noexcept { return first + i * size; }
  std::int64_t end(std::int64_t i) const noexcept { return std::min(begin(i) + size, last); }
};

/// Optimizer::run_batch() where micro_step(cycle, i) runs the backward pass of micro-batch i, and
/// what goes before it. It begins with i = 0 each time that the cycle is tried.
StepReport run_stage(
    Optimizer& optimizer, std::int64_t samples, std::int64_t micro_batch,
    const std::function<void(const StageCycle& cycle, std::int64_t i)>& micro_step);

/// The micro-step of a stage that is not the last: `gradient` is that of `output`, scaled as the
/// last stage has scaled it, whose loss had this sum and weight. Throws as Optimizer::backward().
void backward_stage(Optimizer& optimizer, const Tensor& output, const Tensor& gradient, double loss,
                    double weight);

}  // namespace firn::optim
