// Casts the operands of an op under autocast; ops call this before they check and record.
// Elementwise ops have their policy in their struct in kernels/math, others pass it in the call. An
// op that keeps its operands' dtype does not call this.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "autograd/op_mode.h"
#include "firn/tensor.h"
#include "firn/thread_context.h"
#include "kernels/math/unary.h"

namespace firn::ops {

using Policy = math::Autocast;

inline bool autocast_on() noexcept { return thread_context.op_mode.autocast; }

/// True if autocast converts tensors of this dtype. It does not convert f64, for gradient checks,
/// or integers.
constexpr bool castable(DType t) noexcept { return t == f16 || t == bf16 || t == f32; }

namespace detail {
/// If the policy requires another dtype for operands[i], stores a cast in casts[i] and points
/// operands[i] at it. Does nothing if one operand is not castable; the op's own checks then see the
/// originals.
void apply_autocast(Policy policy, std::span<const Tensor*> operands, std::span<Tensor> casts);
}  // namespace detail

/// The operands as the op reads them: the originals, or under autocast their casts. Undefined ones
/// stay undefined.
///
///   Tensor linear(const Tensor& x, const Tensor& weight) {
///     const Autocasted in(Policy::lower, x, weight);
///     ... in[0], in[1] ...
template <int N>
class Autocasted {
 public:
  template <class... T>
  explicit Autocasted(Policy policy, const T&... operands) : now_{&operands...} {
    if (autocast_on()) [[unlikely]]
      detail::apply_autocast(policy, now_, casts_);
  }
  Autocasted(const Autocasted&) = delete;
  Autocasted& operator=(const Autocasted&) = delete;

  const Tensor& operator[](int i) const noexcept { return *now_[static_cast<std::size_t>(i)]; }

 private:
  std::array<const Tensor*, N> now_;
  std::array<Tensor, N> casts_;
};
/// Returns the operands of a list as the op reads them.
std::vector<Tensor> autocasted(Policy policy, std::span<const Tensor> operands);
template <class... T>
Autocasted(Policy, const T&...) -> Autocasted<static_cast<int>(sizeof...(T))>;

}  // namespace firn::ops
