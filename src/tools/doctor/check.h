// The self-test of firn-doctor --check: does this machine compute what it should, and how fast?
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/diagnose.h"

namespace doctor {

struct Checked {
  std::string device;  ///< "cpu", "cuda:0"
  std::string what;    ///< "product f32", "training step"
  double gflops = 0;   ///< of a large product; 0: not measured
  double error =
      0;  ///< the largest error, as a share of what rounding explains; at most 1 is right
  std::string failure;  ///< what the call threw; empty if nothing
  bool ok() const { return failure.empty() && error <= 1; }
};

/// On the device: products in f32, f16 and bf16 beside plain loops in double, with the speed of a
/// product that takes some hundredths of a second; and one step of SGD beside its formula. Takes
/// about two seconds. Throws nothing that a firn call throws: that is `failure`.
std::vector<Checked> check(firn::Device device);

/// A finding for each, in the section "Check".
std::vector<Finding> findings(const std::vector<Checked>& checks);

}  // namespace doctor
