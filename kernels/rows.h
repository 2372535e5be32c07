// Contract of the row kernels: x is [rows, n], and each row is computed alone. x, y and their
// gradients have stride 1 along n (rows may have any stride) and one dtype unless said otherwise.
// Statistics, losses and parameter gradients are in the compute dtype; weights and gradient sinks
// may have either. Sums over rows follow an order that depends on the shape alone. Formulas are in
// math/rows.h. All `beta` are 0 or 1.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/plan/pending_gradient.h"

namespace firn::kernels {

/// Outputs of norm_backward. Any of dx, dweight [n], dbias [n] may have data == nullptr. Each
/// accumulates with its own beta.
struct NormGrads {
  View dx, dweight, dbias;
  float dx_beta = 0, dweight_beta = 0, dbias_beta = 0;
};

struct CrossEntropyArgs {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  ConstView class_weights;  ///< [classes], floating, or data == nullptr
  bool log_input = false;   ///< x holds log-probabilities already (nll)
  ConstView row_weights;    ///< [rows], contiguous in the compute dtype, or data == nullptr
  double z_loss = 0;

  // x may be a chunk of the scores: n columns from first_class on of `classes` (0: x has all), and
  // rows from first_row on. Errors of `op` name rows of the scores.
  std::int64_t first_class = 0, classes = 0, first_row = 0;
  const char* op = "cross_entropy";
};

namespace cpu {

/// y = softmax(x), or log_softmax(x) if `log`.
void softmax(const ConstView& x, const View& y, bool log, Stream stream);
/// dx = beta*dx + gradient, from y and dy.
void softmax_backward(const ConstView& dy, const ConstView& y, const View& dx, bool log, float beta,
                      Stream stream);

/// y = (x - mean) * rstd * weight + bias. Without `center` it is RMS norm (no mean, no bias).
/// weight and bias are [n] or have data == nullptr. Writes mean (unless !center) and rstd, [rows].
void norm(const ConstView& x, const ConstView& weight, const ConstView& bias, double eps,
          bool center, const View& y, const View& mean, const View& rstd, Stream stream);
/// Writes the gradients whose data is not nullptr.
void norm_backward(const ConstView& dy, const ConstView& x, const ConstView& weight,
                   const ConstView& mean, const ConstView& rstd, bool center,
                   const NormGrads& grads, Stream stream);

/// loss[0] = sum over rows, weight[0] = its denominator (losses.h). stats [rows, 2] for backward:
/// the row's maximum and log sum e^(x - maximum), both 0 if log_input. They are kept apart because
/// their sum would be rounded to the size of the maximum. target [rows] i64/i32/u8. Throws Error,
/// before it writes, on a target outside [0, n) that is not ignore_index.
void cross_entropy(const ConstView& x, const ConstView& target, const CrossEntropyArgs& args,
                   const View& loss, const View& weight, const View& stats, Stream stream);
/// Cross-entropy of logits that come in chunks. cross_entropy_part() adds the columns of x to the
/// `states` of its rows, [rows, 4] f64, contiguous; it begins anew with first_class 0.
void cross_entropy_part(const ConstView& x, const ConstView& target, const CrossEntropyArgs& args,
                        const View& states, Stream stream);
/// Once `states` have all columns, writes loss, weight and stats as cross_entropy() does.
void cross_entropy_total(const ConstView& states, const ConstView& target,
                         const CrossEntropyArgs& args, const View& loss, const View& weight,
                         const View& stats, Stream stream);
/// dx = beta*dx + dloss[0] * d loss/dx, where x may be a chunk of the scores. dx may be x itself if
/// beta is 0, and 16-bit for x in f32. If dloss is the initial gradient of `pending`, the same
/// launch computes that first; x then has elements.
void cross_entropy_backward(const ConstView& dloss, const ConstView& x, const ConstView& target,
                            const ConstView& stats, const CrossEntropyArgs& args, const View& dx,
                            float beta, const PendingGradient* pending, Stream stream);

}  // namespace cpu

FIRN_KERNEL_WITH_WORKSPACE(softmax)
FIRN_KERNEL_WITH_WORKSPACE(softmax_backward)
FIRN_KERNEL_WITH_WORKSPACE(norm)
FIRN_KERNEL_WITH_WORKSPACE(norm_backward)
FIRN_KERNEL_WITH_WORKSPACE(cross_entropy)
FIRN_KERNEL_WITH_WORKSPACE(cross_entropy_part)
FIRN_KERNEL_WITH_WORKSPACE(cross_entropy_total)
FIRN_KERNEL_WITH_WORKSPACE(cross_entropy_backward)

}  // namespace firn::kernels
