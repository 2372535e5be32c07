// The parts of the report: each adds its steps to the list, in the order in which they print.
#pragma once

#include <vector>

#include "bench/gpu/probe/steps.h"

namespace probe {

/// GPU, driver, runtime, cuBLASLt, cuDNN: versions and which files are loaded.
void add_machine(std::vector<Step>& steps);
/// For each dtype and epilogue a line, for each shape of a layer a column: how many algorithms the
/// library offers, which one it puts first, how many nodes a captured product takes, or the error.
void add_products(std::vector<Step>& steps);
/// What epilogues compute: ReLU and its mask at 0, -0, NaN and infinities; GELU and its derivative
/// against f64.
void add_epilogues(std::vector<Step>& steps);
/// What happens to a product that is captured before anything of it has run.
void add_captures(std::vector<Step>& steps);

}  // namespace probe
