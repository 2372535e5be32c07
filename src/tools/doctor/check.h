// The self-test of firn-doctor --check: tests whether this machine computes correctly, and how
// fast.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/diagnose.h"

namespace doctor {

struct Checked {
  std::string device;  ///< "cpu", "cuda:0"
  std::string what;    ///< "product f32", "training step"
  double gflops = 0;   ///< rate of a large product; 0: not measured
  double error =
      0;  ///< largest error, as a share of the bound from rounding; at most 1 is acceptable
  std::string failure;  ///< error that the call threw; empty if it succeeded
  bool ok() const { return failure.empty() && error <= 1; }
};

/// Tests the device. It compares products in f32, f16 and bf16 with plain loops in double. It
/// measures the speed of a product that takes some hundredths of a second. It compares one step of
/// SGD with its formula. Takes about two seconds. Errors of firn's calls are stored in `failure`,
/// not thrown.
std::vector<Checked> check(firn::Device device);

/// Returns a finding for each check, in the section "Check".
std::vector<Finding> findings(const std::vector<Checked>& checks);

}  // namespace doctor
