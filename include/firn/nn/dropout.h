// Dropout (Srivastava et al. 2014).
#pragma once

#include <cstdint>
#include <optional>

#include "firn/nn/module.h"
#include "firn/random.h"

namespace firn::nn {

struct DropoutOptions {
  /// The layer draws from a stream of its own, which begins at this seed. A copy of the layer goes
  /// on from there by itself. Without: the layer draws from the thread's default_generator().
  std::optional<std::uint64_t> seed = {};
};

/// In training mode each element is zero with probability p, else x/(1-p); in evaluation mode the
/// input itself.
class Dropout : public Module {
 public:
  /// Throws Error unless 0 <= p < 1.
  explicit Dropout(double p = 0.5, const DropoutOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_MEMBERS()

 private:
  double p_;
  std::optional<Generator> own_;
};

/// In training mode each channel of each sample, x [n, c, ...], is zero with probability p, else
/// x/(1-p) (Tompson et al. 2015). Neighbouring pixels are so alike that dropping single ones hides
/// nothing. In evaluation mode the input itself.
class Dropout2d : public Module {
 public:
  /// Throws Error unless 0 <= p < 1.
  explicit Dropout2d(double p = 0.5, const DropoutOptions& options = {});
  /// Throws Error unless x has three axes or more.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_MEMBERS()

 private:
  double p_;
  std::optional<Generator> own_;
};

}  // namespace firn::nn
