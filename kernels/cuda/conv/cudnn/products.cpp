#include "kernels/cuda/conv/cudnn/products.h"

#include <vector>

#include "kernels/copy.h"
#include "kernels/cuda/conv/cudnn/plan.h"
#include "kernels/settings/settings.h"

namespace firn::kernels::cuda {
namespace {

std::array<std::int64_t, 4> sizes_of(const Shape& s) { return {s[0], s[1], s[2], s[3]}; }

ConvProblem problem_of(ConvProduct product, const ConstView& x, const ConstView& w,
                       const ConstView& y, const ConstView& operand, const ConstView& result,
                       const ConvGeometry& geometry) {
  ConvProblem p;
  p.product = product;
  p.operands = operand.dtype;
  p.result = result.dtype;
  p.x = sizes_of(x.shape);
  p.w = sizes_of(w.shape);
  p.y = sizes_of(y.shape);
  p.geometry = geometry;
  p.tf32 = operand.dtype == DType::f32 && tf32_allowed();
  p.nondeterministic = nondeterministic_switch().load(std::memory_order_relaxed);
  return p;
}

/// The addresses of a problem's tensors; bias is null if there is none.
struct Operands {
  const void *first, *second, *bias;
  void* result;
};

/// Returns the tensors of a plan. Operands that the graph has no tensor for are left out.
std::vector<CudnnTensorAt> tensors_of(const Operands& at) {
  std::vector<CudnnTensorAt> out = {{kFirst, at.first}, {kSecond, at.second}, {kResult, at.result}};
  if (at.bias) out.push_back({kBias, at.bias});
  return out;
}

/// Returns null, with nothing done, if cuDNN cannot be used or has no plan.
const CudnnPlan* plan_for(const ConvProblem& p, const Operands& at, Stream stream, const char* op) {
  if (!cudnn_takes({at.first, at.second, at.bias, at.result})) return nullptr;
  return cudnn_plan(
      p.key(), [&](const CudnnTarget& target) { return make_conv_plan(p, target); }, stream, op);
}

/// Runs the problem. Returns false, with nothing done, if there is no plan.
bool run(const ConvProblem& p, const Operands& at, Stream stream, const char* op) {
  const CudnnPlan* const plan = plan_for(p, at, stream, op);
  if (plan) cudnn_execute(*plan, tensors_of(at), stream, op);
  return plan != nullptr;
}

}  // namespace

bool cudnn_forward(const ConstView& x, const ConstView& w, const void* bias, bool relu,
                   const ConvGeometry& geometry, const View& y, Stream stream) {
  ConvProblem p = problem_of(ConvProduct::forward, x, w, y, x, y, geometry);
  p.bias = bias != nullptr;
  p.relu = relu;
  return run(p, {x.data, w.data, bias, y.data}, stream, "conv_forward");
}

bool cudnn_data_gradient(const ConstView& dy, const ConstView& w, const ConvGeometry& geometry,
                         const View& dx, float beta, Stream stream) {
  ConvProblem p = problem_of(ConvProduct::data_gradient, dx, w, dy, dy, dx, geometry);
  if (p.result != p.operands) return false;
  p.add = beta != 0;
  return run(p, {dy.data, w.data, nullptr, dx.data}, stream, "conv_data_gradient");
}

bool cudnn_weight_gradient(const ConstView& dy, const ConstView& x, const ConvGeometry& geometry,
                           const View& dw, float beta, Stream stream) {
  constexpr const char* kOp = "conv_weight_gradient";
  ConvProblem p = problem_of(ConvProduct::weight_gradient, x, dw, dy, dy, dw, geometry);
  const bool wide = p.result != p.operands;
  if (wide && p.w[1] < kLeastWideChannels) return false;
  p.add = beta != 0;
  // A graph with a separate addition reads the old values as a tensor of their own.
  const Operands at{dy.data, x.data, wide && p.add ? dw.data : nullptr, dw.data};
  if (run(p, at, stream, kOp)) return true;
  if (!wide || p.add) return false;
  // If no plan stores such a gradient, a plan that adds it to zeros is tried.
  p.add = true;
  const Operands onto{dy.data, x.data, dw.data, dw.data};
  const CudnnPlan* const plan = plan_for(p, onto, stream, kOp);
  if (!plan) return false;
  kernels::fill(dw, 0.0, stream);
  cudnn_execute(*plan, tensors_of(onto), stream, kOp);
  return true;
}

}  // namespace firn::kernels::cuda
