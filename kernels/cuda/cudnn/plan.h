// The plan that cuDNN makes for a graph. Running a plan is separate, so that a machine without a
// GPU can check plans (tests/cudnn_plans).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn/graph.h"

namespace firn::kernels::cuda {

/// The target of a plan: the device of a handle, or one that is only described. Without a GPU, an
/// engine that compiled its kernel but could not load it counts as found. Its workspace is unknown
/// (-1), and the plan cannot be run.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const gpu::Descriptor* device = nullptr;
};

/// Numerics that an engine may use. It never rounds operands, sums below f32 or transforms.
struct CudnnNumerics {
  bool tensor_cores = false;      ///< TF32 for f32 operands
  bool nondeterministic = false;  ///< sums may change their order from run to run
};

/// A plan that was tried, for tests: its engine and the outcome.
struct CudnnAttempt {
  std::int64_t engine = -1;
  bool compiled_at_run_time = false;
  bool strict_nan = false;  ///< the library's note that NaN propagates
  std::string outcome;      ///< empty if chosen
};

struct CudnnPlan {
  bool found = false;
  gpu::Descriptor plan;
  std::int64_t workspace = 0;  ///< bytes
  std::int64_t engine = -1;
  std::vector<CudnnAttempt> attempts;
};

/// Largest workspace of a plan, in bytes.
inline constexpr std::int64_t kCudnnWorkspace = std::int64_t{256} << 20;

/// Returns the first plan in the library's order of preference that keeps to the numerics and to
/// kCudnnWorkspace. `found` is false if there is none. If an engine compiles its kernels, this
/// takes seconds.
CudnnPlan make_plan(const CudnnGraph& graph, const CudnnTarget& target,
                    const CudnnNumerics& numerics);

}  // namespace firn::kernels::cuda
