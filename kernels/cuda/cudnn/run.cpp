#include "kernels/cuda/cudnn/run.h"

#include <cuda_runtime.h>

#include <memory>
#include <unordered_map>
#include <utility>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/device/host.h"
#include "kernels/cuda/gemm/contexts.h"

namespace firn::kernels::cuda {
namespace {

using gpu::check;
using gpu::cudnn;
using gpu::Descriptor;

/// A plan. It stays if a captured graph runs its kernels, which `recorded` says.
struct KeptPlan {
  CudnnPlan plan;
  bool recorded = false;
};

/// A handle with the plans made for it.
struct Context {
  int device;
  cudnnHandle_t handle = nullptr;
  std::unordered_map<CudnnKey, KeptPlan, KeyHash> plans;
};

/// Says why a plan cannot be made while a graph is captured.
constexpr const char* kNotYet =
    "cuDNN has to look for a plan, and perhaps to compile and load it, at the first call with a "
    "shape: run the step once before";

Context& context_of(Device device, const char* op) {
  return thread_context<Context>(device.index, [&] {
    runtime::refuse_capture(op, device, kNotYet);
    auto fresh =
        std::make_unique<Context>(Context{.device = device.index, .handle = nullptr, .plans = {}});
    check(cudnn()->cudnnCreate(&fresh->handle), op, "cudnnCreate");
    return fresh;
  });
}

}  // namespace

bool cudnn_takes(std::initializer_list<const void*> addresses) {
  for (const void* address : addresses) {
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return false;
  }
  return cudnn() != nullptr;
}

const CudnnPlan* cudnn_plan(const CudnnKey& key,
                            const std::function<CudnnPlan(const CudnnTarget&)>& make, Stream stream,
                            const char* op) {
  gpu::check_cuda(cudaSetDevice(stream.device.index), op, "cudaSetDevice");
  Context& context = context_of(stream.device, op);
  auto at = context.plans.find(key);
  if (at == context.plans.end()) {
    runtime::refuse_capture(op, stream.device, kNotYet);
    if (context.plans.size() >= kMaxPlans)
      std::erase_if(context.plans, [](const auto& kept) { return !kept.second.recorded; });
    CudnnPlan made = make({context.handle, nullptr});
    made.attempts.clear();
    at = context.plans.emplace(key, KeptPlan{std::move(made)}).first;
  }
  at->second.recorded = at->second.recorded || runtime::capturing(stream.device);
  return at->second.plan.found ? &at->second.plan : nullptr;
}

void cudnn_execute(const CudnnPlan& plan, const std::vector<CudnnTensorAt>& tensors, Stream stream,
                   const char* op) {
  Context& context = context_of(stream.device, op);
  std::vector<std::int64_t> names;
  std::vector<const void*> addresses;
  for (const CudnnTensorAt& t : tensors) {
    names.push_back(t.uid);
    addresses.push_back(t.address);
  }
  const runtime::Workspace workspace(static_cast<std::size_t>(plan.workspace), stream);
  if (runtime::dry_run()) return;
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

}  // namespace firn::kernels::cuda
