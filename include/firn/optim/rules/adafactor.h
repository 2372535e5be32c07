// Adafactor.
#pragma once

#include <optional>

#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"

namespace firn::optim {

struct AdafactorOptions {
  /// A number, or a schedule over applied steps: upper bound of the relative step.
  Schedule lr = 1e-2;
  double beta2_decay = -0.8;  ///< 0 or less: update t averages squares with 1 - t^beta2_decay
  /// Unset: 2^-23, or 2^-52 for f64 parameters. Its square is more than 0 in the parameters' type.
  std::optional<double> eps1 = {};
  double eps2 = 1e-3;       ///< 0 or more: lower bound of the size of a weight
  double clip = 1;          ///< 1 or more: the largest root mean square of an update
  double weight_decay = 0;  ///< 0 or more; w -= lr * weight_decay * w, apart from the gradient
};

/// Adam's second moment in two factors for each matrix, a mean of rows and one of columns, and no
/// first moment: its states are (r + c) numbers for r x c weights. For a weight of two axes or
/// more, over the last two:
///   R += t^beta2_decay (row means of g^2 - R);  C += t^beta2_decay (column means of g^2 - C);
///   v = R C / max(mean of R, eps1)
/// and for a weight of fewer axes, v += t^beta2_decay (g^2 - v). Then, with rms(x) the root of the
/// mean of x^2:
///   u = g / max(sqrt(v), eps1);  a = max(eps2, rms(w)) min(lr, 1 / sqrt(t));
///   w -= lr * weight_decay * w + a u / max(1, rms(u) / clip)
/// t is the number of updates that the parameter has had, this one included. (Shazeer & Stern 2018;
/// learning rate and eps1 as in torch.optim.Adafactor.)
///
/// State: "row_variance" and "column_variance", which have size 1 along the last axis and the one
/// before it, or "variance". A step needs memory for some copies of the largest weight. If memory
/// of the heap runs out in a step, the cycle is dropped; weights and states are as before.
class Adafactor : public OptimizerOf<AdafactorOptions> {
 public:
  using OptimizerOf::OptimizerOf;
};
extern template class OptimizerOf<AdafactorOptions>;

}  // namespace firn::optim
