// What autocast does to the operands of an op: the one function that ops call before they check and
// record. An op's policy is a constant beside it: in its struct in kernels/math for elementwise
// ops, in the call for all others. An op that keeps the dtype it is given calls nothing.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "autograd/op_mode.h"
#include "firn/tensor.h"
#include "kernels/math/unary.h"

namespace firn::ops {

using Policy = math::Autocast;

inline bool autocast_on() noexcept { return autograd::op_mode.autocast; }

/// Whether autocast converts tensors of this dtype: f64, for gradient checks, and integers are left
/// alone.
constexpr bool castable(DType t) noexcept { return t == f16 || t == bf16 || t == f32; }

namespace detail {
/// Points operands[i] at a cast, put into casts[i], where the policy asks for another dtype. Does
/// nothing where one of them is not castable: the op's own checks see what came.
void apply_autocast(Policy policy, std::span<const Tensor*> operands, std::span<Tensor> casts);
}  // namespace detail

/// The operands of an op as it reads them: what came, or under autocast casts of it. Undefined ones
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
/// The same for a list.
std::vector<Tensor> autocasted(Policy policy, std::span<const Tensor> operands);
template <class... T>
Autocasted(Policy, const T&...) -> Autocasted<static_cast<int>(sizeof...(T))>;

}  // namespace firn::ops
