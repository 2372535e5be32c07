// Dropout (Srivastava et al. 2014).
#pragma once

#include <cstdint>
#include <optional>

#include "firn/nn/module.h"
#include "firn/random.h"

namespace firn::nn {

struct DropoutOptions {
  /// If set, the layer draws from a stream of its own, which begins at this seed; a copy of the
  /// layer continues that stream independently. If unset, the layer draws from the thread's
  /// default_generator().
  std::optional<std::uint64_t> seed = {};
};

/// In training mode each element becomes zero with probability p, else x/(1-p). In evaluation mode
/// the result is the input itself.
class Dropout : public Module {
 public:
  /// Throws Error unless 0 <= p < 1.
  explicit Dropout(double p = 0.5, const DropoutOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  double p_;
  std::optional<Generator> stream;  ///< the layer's own stream, under this name in a saved run
};

/// In training mode each channel of each sample of x [n, c, ...] becomes zero with probability p,
/// else x/(1-p) (Tompson et al. 2015). Neighbouring pixels are so similar that dropping single ones
/// hides little. In evaluation mode the result is the input itself.
class Dropout2d : public Module {
 public:
  /// Throws Error unless 0 <= p < 1.
  explicit Dropout2d(double p = 0.5, const DropoutOptions& options = {});
  /// Throws Error unless x has three axes or more.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  double p_;
  std::optional<Generator> stream;  ///< the layer's own stream, under this name in a saved run
};

}  // namespace firn::nn
