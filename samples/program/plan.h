// Plans the memory of a training, and cuts its batches to fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program/training.h"

namespace sample {

/// A micro-batch size that does not change the samples per step, and a --recompute.
struct Cut {
  std::int64_t micro_batch = 0;
  std::int64_t parts = 1;  ///< parts of a micro-batch of the options
  std::string recompute;
  std::size_t training = 0;  ///< bytes in use at the peak of a step
  std::size_t testing = 0;   ///< bytes in use at the peak of a batch of the test set

  std::size_t peak() const { return training > testing ? training : testing; }
};

/// Plans every size that divides the micro-batch of the options, the largest first. With
/// --recompute auto, it plans each size with more and more recomputation. With `budget`, it stops
/// at the first plan within it. The model keeps the checkpoints of the last plan.
/// optim::plan_within() finds one size too, but it has no other divisors for the table, and does
/// not plan the test.
std::vector<Cut> plan_cuts(const Options& options, Training& training, const About& about,
                           firn::Device device, std::size_t budget = 0);

/// Prints the table of --plan.
void print_cuts(const Options& options, const std::vector<Cut>& cuts);

/// Returns the options with micro-batches that fit into --memory, which limits the device from then
/// on. Throws Error if micro-batches of one sample do not fit.
Options fitted(const Options& options, Training& training, const About& about, firn::Device device);

}  // namespace sample
