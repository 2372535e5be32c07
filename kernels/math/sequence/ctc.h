// Connectionist temporal classification (Graves, Fernandez, Gomez, Schmidhuber 2006, section 4) in
// logarithms. A target of n labels has 2n + 1 states: its labels, and a blank before, between and
// after them. alpha(t, s) is the log of the probability that the steps up to t end in state s.
// beta(t, s) is the log of the probability of the steps after t, if step t is in state s.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/math/macros.h"

namespace firn::math {

/// The logarithm of 0.
template <class C>
inline constexpr C kLogZero = -std::numeric_limits<C>::infinity();

/// log(e^a + e^b + e^c). For NaN and -infinity alone it is their sum, so that a NaN stays.
template <class C>
FIRN_HD C log_sum(C a, C b, C c) {
  const C most = larger(larger(a, b), c);
  constexpr C zero = kLogZero<C>;
  if (!(most > zero)) return a + b + c;
  return most + log(exp(a - most) + exp(b - most) + exp(c - most));
}

/// True if a term is infinite: no path of the steps spells the target.
template <class C>
FIRN_HD bool has_no_path(C term) {
  constexpr C none = -kLogZero<C>;
  return term == none;
}

/// The target of one sequence.
struct CtcTarget {
  const std::int64_t* labels;
  std::int64_t count;  ///< number of labels
  std::int64_t blank;

  FIRN_HD std::int64_t states() const { return 2 * count + 1; }
  FIRN_HD std::int64_t label(std::int64_t s) const { return s % 2 == 1 ? labels[s / 2] : blank; }
  /// True if state s may follow s - 2: the blank between two labels is left out, but not if it
  /// keeps them apart.
  FIRN_HD bool skips(std::int64_t s) const {
    return s % 2 == 1 && s >= 3 && labels[s / 2] != labels[s / 2 - 1];
  }

  /// alpha(0, s), if `x` is the log of the probability of s's class at this step.
  template <class C>
  FIRN_HD C first_alpha(std::int64_t s, C x) const {
    constexpr C none = kLogZero<C>;
    return s < 2 ? x : none;
  }
  /// alpha(t, s) of the states before (equation 6).
  template <class C>
  FIRN_HD C next_alpha(std::int64_t s, const C* before, C x) const {
    constexpr C none = kLogZero<C>;
    return log_sum(before[s], s > 0 ? before[s - 1] : none, skips(s) ? before[s - 2] : none) + x;
  }
  /// beta(t, s) of the last step.
  template <class C>
  FIRN_HD C last_beta(std::int64_t s) const {
    constexpr C none = kLogZero<C>;
    return s >= states() - 2 ? C(0) : none;
  }
  /// beta(t, s) of the states after (equation 10, without the class of step t). after[s] is
  /// beta(t + 1, s) plus the log of the probability of s's class at step t + 1.
  template <class C>
  FIRN_HD C next_beta(std::int64_t s, const C* after) const {
    constexpr C none = kLogZero<C>;
    return log_sum(after[s], s + 1 < states() ? after[s + 1] : none,
                   s + 2 < states() && skips(s + 2) ? after[s + 2] : none);
  }
  /// -log of the target's probability (equation 8), if `last` holds alpha of the last of `steps`.
  template <class C>
  FIRN_HD C term(std::int64_t steps, const C* last) const {
    constexpr C none = kLogZero<C>;
    if (steps == 0 || count > steps) return count == 0 ? C(0) : -none;
    return -log_sum(last[2 * count], count > 0 ? last[2 * count - 1] : none, none);
  }
};

}  // namespace firn::math
