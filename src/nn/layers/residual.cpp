// Residual, BasicBlock.
#include "firn/nn/layers/residual.h"

#include "base/check.h"
#include "firn/nn/container.h"
#include "firn/nn/init.h"
#include "firn/nn/layers/activation.h"
#include "firn/nn/layers/conv.h"

namespace firn::nn {
namespace {

Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride,
                   const BasicBlockOptions& o) {
  Conv2d conv(
      in, out, size,
      {.stride = stride, .padding = size / 2, .bias = false, .dtype = o.dtype, .device = o.device});
  init::kaiming_normal_(conv.weight, {.fan = init::Fan::out});
  return conv;
}

BatchNorm2d norm(std::int64_t channels, const BasicBlockOptions& o) {
  BatchNormOptions options = o.norm;
  options.dtype = o.dtype;
  options.device = o.device;
  return BatchNorm2d(channels, options);
}

void check_sizes(std::int64_t in, std::int64_t out, std::int64_t stride) {
  FIRN_CHECK(in > 0 && out > 0 && stride > 0, "BasicBlock", "channels and the stride count from 1",
             "in = {}, out = {} and stride = {} must be positive", in, out, stride);
}

void check_body(const AnyModule& body) {
  FIRN_CHECK(body, "Residual", "give it a module: residual.body = nn::Linear(8, 8)",
             "the body is null");
}

AnyModule block_body(std::int64_t in, std::int64_t out, std::int64_t stride,
                     const BasicBlockOptions& o) {
  check_sizes(in, out, stride);
  return Sequential(convolution(in, out, 3, stride, o), norm(out, o), ReLU(),
                    convolution(out, out, 3, 1, o), norm(out, o));
}

AnyModule block_shortcut(std::int64_t in, std::int64_t out, std::int64_t stride,
                         const BasicBlockOptions& o) {
  check_sizes(in, out, stride);  // body or shortcut, whichever is made first
  if (in == out && stride == 1) return nullptr;
  return Sequential(convolution(in, out, 1, stride, o), norm(out, o));
}

}  // namespace

FIRN_DEFINE_MEMBERS(Residual, body, shortcut)
FIRN_DEFINE_MEMBERS(BasicBlock, body, shortcut)

Residual::Residual(AnyModule inner, AnyModule around, Activation activation)
    : body(std::move(inner)), shortcut(std::move(around)), activation_(activation) {
  require_named("Residual", "Activation", activation, Activation::gelu_tanh);
  check_body(body);
}

Tensor Residual::forward(const Tensor& x) {
  check_body(body);  // a member that the user may have replaced
  const Tensor y = (*body)(x);
  const Tensor through = shortcut ? (*shortcut)(x) : x;
  // Addition would broadcast shapes that differ.
  FIRN_CHECK(y.shape() == through.shape(), "Residual",
             "give a shortcut that changes the shape as the body does",
             "the body makes {} of {}, and {} is {}", describe(y), describe(x),
             shortcut ? "the shortcut's result" : "what is added", describe(through));
  const Tensor sum = y + through;
  switch (activation_) {
    case Activation::relu:
      return relu(sum);
    case Activation::gelu_tanh:
      return gelu_tanh(sum);
    default:
      return sum;
  }
}

std::string Residual::extra_repr() const {
  return fmt::format("activation = {}", to_string(activation_));
}

BasicBlock::BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride,
                       const BasicBlockOptions& options)
    : Residual(block_body(in, out, stride, options), block_shortcut(in, out, stride, options)),
      in_(in),
      out_(out),
      stride_(stride) {}

std::string BasicBlock::extra_repr() const { return fmt::format("{}, {}, {}", in_, out_, stride_); }

}  // namespace firn::nn
