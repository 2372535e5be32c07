// Formulas of the row operations: softmax, normalisation, cross-entropy. A row operation has one or
// two passes that map every element into a monoid: a state with operator+, which may be summed in
// any grouping. An epilogue then computes the outputs from the elements and the row's states.
//
// V is one number (a CUDA thread) or a tile of them (the CPU); a formula's members are the row's
// states, broadcast to V. The drivers are kernels/cpu/rows/driver.h and
// kernels/cuda/rows/driver.cuh; they also do sums longer than a row (columns, all rows).
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

// ---- Monoids. map(f) applies f to every member: it takes a lane out of a tile of states. ----

/// Sum; the neutral element is 0.
template <class V>
struct Sum {
  V value = V(0);

  FIRN_HD friend Sum operator+(Sum a, Sum b) { return {a.value + b.value}; }
  template <class F>
  FIRN_HD auto map(F f) const -> Sum<decltype(f(value))> {
    return {f(value)};
  }
};

/// Two sums at once.
template <class V>
struct SumPair {
  V first = V(0), second = V(0);

  FIRN_HD friend SumPair operator+(SumPair a, SumPair b) {
    return {a.first + b.first, a.second + b.second};
  }
  template <class F>
  FIRN_HD auto map(F f) const -> SumPair<decltype(f(first))> {
    return {f(first), f(second)};
  }
};

/// Maximum; the neutral element is -infinity. A NaN may be lost here; the row's sum keeps it.
template <class V>
struct Max {
  V value = V(-HUGE_VALF);

  FIRN_HD friend Max operator+(Max a, Max b) { return {larger(a.value, b.value)}; }
  template <class F>
  FIRN_HD auto map(F f) const -> Max<decltype(f(value))> {
    return {f(value)};
  }
};

// ---- Passes: an element to a state ----

template <class V>
struct Elements {
  FIRN_HD Sum<V> operator()(V x) const { return {x}; }
};
template <class V>
struct Largest {
  FIRN_HD Max<V> operator()(V x) const { return {x}; }
};

// ---- Softmax. States of a row: max, and sum = sum e^(x - max). ----

/// e^(x - max)
template <class V>
struct ShiftedExp {
  V max;
  FIRN_HD V operator()(V x) const { return exp(x - max); }
};

/// log softmax: (x - max) - log sum
template <class V>
struct LogSoftmax {
  V max, log_sum;
  FIRN_HD V operator()(V x) const { return (x - max) - log_sum; }
};

/// softmax' : dx = y (dy - s), s = sum dy y
template <class V>
struct SoftmaxGrad {
  V s;
  FIRN_HD static Sum<V> pass(V dy, V y) { return {dy * y}; }
  FIRN_HD V operator()(V dy, V y) const { return y * (dy - s); }
};

/// log softmax' : dx = dy - e^y s, s = sum dy
template <class V>
struct LogSoftmaxGrad {
  V s;
  FIRN_HD static Sum<V> pass(V dy, V) { return {dy}; }
  FIRN_HD V operator()(V dy, V y) const { return dy - exp(y) * s; }
};

// ---- Normalisation. States of a row: mean (0 for the RMS norm) and rstd = 1/sqrt(var + eps).

/// y = (x - mean) rstd w + b
template <class V>
struct Norm {
  V mean, rstd;
  FIRN_HD V operator()(V x, V w, V b) const { return (x - mean) * rstd * w + b; }
};

/// With h = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - h mean(g h)); the RMS norm has
/// no mean(g). dweight = sum over rows of dy h; dbias = sum over rows of dy.
template <class V>
struct NormGrad {
  V mean, rstd, mean_g, mean_gh;
  FIRN_HD static V normalised(V x, V mean, V rstd) { return (x - mean) * rstd; }
  FIRN_HD V operator()(V dy, V x, V w) const {
    return rstd * (dy * w - mean_g - normalised(x, mean, rstd) * mean_gh);
  }
};
template <class V>
struct NormGradPass {
  V mean, rstd;
  FIRN_HD SumPair<V> operator()(V dy, V x, V w) const {
    const V g = dy * w;
    return {g, g * NormGrad<V>::normalised(x, mean, rstd)};
  }
};

// ---- Cross-entropy of a row with target t, class weights w, smoothing s and z-loss z, over n
//      classes:
//        loss = w[t] (1-s) (-l[t]) + s/n sum_c w[c] (-l[c]) + z lse^2,
//      l = log softmax x (or x itself: nll), lse = log sum_c e^x[c]. The weight of the row
//      multiplies all of it. So d loss/d l[c] = -w[t] (1-s) [c = t] - s/n w[c], and through the
//      softmax p = e^l
//        d loss/d x[c] = p[c] (w[t] (1-s) + s/n sum_k w[k] + 2 z lse) - w[t] (1-s) [c = t]
//                        - s/n w[c].
//      The driver adds the term at c = t.

/// w[c] (-l[c])
template <class V>
struct WeightedNll {
  V max, log_sum;  ///< both 0 if x holds log-probabilities
  FIRN_HD Sum<V> operator()(V x, V w) const { return {w * (log_sum - (x - max))}; }
};

/// The coefficients of a row's loss.
template <class C>
struct CrossEntropyTerms {
  C hit, smooth, z;  ///< 1 - s, s/n, z

  /// nll = -l[t], spread = sum_c w[c] (-l[c]). A term whose coefficient is 0 counts for nothing,
  /// even if it is infinite.
  FIRN_HD double loss(C weight, double nll, double spread, double lse) const {
    double sum = weight != 0 ? static_cast<double>(hit * weight) * nll : 0;
    if (smooth != 0) sum += static_cast<double>(smooth) * spread;
    if (z != 0) sum += static_cast<double>(z) * lse * lse;
    return sum;
  }
  /// Factor of p[c] in the gradient.
  FIRN_HD C scale(C weight, C weight_sum, C lse) const {
    return hit * weight + smooth * weight_sum + 2 * z * lse;
  }
};

/// scale p[c] - spread w[c]
template <class V>
struct CrossEntropyGrad {
  V max, log_sum, scale, spread;
  FIRN_HD V operator()(V x) const { return scale * exp((x - max) - log_sum); }
  FIRN_HD V operator()(V x, V w) const { return (*this)(x)-spread * w; }
};

/// Shift of elements before the exponential: their maximum, unless all are -infinity.
template <class C>
FIRN_HD C shift_of(C max) {
  return max == -HUGE_VALF ? C(0) : max;
}

/// State of a row of which some columns have been read. It is a monoid, so that the columns may
/// come in parts. It is in f64, for rows of any number of parts.
struct CrossEntropyState {
  double max = -HUGE_VAL;  ///< largest of the columns
  double sum = 0;          ///< sum_c e^(x[c] - shift_of(max))
  double dot = 0;          ///< sum_c w[c] x[c], if there is smoothing
  double at = 0;           ///< x[t], if column t is among them

  FIRN_HD friend CrossEntropyState operator+(const CrossEntropyState& a,
                                             const CrossEntropyState& b) {
    const double most = a.max > b.max ? a.max : b.max;
    return {most, a.sum_shifted(most) + b.sum_shifted(most), a.dot + b.dot, a.at + b.at};
  }

 private:
  FIRN_HD double sum_shifted(double to) const {
    return max == -HUGE_VAL ? sum : sum * exp(max - to);  // the former is 0 or NaN
  }
};

}  // namespace firn::math
