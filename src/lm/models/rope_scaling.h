// Frequencies of scaled rotary positions.
#pragma once

#include <vector>

#include "firn/lm/config.h"

namespace firn::lm {

/// Returns the angle of each pair from one position to the next; nothing for the type "default",
/// whose angles are those of rope().
std::vector<double> rope_frequencies(const LlamaConfig& config);

/// Returns the number that queries and keys are multiplied by: 1 but for yarn.
double rope_attention_factor(const RopeParameters& rope);

}  // namespace firn::lm
