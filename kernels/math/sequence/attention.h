// Formulas of attention: the keys that a query sees, and the softmax of a row that is read in parts
// (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"; Rabe & Staats 2021;
// Dao et al. 2022, "FlashAttention"). V is a number or a tile, as in rows.h.
#pragma once

#include "kernels/math/macros.h"

namespace firn::math {

/// The keys that `causal` and `window` let a query see: a range, whose ends grow with the query.
/// Query i stands at key i + keys - queries, so the last query stands at the last key.
struct AttentionBand {
  std::int64_t queries = 0, keys = 0;
  bool causal = false;
  std::int64_t window = 0;  ///< keys nearer than this are seen; 0: all; at most queries + keys

  FIRN_HD std::int64_t place(std::int64_t query) const { return query + keys - queries; }
  /// The query sees keys [first_key, end_key), all below `length`. The range may be empty.
  FIRN_HD std::int64_t first_key(std::int64_t query) const {
    const std::int64_t first = window > 0 ? place(query) - window + 1 : 0;
    return first > 0 ? first : 0;
  }
  FIRN_HD std::int64_t end_key(std::int64_t query, std::int64_t length) const {
    std::int64_t end = length;
    if (causal) {
      end = place(query) + 1;
    } else if (window > 0) {
      end = place(query) + window;
    }
    if (end > length) end = length;
    return end > 0 ? end : 0;
  }
  FIRN_HD bool sees(std::int64_t query, std::int64_t key, std::int64_t length) const {
    return key >= first_key(query) && key < end_key(query, length);
  }
  /// The key is seen by queries [first_query, end_query), unless it is beyond their length.
  FIRN_HD std::int64_t first_query(std::int64_t key) const {
    std::int64_t first = 0;
    if (causal) {
      first = key - keys + queries;
    } else if (window > 0) {
      first = key - window + 1 - keys + queries;
    }
    return first > 0 ? first : 0;
  }
  FIRN_HD std::int64_t end_query(std::int64_t key) const {
    const std::int64_t end = window > 0 ? key + window - keys + queries : queries;
    return end < queries ? (end > 0 ? end : 0) : queries;
  }
};

/// Random words of a row of `keys` pairs: whole Philox blocks, so that each row begins with one.
FIRN_HD constexpr std::int64_t attention_row_words(std::int64_t keys) {
  return ceil_div(keys, 4) * 4;
}

/// Shift of a row's scores before exp: their maximum, but 0 if there is none, so that e^(-inf -
/// shift) is 0.
template <class V>
FIRN_HD V softmax_shift(V max) {
  return where(max == V(-HUGE_VALF), V(0), max);
}

/// log sum e^score, from the maximum and sum e^(score - shift). Without a term it is +inf: then
/// e^(score - log_sum_exp) is 0, as the probability is.
template <class V>
FIRN_HD V log_sum_exp(V max, V sum) {
  return where(sum == V(0), V(HUGE_VALF), softmax_shift(max) + log(sum));
}

/// Shift of a row's scores in the backward pass: its log_sum_exp. For a row without a term cuDNN
/// stores -inf, which counts as +inf.
template <class V>
FIRN_HD V backward_shift(V log_sum_exp) {
  return where(log_sum_exp == V(-HUGE_VALF), V(HUGE_VALF), log_sum_exp);
}

/// 1/sum, and 0 for a row without a term, whose output is 0.
template <class V>
FIRN_HD V softmax_share(V sum) {
  return where(sum == V(0), V(0), V(1) / sum);
}

}  // namespace firn::math
