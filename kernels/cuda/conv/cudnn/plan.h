// A convolution as cuDNN's graph, and the plan chosen for it. Running a plan is separate, so that a
// machine without a GPU can check plans (tests/cudnn_plans).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "firn/dtype.h"
#include "kernels/conv.h"
#include "kernels/cuda/conv/cudnn/library.h"

namespace firn::kernels::cuda {

enum class ConvProduct : std::uint8_t { forward, data_gradient, weight_gradient };

/// One product, channels-last, sums in f32. With `add`, the result is added to the old values.
struct ConvProblem {
  ConvProduct product = ConvProduct::forward;
  DType operands = DType::f32;
  DType result = DType::f32;
  std::array<std::int64_t, 4> x{}, w{}, y{};  ///< logical sizes, [n, c, h, w] and so on
  ConvGeometry geometry;
  bool bias = false, relu = false, add = false;
  bool tf32 = false;              ///< f32 may be multiplied with 10 bits of mantissa
  bool nondeterministic = false;  ///< sums may change their order from run to run

  /// Everything that the choice of a plan depends on.
  using Key = std::array<std::int64_t, 24>;
  Key key() const noexcept;
};
std::string to_string(const ConvProblem& problem);

/// Ids of tensors in a graph and in a plan's variant pack. kResult is y, dx or dw; kFirst and
/// kSecond are the operands in the contract's order.
enum ConvTensor : std::int64_t { kFirst = 1, kSecond, kBias, kResult };

/// The target of a plan: the device of a handle, or one that is only described. Without a GPU, an
/// engine that compiled its kernel but could not load it counts as found. Its workspace is unknown
/// (-1), and the plan cannot be run.
struct ConvTarget {
  cudnnHandle_t handle = nullptr;
  const gpu::Descriptor* device = nullptr;
};

/// A plan that was tried, for tests: its engine and the outcome.
struct ConvAttempt {
  std::int64_t engine = -1;
  bool compiled_at_run_time = false;
  bool strict_nan = false;  ///< the library's note that NaN propagates
  std::string outcome;      ///< empty if chosen
};

struct ConvPlan {
  bool found = false;
  gpu::Descriptor plan;
  std::int64_t workspace = 0;  ///< bytes
  std::int64_t engine = -1;
  std::vector<ConvAttempt> attempts;
};

/// Bytes of workspace that a plan may use.
inline constexpr std::int64_t kConvWorkspace = std::int64_t{256} << 20;

/// The first plan in the library's order of preference that keeps to the problem's numerics (no
/// rounding of operands, no sums below f32, no transforms) and to kConvWorkspace. `found` is false
/// if there is none. If an engine compiles its kernels, this takes seconds.
ConvPlan make_conv_plan(const ConvProblem& problem, const ConvTarget& target);

}  // namespace firn::kernels::cuda
