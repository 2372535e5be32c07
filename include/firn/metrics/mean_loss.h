// The mean of a loss over many batches.
#pragma once

#include "firn/dist/group.h"
#include "firn/tensor.h"

namespace firn {
struct Loss;
}

namespace firn::metrics {

/// Adds up losses and their weights, so that the mean is over all samples, independent of their
/// division into batches (S27 in docs/semantics.md). Sums are in f64 and stay on the device until
/// they are read.
class MeanLoss {
 public:
  /// Adds the loss of a batch. Records no gradient, and does not wait for the device.
  void add(const Loss& loss);
  /// Returns the sum of the losses divided by the sum of their weights; NaN if that is 0. With a
  /// group, sums over all ranks, which must all call it. Waits for the device.
  double value(const dist::Group& group = {}) const;

 private:
  Tensor sum_, weight_;
};

}  // namespace firn::metrics
