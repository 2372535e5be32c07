// Residual connections (He, Zhang, Ren & Sun 2015): a body's result added to its input.
#pragma once

#include <cstdint>
#include <utility>

#include "firn/nn/any_module.h"
#include "firn/nn/layers/batch_norm.h"
#include "firn/nn/module.h"
#include "firn/ops/ops.h"

namespace firn::nn {

/// y = activation(body(x) + shortcut(x)); without a shortcut, x itself is added. Both summands must
/// have the same shape:
///
///   nn::Residual block{nn::Sequential{nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 8)}};
///
/// Body and shortcut are held by value, as with Sequential.
class Residual : public Module {
 public:
  /// Takes modules of any type, or a std::shared_ptr to a shared one. Without `around`, x itself is
  /// added. Throws Error if there is no body.
  explicit Residual(AnyModule inner, AnyModule around = {},
                    Activation activation = Activation::relu);
  Residual(AnyModule inner, Activation activation)
      : Residual(std::move(inner), AnyModule(), activation) {}

  /// Throws Error if the shapes of the summands differ.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  AnyModule body;      ///< the sum's first term
  AnyModule shortcut;  ///< the second term; null: x itself

 private:
  Activation activation_;
};

struct BasicBlockOptions {
  BatchNormOptions norm =
      {};  ///< options of every normalisation; dtype and device below replace its own
  DType dtype = f32;
  Device device = default_device();
};

/// The block of two 3x3 convolutions of ResNet-18 and -34: x [n, in, h, w] -> [n, out, ceil(h /
/// stride), ceil(w / stride)], conv, batch norm, relu, conv, batch norm, plus the input, relu. The
/// first convolution has the stride. If the shape changes, the input passes through a 1x1
/// convolution with that stride and a batch norm (option B of the paper). Convolutions have no
/// bias, and weights start normal with variance 2 / fan_out (He et al. 2015a).
class BasicBlock : public Residual {
 public:
  /// Throws Error unless in, out and stride are positive.
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride = 1,
             const BasicBlockOptions& options = {});
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

 private:
  std::int64_t in_, out_, stride_;
};

}  // namespace firn::nn
