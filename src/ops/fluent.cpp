// The fluent forms: members of Tensor that call the free functions of ops.h and others.
#include "firn/ops/elementwise.h"
#include "firn/ops/ops.h"
#include "firn/ops/rearrange.h"
#include "firn/ops/reduce.h"

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
Tensor Tensor::operator[](std::int64_t index) const { return firn::select(*this, 0, index); }
Tensor Tensor::select(std::int64_t axis, std::int64_t index) const {
  return firn::select(*this, axis, index);
}

Tensor Tensor::sum(const Axes& axes, bool keepdims) const {
  return firn::sum(*this, axes, keepdims);
}
Tensor Tensor::mean(const Axes& axes, bool keepdims) const {
  return firn::mean(*this, axes, keepdims);
}
Tensor Tensor::max(const Axes& axes, bool keepdims) const {
  return firn::max(*this, axes, keepdims);
}
Tensor Tensor::min(const Axes& axes, bool keepdims) const {
  return firn::min(*this, axes, keepdims);
}
Tensor Tensor::var(const Axes& axes, std::int64_t correction, bool keepdims) const {
  return firn::var(*this, axes, correction, keepdims);
}
Tensor Tensor::norm(const Axes& axes, bool keepdims) const {
  return firn::norm(*this, axes, keepdims);
}
Tensor Tensor::argmax(std::int64_t axis, bool keepdims) const {
  return firn::argmax(*this, axis, keepdims);
}
Tensor Tensor::argmin(std::int64_t axis, bool keepdims) const {
  return firn::argmin(*this, axis, keepdims);
}
Tensor Tensor::prod(const Axes& axes, bool keepdims) const {
  return firn::prod(*this, axes, keepdims);
}
Tensor Tensor::any(const Axes& axes, bool keepdims) const {
  return firn::any(*this, axes, keepdims);
}
Tensor Tensor::all(const Axes& axes, bool keepdims) const {
  return firn::all(*this, axes, keepdims);
}
Tensor Tensor::logsumexp(const Axes& axes, bool keepdims) const {
  return firn::logsumexp(*this, axes, keepdims);
}
Tensor Tensor::cumsum(std::int64_t axis) const { return firn::cumsum(*this, axis); }
Tensor Tensor::gather(std::int64_t axis, const Tensor& index) const {
  return firn::gather(*this, axis, index);
}
Tensor Tensor::index_select(std::int64_t axis, const Tensor& index) const {
  return firn::index_select(*this, axis, index);
}
Tensor Tensor::masked_fill(const Tensor& mask, double value) const {
  return firn::masked_fill(*this, mask, value);
}
std::vector<Tensor> Tensor::split(std::int64_t size, std::int64_t axis) const {
  return firn::split(*this, size, axis);
}
std::vector<Tensor> Tensor::split(std::initializer_list<std::int64_t> sizes,
                                  std::int64_t axis) const {
  return firn::split(*this, sizes, axis);
}
std::vector<Tensor> Tensor::chunk(std::int64_t pieces, std::int64_t axis) const {
  return firn::chunk(*this, pieces, axis);
}
Tensor Tensor::matmul(const Tensor& other) const { return firn::matmul(*this, other); }
Tensor Tensor::softmax(std::int64_t axis) const { return firn::softmax(*this, axis); }
Tensor Tensor::log_softmax(std::int64_t axis) const { return firn::log_softmax(*this, axis); }

Tensor Tensor::abs() const { return firn::abs(*this); }
Tensor Tensor::exp() const { return firn::exp(*this); }
Tensor Tensor::log() const { return firn::log(*this); }
Tensor Tensor::sqrt() const { return firn::sqrt(*this); }
Tensor Tensor::square() const { return firn::square(*this); }
Tensor Tensor::rsqrt() const { return firn::rsqrt(*this); }
Tensor Tensor::reciprocal() const { return firn::reciprocal(*this); }
Tensor Tensor::neg() const { return firn::neg(*this); }
Tensor Tensor::sign() const { return firn::sign(*this); }
Tensor Tensor::floor() const { return firn::floor(*this); }
Tensor Tensor::ceil() const { return firn::ceil(*this); }
Tensor Tensor::round() const { return firn::round(*this); }
Tensor Tensor::sin() const { return firn::sin(*this); }
Tensor Tensor::cos() const { return firn::cos(*this); }
Tensor Tensor::pow(double exponent) const { return firn::pow(*this, exponent); }
Tensor Tensor::pow(const Tensor& exponent) const { return firn::pow(*this, exponent); }
Tensor Tensor::clamp(double low, double high) const { return firn::clamp(*this, low, high); }
Tensor Tensor::clamp_min(double low) const { return firn::clamp_min(*this, low); }
Tensor Tensor::clamp_max(double high) const { return firn::clamp_max(*this, high); }
Tensor Tensor::relu() const { return firn::relu(*this); }
Tensor Tensor::gelu() const { return firn::gelu(*this); }
Tensor Tensor::sigmoid() const { return firn::sigmoid(*this); }
Tensor Tensor::silu() const { return firn::silu(*this); }
Tensor Tensor::tanh() const { return firn::tanh(*this); }

void Tensor::fill_(double value) const { firn::fill_(*this, value); }
void Tensor::zero_() const { firn::zero_(*this); }
void Tensor::copy_(const Tensor& src) const { firn::copy_(*this, src); }

Tensor& Tensor::operator+=(const Tensor& other) { return add_(*this, other); }
Tensor& Tensor::operator-=(const Tensor& other) { return sub_(*this, other); }
Tensor& Tensor::operator*=(const Tensor& other) { return mul_(*this, other); }
Tensor& Tensor::operator/=(const Tensor& other) { return div_(*this, other); }
Tensor& Tensor::operator+=(double number) { return add_(*this, number); }
Tensor& Tensor::operator-=(double number) { return sub_(*this, number); }
Tensor& Tensor::operator*=(double number) { return mul_(*this, number); }
Tensor& Tensor::operator/=(double number) { return div_(*this, number); }

}  // namespace firn
