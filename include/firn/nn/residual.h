// Residual connections (He, Zhang, Ren & Sun 2015): a body's result added to its input.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>

#include "firn/nn/batch_norm.h"
#include "firn/nn/module.h"
#include "firn/ops.h"

namespace firn::nn {

/// y = activation(body(x) + shortcut(x)); without a shortcut, x itself is added. Both summands must
/// have the same shape:
///
///   nn::Residual block{nn::Sequential{nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 8)}};
///
/// As with Sequential, a copy holds the same modules.
class Residual : public Module {
 public:
  template <std::derived_from<Module> Body>
  requires(!std::derived_from<Body, Residual>) explicit Residual(
      Body inner, Activation activation = Activation::relu)
      : body(std::make_shared<Body>(std::move(inner))), activation_(activation) {}
  template <std::derived_from<Module> Body, std::derived_from<Module> Shortcut>
  Residual(Body inner, Shortcut around, Activation activation = Activation::relu)
      : body(std::make_shared<Body>(std::move(inner))),
        shortcut(std::make_shared<Shortcut>(std::move(around))),
        activation_(activation) {}
  /// For modules that are known as their base, or used elsewhere too. Throws Error where `inner` is
  /// null; where `around` is, x itself is added.
  explicit Residual(std::shared_ptr<Module> inner, std::shared_ptr<Module> around = nullptr,
                    Activation activation = Activation::relu);

  /// Throws Error where the shapes of the summands differ.
  Tensor forward(const Tensor& x) override;
  std::string settings() const override;
  FIRN_MEMBERS(body, shortcut)

  std::shared_ptr<Module> body;
  std::shared_ptr<Module> shortcut;  ///< or null

 private:
  Activation activation_;
};

struct BasicBlockOptions {
  BatchNormOptions norm = {};  ///< of every normalisation; its dtype and device are not looked at
  DType dtype = f32;
  Device device = default_device();
};

/// The block of two 3x3 convolutions of ResNet-18 and -34: x [n, in, h, w] -> [n, out, ceil(h /
/// stride), ceil(w / stride)], conv, batch norm, relu, conv, batch norm, plus the input, relu. The
/// first convolution has the stride. Where the shape changes the input passes through a 1x1
/// convolution with that stride and a batch norm (option B of the paper). Convolutions have no
/// bias, and weights start normal with variance 2 / fan_out (He et al. 2015a).
class BasicBlock : public Residual {
 public:
  /// Throws Error unless in, out and stride are positive.
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride = 1,
             const BasicBlockOptions& options = {});
  std::string settings() const override;

 private:
  std::int64_t in_, out_, stride_;
};

}  // namespace firn::nn
