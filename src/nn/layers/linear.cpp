// Linear, Flatten, Identity.
#include "firn/nn/layers/linear.h"

#include <cmath>

#include "base/checked.h"
#include "firn/nn/init.h"
#include "firn/ops/ops.h"

namespace firn::nn {

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options) {
  FIRN_CHECK(in > 0 && out > 0, "Linear", "give the sizes of the last axis before and after",
             "in = {} and out = {} must be positive", in, out);
  checked_elements("Linear", {out, in});
  // The starting range of PyTorch's layer, so that runs can be compared.
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  weight = Parameter::empty({out, in}, options.dtype, options.device);
  init::uniform_(weight, -bound, bound);
  if (options.bias) {
    bias = Parameter::empty({out}, options.dtype, options.device);
    init::uniform_(bias, -bound, bound);
  }
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

Tensor Flatten::forward(const Tensor& x) { return flatten(x, from_, to_); }
std::string Flatten::extra_repr() const { return fmt::format("{}, {}", from_, to_); }

Tensor Identity::forward(const Tensor& x) { return x; }

}  // namespace firn::nn
