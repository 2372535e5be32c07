// What a figure of merit has to offer: train::fit() (train/fit.h) computes those it is given.
#pragma once

#include <string>
#include <vector>

#include "firn/tensor.h"

namespace firn::dist {
class Group;
}

namespace firn::metrics {

/// A figure by name: {"accuracy", 0.913}.
struct Value {
  std::string name;
  double value;
};

/// A figure of merit, collected batch by batch.
class Metric {
 public:
  virtual ~Metric() = default;
  /// Adds the samples of a batch: what the model returned, and what it should have returned.
  virtual void update(const Tensor& output, const Tensor& target) = 0;
  /// The figures of all samples since reset(). Waits for the device.
  virtual std::vector<Value> values() const = 0;
  /// Forgets all samples.
  virtual void reset() = 0;
  /// Adds what all ranks have collected. A call of all ranks; all have the same values after it.
  virtual void combine(const dist::Group& group) = 0;
};

}  // namespace firn::metrics
