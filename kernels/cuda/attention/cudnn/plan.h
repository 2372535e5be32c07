// Attention as cuDNN's graphs, and the plans chosen for them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "firn/dtype.h"
#include "kernels/cuda/cudnn/plan.h"
#include "kernels/cuda/cudnn/run.h"

namespace firn::kernels::cuda {

/// One pass of attention without lengths, mask, window and dropout. Operands and gradients have one
/// 16-bit dtype, and their last axis has stride 1. The scale is positive: cuDNN takes the maximum
/// of the products before it scales them.
struct SdpaProblem {
  bool backward = false;
  DType dtype = DType::bf16;
  std::int64_t b = 1, hq = 1, hk = 1, n = 1, m = 1, d = 1, dv = 1;  ///< as in kernels/sequence/attention.h
  bool causal = false;       ///< query i sees keys up to i + m - n; n is at most m
  bool log_sum_exp = false;  ///< the forward pass writes it; the backward pass always reads it
  /// The backward pass may add dq in any order. It then needs memory in proportion to n, else to
  /// n m.
  bool nondeterministic = false;

  /// Strides of batch, head and row.
  using Layout = std::array<std::int64_t, 3>;
  Layout q{}, k{}, v{}, o{};
  Layout dout{}, dq{}, dk{}, dv_layout{};  ///< layouts of the backward pass

  CudnnKey key() const noexcept;
};
std::string to_string(const SdpaProblem& problem);

/// Ids of tensors in a graph and in a plan's variant pack. kDelta [b, hq, n] and kDqSum [b, hq, n,
/// d] are f32 scratch of the backward pass. The last five are numbers in the host's memory.
enum SdpaTensor : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kLogSumExp,
  kDout,
  kDq,
  kDk,
  kDv,
  kDelta,
  kDqSum,    ///< only if nondeterministic
  kScale,    ///< f32
  kHidden,   ///< f32, the score of a pair that is not seen; only if causal
  kOne,      ///< f32; only in the backward pass
  kKeys,     ///< i32, m; only if causal with n != m
  kQueries,  ///< i32, n; likewise
};

/// Returns the first plan that keeps to the problem's numerics. It finds none for heads of more
/// than 256 elements or other dtypes, which cuDNN's other engines would compute in part. It finds
/// none before cuDNN 9.16, whose backward pass does not mask the keys beyond m in its last tile.
CudnnPlan make_sdpa_plan(const SdpaProblem& problem, const CudnnTarget& target);

}  // namespace firn::kernels::cuda
