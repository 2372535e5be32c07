// Convolution layers. The ops in firn/ops/conv.h document the options.
#pragma once

#include <cstdint>

#include "firn/nn/module.h"
#include "firn/ops/conv.h"

namespace firn::nn {

struct Conv1dOptions {
  std::int64_t stride = 1;    ///< step of the kernel along the input
  ConvPadding padding = 0;    ///< kSamePadding keeps the length
  std::int64_t dilation = 1;  ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
  bool bias = true;                          ///< adds a number to each output channel
  Activation activation = Activation::none;  ///< applied to the result
  DType dtype = f32;
  Device device = default_device();
};

/// conv1d: x [n, in, l] or [in, l] -> [n, out, q]. weight [out, in/groups, kernel] and bias [out]
/// start uniform in (-b, b) with b = 1/sqrt(in/groups * kernel), as in PyTorch, from the default
/// generator.
class Conv1d : public Module {
 public:
  /// Throws Error unless sizes are positive, groups divides in and out, and the options are valid
  /// for conv1d().
  Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, const Conv1dOptions& options = {});

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [out, in/groups, kernel], channels-last in memory
  Parameter bias;    ///< [out], or undefined

 private:
  firn::Conv1dOptions options_;
};

struct Conv2dOptions {
  Size2 stride = 1;         ///< step of the kernel along height and width
  ConvPadding padding = 0;  ///< kSamePadding keeps height and width
  Size2 dilation = 1;       ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
  bool bias = true;                          ///< adds a number to each output channel
  Activation activation = Activation::none;  ///< applied to the result; relu is fused
  DType dtype = f32;
  Device device = default_device();
};

/// conv2d: x [n, in, h, w] or [in, h, w] -> [n, out, p, q], channels-last. Parameters start as
/// those of Conv1d.
///
///   nn::Conv2d conv(3, 64, 3, {.stride = 2, .padding = 1, .activation = Activation::relu});
class Conv2d : public Module {
 public:
  /// Throws Error as Conv1d.
  Conv2d(std::int64_t in, std::int64_t out, Size2 kernel, const Conv2dOptions& options = {});

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [out, in/groups, r, s], channels-last in memory
  Parameter bias;    ///< [out], or undefined

 private:
  firn::Conv2dOptions options_;
};

struct Conv3dOptions {
  Size3 stride = 1;          ///< step of the kernel along depth, height and width
  ConvPadding3 padding = 0;  ///< kSamePadding keeps the sizes
  Size3 dilation = 1;        ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
  bool bias = true;                          ///< adds a number to each output channel
  Activation activation = Activation::none;  ///< applied to the result; relu is fused
  DType dtype = f32;
  Device device = default_device();
};

/// conv3d: x [n, in, d, h, w] or [in, d, h, w] -> [n, out, o, p, q], channels-last. Parameters
/// start as those of Conv1d.
class Conv3d : public Module {
 public:
  /// Throws Error as Conv1d.
  Conv3d(std::int64_t in, std::int64_t out, Size3 kernel, const Conv3dOptions& options = {});

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [out, in/groups, t, r, s], channels-last in memory
  Parameter bias;    ///< [out], or undefined

 private:
  firn::Conv3dOptions options_;
};

struct ConvTranspose2dOptions {
  Size2 stride = 1;   ///< step of the kernel along the result
  Size2 padding = 0;  ///< removed from each side of the result
  Size2 output_padding =
      0;               ///< extra rows and columns below and to the right, < stride or dilation
  Size2 dilation = 1;  ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
  bool bias = true;  ///< adds a number to each output channel
  DType dtype = f32;
  Device device = default_device();
};

/// conv_transpose2d: x [n, in, p, q] or [in, p, q] -> [n, out, h, w], channels-last. weight
/// [in, out/groups, r, s] and bias [out] start uniform in (-b, b) with b = 1/sqrt(out/groups r s),
/// as in PyTorch.
class ConvTranspose2d : public Module {
 public:
  /// Throws Error as Conv1d.
  ConvTranspose2d(std::int64_t in, std::int64_t out, Size2 kernel,
                  const ConvTranspose2dOptions& options = {});

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [in, out/groups, r, s], channels-last in memory
  Parameter bias;    ///< [out], or undefined

 private:
  firn::ConvTranspose2dOptions options_;
};

struct ConvTranspose1dOptions {
  std::int64_t stride = 1;          ///< step of the kernel along the result
  std::int64_t padding = 0;         ///< removed from both ends of the result
  std::int64_t output_padding = 0;  ///< extra positions at the end, < stride or dilation
  std::int64_t dilation = 1;        ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
  bool bias = true;  ///< adds a number to each output channel
  DType dtype = f32;
  Device device = default_device();
};

/// conv_transpose1d: x [n, in, q] or [in, q] -> [n, out, l]. Parameters start as those of
/// ConvTranspose2d.
class ConvTranspose1d : public Module {
 public:
  /// Throws Error as Conv1d.
  ConvTranspose1d(std::int64_t in, std::int64_t out, std::int64_t kernel,
                  const ConvTranspose1dOptions& options = {});

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [in, out/groups, kernel], channels-last in memory
  Parameter bias;    ///< [out], or undefined

 private:
  firn::ConvTranspose1dOptions options_;
};

struct ConvTranspose3dOptions {
  Size3 stride = 1;          ///< step of the kernel along the result
  Size3 padding = 0;         ///< removed from each side of the result
  Size3 output_padding = 0;  ///< extra positions at the end of each axis, < stride or dilation
  Size3 dilation = 1;        ///< distance between the kernel's taps
  /// Groups of channels, convolved apart; divides both numbers of channels.
  std::int64_t groups = 1;
  bool bias = true;  ///< adds a number to each output channel
  DType dtype = f32;
  Device device = default_device();
};

/// conv_transpose3d: x [n, in, o, p, q] or [in, o, p, q] -> [n, out, d, h, w], channels-last.
/// Parameters start as those of ConvTranspose2d.
class ConvTranspose3d : public Module {
 public:
  /// Throws Error as Conv1d.
  ConvTranspose3d(std::int64_t in, std::int64_t out, Size3 kernel,
                  const ConvTranspose3dOptions& options = {});

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  FIRN_DECLARE_MEMBERS()

  Parameter weight;  ///< [in, out/groups, t, r, s], channels-last in memory
  Parameter bias;    ///< [out], or undefined

 private:
  firn::ConvTranspose3dOptions options_;
};

}  // namespace firn::nn
