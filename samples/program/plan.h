// What a training costs in memory, and how its batches are cut to fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program/training.h"

namespace sample {

/// A micro-batch size that leaves the samples per step as they are, and a --recompute.
struct Cut {
  std::int64_t micro_batch = 0;
  std::int64_t parts = 1;  ///< of a micro-batch of the options
  std::string recompute;
  std::size_t training = 0;  ///< bytes in use at the peak of a step
  std::size_t testing = 0;   ///< bytes in use at the peak of a batch of the test set

  std::size_t peak() const { return training > testing ? training : testing; }
};

/// Plans every size that divides the micro-batch of the options, the largest first; with
/// --recompute auto, each with more and more that is computed again. With `budget`, only down to
/// the first that stays within it. The model has the checkpoints of the last one afterwards.
/// optim::plan_within() finds one size too, but no other divisors for the table, and knows no test.
std::vector<Cut> plan_cuts(const Options& options, Training& training, const About& about,
                           firn::Device device, std::size_t budget = 0);

/// The table of --plan.
void print_cuts(const Options& options, const std::vector<Cut>& cuts);

/// The options, with micro-batches that fit into --memory, which limits the device from then on.
/// Throws Error if those of one sample do not fit.
Options fitted(const Options& options, Training& training, const About& about, firn::Device device);

}  // namespace sample
