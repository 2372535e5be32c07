#include "optim/store/flat.h"

#include "firn/runtime/kernel_support.h"
#include "kernels/elementwise.h"
#include "tensor/impl.h"

namespace firn::optim {

void write_bytes(const Tensor& to, const void* from, std::size_t bytes) {
  copy_bytes(to.impl()->data(), to.device(), from, Device::cpu(), bytes);
}

void scale_gradient(const Tensor& y, double factor, Stream stream) {
  kernels::axpby(factor, y.view(), 0, y.mutable_view(), stream);
}

void add_gradient(const Tensor& x, double a, const Tensor& y, double b, Stream stream) {
  kernels::axpby(a, x.view(), b, y.mutable_view(), stream);
}

}  // namespace firn::optim
