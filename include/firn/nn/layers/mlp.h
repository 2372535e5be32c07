// A chain of affine layers as one module.
#pragma once

#include <cstdint>
#include <vector>

#include "firn/nn/layers/linear.h"
#include "firn/ops/ops.h"

namespace firn::nn {

struct MLPOptions {
  Activation activation = Activation::relu;  ///< follows every layer but the last
  bool bias = true;                          ///< every layer has a bias
  DType dtype = f32;
  Device device = default_device();
};

/// Linear layers with an activation between them, run as one op (mlp() in products.h): x [...,
/// sizes[0]]
/// -> [..., sizes.back()]. Computes the same numbers from the same starting values as Linear layers
/// and activations in a Sequential, with fewer launches on a GPU. Parameters are named
/// "layers.0.weight", ...
///
///   nn::MLP net({784, 512, 512, 10});
class MLP : public Module {
 public:
  /// Throws Error unless there are two or more sizes, all positive.
  explicit MLP(const std::vector<std::int64_t>& sizes, const MLPOptions& options = {});

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  std::vector<Linear> layers;  ///< in the order of the call

 private:
  Activation activation_;
};

}  // namespace firn::nn
