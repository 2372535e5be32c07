// The affine layer, and the layers that only change shapes.
#pragma once

#include <cstdint>

#include "firn/nn/module.h"
#include "firn/nn/module_of.h"

namespace firn::nn {

struct LinearOptions {
  bool bias = true;  ///< adds b [out] to the product
  DType dtype = f32;
  Device device = default_device();
};

/// y = x weightᵀ + bias: x [..., in] -> y [..., out].
/// weight [out, in] and bias [out] start uniform in (-1/sqrt(in), 1/sqrt(in)), from the default
/// generator.
class Linear : public Module {
 public:
  /// Throws Error unless in > 0 and out > 0.
  Linear(std::int64_t in, std::int64_t out, const LinearOptions& options = {});

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [out, in]
  Parameter bias;    ///< [out], or undefined
};

/// bilinear(): x1 [..., in1] and x2 [..., in2] give y [..., out], y[o] = x1ᵀ weight[o] x2 +
/// bias[o]. weight [out, in1, in2] and bias [out] start uniform in (-1/sqrt(in1), 1/sqrt(in1)),
/// from the default generator.
class Bilinear : public ModuleOf<Bilinear> {
 public:
  /// Throws Error unless in1 > 0, in2 > 0 and out > 0.
  Bilinear(std::int64_t in1, std::int64_t in2, std::int64_t out, const LinearOptions& options = {});

  /// Throws Error unless the last axes are in1 and in2, and the others equal.
  Tensor forward(const Tensor& x1, const Tensor& x2);
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [out, in1, in2]
  Parameter bias;    ///< [out], or undefined
};

/// Merges axes `from` to `to` into one: by default x [batch, ...] -> [batch, product of the rest].
class Flatten : public Module {
 public:
  explicit Flatten(std::int64_t from = 1, std::int64_t to = -1) : from_(from), to_(to) {}

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t from_, to_;
};

/// Returns its input: a placeholder for an optional layer.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  FIRN_DECLARE_MEMBERS()
};

}  // namespace firn::nn
