// Linear, Bilinear, Flatten, Identity.
#include "firn/nn/layers/linear.h"

#include <cmath>

#include "base/checked.h"
#include "firn/nn/init.h"
#include "firn/ops/ops.h"
#include "firn/ops/products.h"
#include "nn/layers/sizes.h"

namespace firn::nn {

namespace {

/// Makes weight [out, in, ...] and bias [out], uniform in the range of PyTorch's layers, so that
/// runs can be compared.
void start(const char* op, Parameter& weight, Parameter& bias, const Shape& shape,
           const LinearOptions& options) {
  checked_elements(op, shape);
  check_dtype(op, options.dtype);
  const double bound = 1 / std::sqrt(static_cast<double>(shape[1]));
  weight = Parameter::empty(shape, options.dtype, options.device);
  init::uniform_(weight, -bound, bound);
  if (options.bias) {
    bias = Parameter::empty({shape[0]}, options.dtype, options.device);
    init::uniform_(bias, -bound, bound);
  }
}

}  // namespace

FIRN_DEFINE_MEMBERS(Linear, weight, bias)
FIRN_DEFINE_MEMBERS(Bilinear, weight, bias)
FIRN_DEFINE_MEMBERS(Flatten)
FIRN_DEFINE_MEMBERS(Identity)

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options) {
  FIRN_CHECK(in > 0 && out > 0, "Linear", "give the sizes of the last axis before and after",
             "in = {} and out = {} must be positive", in, out);
  start("Linear", weight, bias, {out, in}, options);
}

Tensor Linear::forward(const Tensor& x) {
  const std::int64_t in = weight.size(1);
  FIRN_CHECK(x.defined() && x.rank() > 0 && x.shape().back() == in, "linear",
             "flatten or permute the input so that its last axis has the layer's inputs",
             "input {} does not end with an axis of {}, which nn::Linear({}, {}) needs",
             describe(x), in, in, weight.size(0));
  return linear(x, weight, bias);
}

std::string Linear::extra_repr() const {
  return fmt::format("{}, {}{}", weight.size(1), weight.size(0),
                     bias.defined() ? "" : ", bias = false");
}

Bilinear::Bilinear(std::int64_t in1, std::int64_t in2, std::int64_t out,
                   const LinearOptions& options) {
  FIRN_CHECK(in1 > 0 && in2 > 0 && out > 0, "Bilinear",
             "give the sizes of both last axes before, and of the one after",
             "in1 = {}, in2 = {} and out = {} must be positive", in1, in2, out);
  start("Bilinear", weight, bias, {out, in1, in2}, options);
}

Tensor Bilinear::forward(const Tensor& x1, const Tensor& x2) {
  return bilinear(x1, x2, weight, bias);
}

std::string Bilinear::extra_repr() const {
  return fmt::format("{}, {}, {}{}", weight.size(1), weight.size(2), weight.size(0),
                     bias.defined() ? "" : ", bias = false");
}

Tensor Flatten::forward(const Tensor& x) { return flatten(x, from_, to_); }
std::string Flatten::extra_repr() const { return fmt::format("{}, {}", from_, to_); }

Tensor Identity::forward(const Tensor& x) { return x; }

}  // namespace firn::nn
