// The fluent forms: members of Tensor that are the free functions of ops.h.
#include "firn/ops.h"

namespace firn {

Tensor Tensor::to(DType dtype) const { return cast(*this, dtype); }
Tensor Tensor::to(Device device) const { return to_device(*this, device); }
Tensor Tensor::clone() const { return firn::clone(*this); }
Tensor Tensor::contiguous() const { return firn::contiguous(*this); }
Tensor Tensor::channels_last() const { return firn::channels_last(*this); }
Tensor Tensor::reshape(const Shape& shape) const { return firn::reshape(*this, shape); }
Tensor Tensor::flatten(std::int64_t from, std::int64_t to) const {
  return firn::flatten(*this, from, to);
}
Tensor Tensor::permute(const Axes& order) const { return firn::permute(*this, order); }
Tensor Tensor::transpose(std::int64_t a, std::int64_t b) const {
  return firn::transpose(*this, a, b);
}
Tensor Tensor::unsqueeze(std::int64_t axis) const { return firn::unsqueeze(*this, axis); }
Tensor Tensor::squeeze(std::int64_t axis) const { return firn::squeeze(*this, axis); }
Tensor Tensor::expand(const Shape& shape) const { return firn::expand(*this, shape); }
Tensor Tensor::slice(std::int64_t axis, std::int64_t start, std::int64_t stop,
                     std::int64_t step) const {
  return firn::slice(*this, axis, start, stop, step);
}
Tensor Tensor::operator[](std::int64_t index) const { return select(*this, 0, index); }
Tensor Tensor::sum(const Axes& axes, bool keepdims) const {
  return firn::sum(*this, axes, keepdims);
}
Tensor Tensor::mean(const Axes& axes, bool keepdims) const {
  return firn::mean(*this, axes, keepdims);
}

}  // namespace firn
