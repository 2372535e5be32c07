#include "kernels/cuda/conv/cudnn/products.h"

#include <cuda_runtime.h>

#include <memory>
#include <unordered_map>
#include <utility>

#include "firn/kernel_support.h"
#include "kernels/copy.h"
#include "kernels/cuda/conv/cudnn/plan.h"
#include "kernels/cuda/device/host.h"
#include "kernels/cuda/gemm/contexts.h"
#include "kernels/gemm.h"
#include "kernels/settings.h"

namespace firn::kernels::cuda {
namespace {

using gpu::check;
using gpu::cudnn;
using gpu::Descriptor;

/// A plan, and whether a captured graph runs its kernels, in which case the plan stays.
struct KeptPlan {
  ConvPlan plan;
  bool recorded = false;
};

/// A handle with the plans made for it.
struct Context {
  int device;
  cudnnHandle_t handle = nullptr;
  std::unordered_map<ConvProblem::Key, KeptPlan, KeyHash> plans;
};

/// Why a plan cannot be made while a graph is captured.
constexpr const char* kNotYet =
    "cuDNN has to look for a plan, and perhaps to compile and load it, at the first convolution of "
    "a shape: run the step once before";

Context& context_of(Device device, const char* op) {
  return thread_context<Context>(device.index, [&] {
    runtime::refuse_capture(op, device, kNotYet);
    auto fresh =
        std::make_unique<Context>(Context{.device = device.index, .handle = nullptr, .plans = {}});
    check(cudnn()->cudnnCreate(&fresh->handle), op, "cudnnCreate");
    return fresh;
  });
}

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

/// Whether cuDNN can be used: it is installed, and addresses are multiples of 16 bytes, as plans
/// assume.
bool can_ask(const Operands& at) {
  for (const void* address : {at.first, at.second, at.bias, static_cast<const void*>(at.result)}) {
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return false;
  }
  return cudnn() != nullptr;
}

/// This thread's plan for a problem.
const ConvPlan& plan_for(const ConvProblem& p, Context& context, Stream stream, const char* op) {
  const ConvProblem::Key key = p.key();
  auto at = context.plans.find(key);
  if (at == context.plans.end()) {
    runtime::refuse_capture(op, stream.device, kNotYet);
    if (context.plans.size() >= kMaxPlans)
      std::erase_if(context.plans, [](const auto& kept) { return !kept.second.recorded; });
    ConvPlan made = make_conv_plan(p, {context.handle, nullptr});
    made.attempts.clear();
    at = context.plans.emplace(key, KeptPlan{std::move(made)}).first;
  }
  at->second.recorded = at->second.recorded || runtime::capturing(stream.device);
  return at->second.plan;
}

void execute(const ConvPlan& plan, const Operands& at, Context& context, Stream stream,
             const char* op) {
  // Operands that the graph has no tensor for are left out.
  std::vector<std::int64_t> names = {kFirst, kSecond, kResult};
  std::vector<const void*> addresses = {at.first, at.second, at.result};
  if (at.bias) {
    names.push_back(kBias);
    addresses.push_back(at.bias);
  }
  const runtime::Workspace workspace(static_cast<std::size_t>(plan.workspace), stream);
  const void* const scratch = workspace.data();
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, names)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           static_cast<std::int64_t>(addresses.size()), addresses.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch)
      .finalize();
  check(pack.status(), op, "cudnnBackendFinalize of a variant pack");
  check(cudnn()->cudnnSetStream(context.handle, gpu::native(stream)), op, "cudnnSetStream");
  check(cudnn()->cudnnBackendExecute(context.handle, plan.plan.get(), pack.get()), op,
        "cudnnBackendExecute");
  runtime::note_kernel(op);
}

/// Runs the problem. Returns false, with nothing done, if there is no plan.
bool run(const ConvProblem& p, const Operands& at, Stream stream, const char* op) {
  if (!can_ask(at)) return false;
  gpu::check_cuda(cudaSetDevice(stream.device.index), op, "cudaSetDevice");
  Context& context = context_of(stream.device, op);
  const ConvPlan& plan = plan_for(p, context, stream, op);
  if (!plan.found) return false;
  execute(plan, at, context, stream, op);
  return true;
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
  // No plan stores such a gradient: try one that adds it to zeros.
  p.add = true;
  const Operands onto{dy.data, x.data, dw.data, dw.data};
  if (!can_ask(onto)) return false;
  Context& context = context_of(stream.device, kOp);
  const ConvPlan& plan = plan_for(p, context, stream, kOp);
  if (!plan.found) return false;
  kernels::fill(dw, 0.0, stream);
  execute(plan, onto, context, stream, kOp);
  return true;
}

}  // namespace firn::kernels::cuda
