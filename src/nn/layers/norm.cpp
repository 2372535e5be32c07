// LayerNorm, RMSNorm.
#include "firn/nn/layers/norm.h"

#include "base/checked.h"
#include "firn/ops/ops.h"
#include "nn/layers/sizes.h"

namespace firn::nn {
namespace {

void check_last_axis(const char* layer, std::int64_t n, double eps, DType dtype) {
  FIRN_CHECK(n > 0, layer, "give the size of the last axis", "n = {} must be positive", n);
  check_eps(layer, eps);
  checked_elements(layer, {n});
  check_dtype(layer, dtype);
}

void check_input(const char* op, const char* layer, const Tensor& x, std::int64_t n) {
  FIRN_CHECK(x.defined() && x.rank() > 0 && x.shape().back() == n, op,
             "permute the input so that the axis to normalise is the last",
             "input {} does not end with an axis of {}, which {}({}) needs", describe(x), n, layer,
             n);
}

}  // namespace

FIRN_DEFINE_MEMBERS(LayerNorm, weight, bias)
FIRN_DEFINE_MEMBERS(RMSNorm, weight)

LayerNorm::LayerNorm(std::int64_t n, const LayerNormOptions& options) : n_(n), eps_(options.eps) {
  check_last_axis("LayerNorm", n, options.eps, options.dtype);
  if (options.affine) weight = Parameter::full({n}, 1, options.dtype, options.device);
  if (options.affine && options.bias) bias = Parameter::full({n}, 0, options.dtype, options.device);
}

Tensor LayerNorm::forward(const Tensor& x) {
  check_input("layer_norm", "nn::LayerNorm", x, n_);
  return layer_norm(x, weight, bias, eps_);
}

std::string LayerNorm::extra_repr() const {
  const char* left_out = !weight.defined() ? ", affine = false"
                         : !bias.defined() ? ", bias = false"
                                           : "";
  return fmt::format("{}, eps = {}{}", n_, eps_, left_out);
}

RMSNorm::RMSNorm(std::int64_t n, const RMSNormOptions& options) : n_(n), eps_(options.eps) {
  check_last_axis("RMSNorm", n, options.eps, options.dtype);
  if (options.affine) weight = Parameter::full({n}, 1, options.dtype, options.device);
}

Tensor RMSNorm::forward(const Tensor& x) {
  check_input("rms_norm", "nn::RMSNorm", x, n_);
  return rms_norm(x, weight, eps_);
}

std::string RMSNorm::extra_repr() const {
  return fmt::format("{}, eps = {}{}", n_, eps_, weight.defined() ? "" : ", affine = false");
}

}  // namespace firn::nn
