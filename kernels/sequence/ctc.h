// Contract of connectionist temporal classification (kernels/math/sequence/ctc.h,
// firn/ops/loss_terms.h). Log-probabilities x [steps, n, classes] have any floating dtype and any
// strides; C is their compute dtype. The CPU's caller has checked lengths and labels. A CUDA device
// records a bad one as a fault, and the term and the gradient of its sequence are NaN.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/math/sequence/ctc.h"

namespace firn::kernels {

/// Targets and lengths: i64 and contiguous, on the device of x.
struct CtcTargets {
  ConstView labels;                         ///< labels of all sequences
  ConstView starts;                         ///< [n]: where in `labels` those of a sequence begin
  ConstView input_lengths, target_lengths;  ///< [n]
  std::int64_t longest;                     ///< labels that a sequence can have
  std::int64_t blank;
  bool zero_infinity;
  const char* op;
};

namespace detail {
inline double bytes_of(const CtcTargets& t) noexcept {
  return bytes_of(t.labels) + bytes_of(t.starts) + bytes_of(t.input_lengths) +
         bytes_of(t.target_lengths);
}
}  // namespace detail

namespace cpu {

/// Writes terms [n] (C, contiguous), and alpha [n, rows, states] (C, contiguous): row t % rows
/// holds the states of step t. `rows` is the number of steps for a backward pass, else at least 2.
/// `states` is that of a target which is as long as `longest` and steps allow.
void ctc(const ConstView& x, const CtcTargets& targets, const View& terms, const View& alpha,
         Stream stream);
/// dx = beta*dx + dterms (e^x - q), where q is the probability that a step stands for a class
/// (equation 16). dterms [n] (C) has any strides; dx [steps, n, classes] is contiguous.
void ctc_backward(const ConstView& dterms, const ConstView& x, const CtcTargets& targets,
                  const ConstView& alpha, const View& dx, float beta, Stream stream);

}  // namespace cpu

FIRN_KERNEL_WITH_WORKSPACE(ctc)
FIRN_KERNEL_WITH_WORKSPACE(ctc_backward)

}  // namespace firn::kernels
