// The format of the tensor that dense_forward saves, for every backend.
#include "kernels/dense.h"
#include "kernels/math/macros.h"

namespace firn::kernels {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return math::ceil_div(n, multiple) * multiple;
}

}  // namespace

DenseSaved dense_saved(Activation activation, std::int64_t m, std::int64_t n, DType dtype) {
  switch (activation) {
    case Activation::relu:
      return {DType::u8, {m, round_up(n, 128) / 8}};
    case Activation::gelu_tanh:
      return {dtype, {m, round_up(n, 8)}};
    default:
      return {dtype, {0}};
  }
}

}  // namespace firn::kernels
