// Formulas of normalisation by channel: moments and how they are merged, the normalisation, its
// gradient, and running statistics. V is one number or a tile of numbers.
#pragma once

#include "kernels/math/optim/step_state.h"
#include "kernels/math/rows.h"

namespace firn::math {

// ---- Moments: mean and sum of squared distances from it ----

/// Distances from a shared centre, and their squares; moments_of() turns their sums into moments.
/// Unlike sum x^2 - (sum x)^2, this does not cancel if the centre is within a few deviations of the
/// mean.
template <class V>
struct Distances {
  V centre;
  FIRN_HD SumPair<V> operator()(V x) const {
    const V d = x - centre;
    return {d, d * d};
  }
};

template <class V>
struct Moments {
  V mean = V(0), squares = V(0);
};

/// The moments of n values from the sums of their distances.
template <class V>
FIRN_HD Moments<V> moments_of(V centre, SumPair<V> distances, V inverse_n) {
  const V shift = distances.first * inverse_n;
  return {centre + shift, max(distances.second - distances.first * shift, V(0))};
}

/// Mean of squared distances: from the mean if `center`, else from 0. The sums are of distances
/// from a rounded mean, which this corrects.
template <class V>
FIRN_HD V variance_of(bool center, SumPair<V> distances, V inverse_n) {
  return inverse_n * (center ? moments_of(V(0), distances, inverse_n).squares : distances.second);
}

/// Merges moments of `a` and of `b` values, b > 0 (Chan, Golub & LeVeque 1979).
template <class V>
struct Merge {
  V share, weight;

  FIRN_HD Merge(V a, V b) : share(b / (a + b)), weight(a * (b / (a + b))) {}
  FIRN_HD Moments<V> operator()(Moments<V> x, Moments<V> y) const {
    const V d = y.mean - x.mean;
    return {x.mean + d * share, x.squares + y.squares + d * d * weight};
  }
};

// ---- Normalisation. A channel has the mean and rstd = 1/sqrt(var + eps) of its cell, its weight
// and its bias. ----

/// y = (x - mean) (rstd w) + b
template <class V>
struct ChannelNorm {
  V mean, scale, shift;
  FIRN_HD V operator()(V x) const { return (x - mean) * scale + shift; }
};

/// An element's part in the parameters' gradients: dy and dy (x - mean). Summed over the channel,
/// the first is dbias; the second, times rstd, is dweight.
template <class V>
struct ChannelGradPass {
  V mean;
  FIRN_HD SumPair<V> operator()(V dy, V x) const { return {dy, dy * (x - mean)}; }
};

/// With xhat = (x - mean) rstd and the cell's sums a of w dy and b of w dy xhat over n elements:
/// dx = rstd (w dy - a/n - xhat b/n) = dy (rstd w) - (rstd a/n + (x - mean) rstd^2 b/n).
template <class V>
struct ChannelGrad {
  V mean, scale, offset, slope;
  FIRN_HD static ChannelGrad make(V mean, V rstd, V w, V a_n, V b_n) {
    return {mean, rstd * w, rstd * a_n, rstd * rstd * b_n};
  }
  FIRN_HD V operator()(V dy, V x) const { return dy * scale - (offset + (x - mean) * slope); }
};
/// Gradient if the moments are constants: dx = dy (rstd w).
template <class V>
struct ChannelScale {
  V scale;
  FIRN_HD V operator()(V dy) const { return dy * scale; }
};

// ---- Pools and running statistics, one channel each. ----

/// True if the moments that a cycle pooled go into the running statistics. If an optimizer decides
/// (`state` is not null), its last step must have been applied.
FIRN_HD inline bool commits(const StepState* state) {
  return state == nullptr || state->last.status == StepStatus::applied;
}

/// Update of a channel's running statistics.
struct RunningUpdate {
  double count;  ///< elements of a channel that the new moments come from
  double share;  ///< weight of the new moments

  /// momentum < 0: all batches have equal weight, and `batches` came before this one.
  FIRN_HD RunningUpdate(double n, double momentum, std::int64_t batches)
      : count(n), share(momentum < 0 ? 1.0 / (static_cast<double>(batches) + 1) : momentum) {}
  FIRN_HD double mean(double running, double value) const { return run_on(running, value); }
  /// Uses the unbiased variance, or the biased one of a single value.
  FIRN_HD double var(double running, double squares) const {
    return run_on(running, squares / (count > 1 ? count - 1 : count));
  }

 private:
  FIRN_HD double run_on(double running, double value) const {
    return (1 - share) * running + share * value;
  }
};

}  // namespace firn::math
