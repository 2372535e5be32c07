// The ways to compute a dense layer on a CUDA device, for tests of the products.
#pragma once

#include <vector>

#include "firn/firn.h"
#include "kernels/settings/settings.h"

namespace firn::testing {

/// While alive, dense layers on CUDA devices are computed this way.
class Twin {
 public:
  explicit Twin(kernels::Epilogues way) : before_(kernels::epilogues().exchange(way)) {}
  ~Twin() { kernels::epilogues() = before_; }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

 private:
  kernels::Epilogues before_;
};

/// Those of the device that tests run on.
inline std::vector<kernels::Epilogues> twins() {
  if (default_device().is_cpu()) return {kernels::Epilogues::automatic};
  return {kernels::Epilogues::fused, kernels::Epilogues::unfused, kernels::Epilogues::automatic};
}

}  // namespace firn::testing
