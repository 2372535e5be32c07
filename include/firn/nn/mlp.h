// A chain of affine layers as one module.
#pragma once

#include <cstdint>
#include <vector>

#include "firn/nn/linear.h"
#include "firn/ops.h"

namespace firn::nn {

struct MLPOptions {
  Activation activation = Activation::relu;  ///< after every layer but the last
  bool bias = true;
  DType dtype = f32;
  Device device = default_device();
};

/// Linear layers with an activation between them, run as one op (mlp() in ops.h): x [..., sizes[0]]
/// -> [..., sizes.back()]. The same numbers, names ("layers.0.weight", ...) and starting values as
/// of Linear layers and activations in a Sequential, with fewer launches on a GPU.
///
///   nn::MLP net({784, 512, 512, 10});
class MLP : public Module {
 public:
  /// Throws Error unless there are two or more sizes, all positive.
  explicit MLP(const std::vector<std::int64_t>& sizes, const MLPOptions& options = {});

  Tensor forward(const Tensor& x) override;
  std::string settings() const override;
  FIRN_MEMBERS(layers)

  std::vector<Linear> layers;

 private:
  Activation activation_;
};

}  // namespace firn::nn
