// A convolution as cuDNN's graph, and the plan chosen for it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "firn/dtype.h"
#include "kernels/conv.h"
#include "kernels/cuda/cudnn/plan.h"
#include "kernels/cuda/cudnn/run.h"

namespace firn::kernels::cuda {

enum class ConvProduct : std::uint8_t { forward, data_gradient, weight_gradient };

/// One product of channels-last operands, with f32 sums. With `add`, old values are added to it.
struct ConvProblem {
  ConvProduct product = ConvProduct::forward;
  DType operands = DType::f32;
  DType result = DType::f32;
  std::array<std::int64_t, 4> x{}, w{}, y{};  ///< logical sizes, [n, c, h, w] and so on
  ConvGeometry geometry;
  bool bias = false, relu = false, add = false;
  bool tf32 = false;              ///< f32 may be multiplied with 10 bits of mantissa
  bool nondeterministic = false;  ///< sums may change their order from run to run

  CudnnKey key() const noexcept;
};
std::string to_string(const ConvProblem& problem);

/// Ids of tensors in a graph and in a plan's variant pack. kResult is y, dx or dw; kFirst and
/// kSecond are the operands in the contract's order.
enum ConvTensor : std::int64_t { kFirst = 1, kSecond, kBias, kResult };

/// Returns the first plan that keeps to the problem's numerics.
CudnnPlan make_conv_plan(const ConvProblem& problem, const CudnnTarget& target);

}  // namespace firn::kernels::cuda
