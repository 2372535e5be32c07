// The parts of the report: each adds its steps to the list, in the order of printing.
#pragma once

#include <vector>

#include "bench/gpu/probe/steps.h"

namespace probe {

/// Adds versions of GPU, driver, runtime, cuBLASLt, cuDNN, and the files that are loaded.
void add_machine(std::vector<Step>& steps);
/// Adds a line for each dtype and epilogue, with a column for each shape of a layer. It shows how
/// many algorithms the library offers, which one it puts first, how many nodes a captured product
/// takes, or the error.
void add_products(std::vector<Step>& steps);
/// Adds the values of epilogues: ReLU and its mask at 0, -0, NaN and infinities; GELU and its
/// derivative compared with f64.
void add_epilogues(std::vector<Step>& steps);
/// Adds products that are captured before anything of them has run.
void add_captures(std::vector<Step>& steps);

}  // namespace probe
