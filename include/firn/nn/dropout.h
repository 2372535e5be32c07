// Dropout (Srivastava et al. 2014).
#pragma once

#include "firn/nn/module.h"

namespace firn::nn {

/// In training mode each element is zero with probability p, else x/(1-p); in evaluation mode the
/// input itself. Draws from the default generator.
class Dropout : public Module {
 public:
  /// Throws Error unless 0 <= p < 1.
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_MEMBERS()

 private:
  double p_;
};

/// In training mode each channel of each sample, x [n, c, ...], is zero with probability p, else
/// x/(1-p) (Tompson et al. 2015). Neighbouring pixels are so alike that dropping single ones hides
/// nothing. In evaluation mode the input itself. Draws from the default generator.
class Dropout2d : public Module {
 public:
  /// Throws Error unless 0 <= p < 1.
  explicit Dropout2d(double p = 0.5);
  /// Throws Error unless x has three axes or more.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_MEMBERS()

 private:
  double p_;
};

}  // namespace firn::nn
