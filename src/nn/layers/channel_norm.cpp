// GroupNorm, InstanceNorm, LocalResponseNorm.
#include "firn/nn/layers/channel_norm.h"

#include "base/checked.h"
#include "firn/ops/channel_norm.h"
#include "nn/layers/sizes.h"

namespace firn::nn {
namespace {

void check_channels(const char* layer, std::int64_t c, double eps, DType dtype) {
  FIRN_CHECK(c > 0, layer, "give the number of channels", "c = {} must be positive", c);
  check_eps(layer, eps);
  checked_elements(layer, {c});
  check_dtype(layer, dtype);
}

}  // namespace

FIRN_DEFINE_MEMBERS(GroupNorm, weight, bias)
FIRN_DEFINE_MEMBERS(InstanceNorm, weight, bias)
FIRN_DEFINE_MEMBERS(InstanceNorm1d, weight, bias)
FIRN_DEFINE_MEMBERS(InstanceNorm2d, weight, bias)
FIRN_DEFINE_MEMBERS(InstanceNorm3d, weight, bias)
FIRN_DEFINE_MEMBERS(LocalResponseNorm)

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t c, const GroupNormOptions& options)
    : groups_(groups), c_(c), eps_(options.eps) {
  check_channels("GroupNorm", c, options.eps, options.dtype);
  FIRN_CHECK(groups > 0 && c % groups == 0, "GroupNorm",
             "choose a divisor of the number of channels", "{} groups of {} channels", groups, c);
  if (!options.affine) return;
  weight = Parameter::full({c}, 1, options.dtype, options.device);
  bias = Parameter::full({c}, 0, options.dtype, options.device);
}

Tensor GroupNorm::forward(const Tensor& x) {
  FIRN_CHECK(x.defined() && x.rank() >= 2 && x.shape()[1] == c_, "GroupNorm",
             "axis 1 holds the channels", "input {} is not [n, c, ...] with c = {}", describe(x),
             c_);
  return group_norm(x, groups_, weight, bias, eps_);
}

std::string GroupNorm::extra_repr() const {
  return fmt::format("{}, {}, eps = {}{}", groups_, c_, eps_,
                     weight.defined() ? "" : ", affine = false");
}

InstanceNorm::InstanceNorm(const char* what, int rank, std::int64_t c,
                           const InstanceNormOptions& options)
    : what_(what), rank_(rank), c_(c), eps_(options.eps) {
  check_channels(what, c, options.eps, options.dtype);
  if (!options.affine) return;
  weight = Parameter::full({c}, 1, options.dtype, options.device);
  bias = Parameter::full({c}, 0, options.dtype, options.device);
}

Tensor InstanceNorm::forward(const Tensor& x) {
  FIRN_CHECK(x.defined() && x.rank() == rank_ && x.shape()[1] == c_, what_,
             "axis 1 holds the channels", "input {} is not {} with c = {}", describe(x),
             rank_ == 5   ? "[n, c, d, h, w]"
             : rank_ == 4 ? "[n, c, h, w]"
                          : "[n, c, l]",
             c_);
  return instance_norm(x, weight, bias, eps_);
}

std::string InstanceNorm::extra_repr() const {
  return fmt::format("{}, eps = {}{}", c_, eps_, weight.defined() ? ", affine = true" : "");
}

LocalResponseNorm::LocalResponseNorm(std::int64_t size, const LocalResponseNormOptions& options)
    : size_(size), options_(options) {
  FIRN_CHECK(size > 0, "LocalResponseNorm", "1 looks at the channel alone",
             "size = {} must be positive", size);
}
Tensor LocalResponseNorm::forward(const Tensor& x) {
  return local_response_norm(x, size_, options_.alpha, options_.beta, options_.k);
}
std::string LocalResponseNorm::extra_repr() const {
  return fmt::format("{}, alpha = {}, beta = {}, k = {}", size_, options_.alpha, options_.beta,
                     options_.k);
}

}  // namespace firn::nn
