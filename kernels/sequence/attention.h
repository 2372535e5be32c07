// Contract of attention: o = softmax(scale q k^T + bias) v for each head, without the matrix of
// probabilities. q is [b, hq, n, d], k [b, hk, m, d], v [b, hk, m, dv], o [b, hq, n, dv]; hq is a
// multiple of hk, and query head h reads key head h / (hq / hk). q, k, v, o and the gradient of o
// share a floating dtype, and their last axis has stride 1 (or one element); other strides are
// free. Formulas: math/sequence/attention.h.
#pragma once

#include "firn/random.h"
#include "kernels/dispatch.h"

namespace firn::kernels {

struct AttentionArgs {
  double scale = 1;
  bool causal = false;
  std::int64_t window = 0;  ///< as in math::AttentionBand
  ConstView lengths;        ///< [b] i64 or i32: keys beyond are not seen; or data == nullptr
  ConstView mask;           ///< bool [b, hq, n, m], any strides: true if seen; or data == nullptr
  /// [b, hq, n, m], any strides, in the operands' dtype or their compute dtype. It is added to the
  /// scaled products, in the compute dtype. It may have data == nullptr.
  ConstView bias;
  double dropout = 0;  ///< probability that a probability is dropped
  /// Row r of the rows [b, hq, n] has math::attention_row_words(m) words from key.offset on; word j
  /// belongs to key j.
  RandomKey key;
};

/// Outputs of attention_backward, [b, hq, n, d], [b, hk, m, d] and [b, hk, m, dv], in the operands'
/// dtype or their compute dtype. They do not overlap. Outputs with data == nullptr are not written.
struct AttentionGrads {
  View dq, dk, dv;
  /// [b, hq, n, m], where an axis along which the bias was repeated has size 1 and is summed over.
  View dbias;
  float dq_beta = 0, dk_beta = 0, dv_beta = 0, dbias_beta = 0;
};

struct RopeArgs {
  std::int64_t offset = 0;  ///< position of row 0, without positions
  double theta = 10000;
  /// The angle of each pair from one position to the next, on the device; null: those of theta.
  const double* frequencies = nullptr;
  bool interleaved = false;  ///< true for pairs (2i, 2i+1), else (i, i + d/2)
  bool inverse = false;      ///< rotates backwards
};

namespace cpu {

/// Writes o, and log_sum_exp [b, hq, n], row-major in the compute dtype, if it has data. A pair
/// that is not seen enters no sum, whatever k, v and the bias hold there. A query that sees no key,
/// or only scores of -inf, gives 0 and a log_sum_exp of +inf (cuDNN: -inf; the backward passes read
/// both). FIRN_ATTENTION=cudnn lets hidden NaN of causal calls into sums (settings.h). Throws
/// Error, before it writes, on a length outside [0, m].
void attention(const ConstView& q, const ConstView& k, const ConstView& v,
               const AttentionArgs& args, const View& o, const View& log_sum_exp, Stream stream);
/// Writes beta * old + gradient to the gradients that have data. They are summed in the compute
/// dtype and rounded once. `args` are those of the forward pass.
void attention_backward(const ConstView& dout, const ConstView& q, const ConstView& k,
                        const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                        const AttentionArgs& args, const AttentionGrads& grads, Stream stream);
/// y = beta*y + x rotated, for [batch, heads, n, d] of any strides and d even. x has a floating
/// dtype, y that or its compute dtype. positions are [batch, n], or [1, n] for every batch entry,
/// i64 or i32, any strides. With data == nullptr row r is at offset + r.
void rope(const ConstView& x, const ConstView& positions, const RopeArgs& args, const View& y,
          float beta, Stream stream);

}  // namespace cpu

inline double bytes_of(const AttentionGrads& g) {
  return detail::bytes_of(g.dq) + detail::bytes_of(g.dk) + detail::bytes_of(g.dv) +
         detail::bytes_of(g.dbias);
}
/// Number of pairs of a query and a key that the band lets through, in all heads. Lengths and masks
/// are ignored, since they are on the device.
inline double attention_pairs(const ConstView& q, const ConstView& k, const AttentionArgs& args) {
  const double n = double(q.shape[2]), m = double(k.shape[2]),
               heads = double(q.shape[0] * q.shape[1]);
  double keys = m;  // a query's, on average
  if (args.causal) keys = n <= m ? m - (n - 1) / 2 : (m + 1) / 2 * m / n;
  if (args.window > 0 && double(args.window) < keys) keys = double(args.window);
  return heads * n * keys;
}
inline double attention_flops(const ConstView& q, const ConstView& k, const ConstView& v,
                              const AttentionArgs& args, const auto&...) {
  return 2.0 * attention_pairs(q, k, args) * double(q.shape[3] + v.shape[3]);
}
/// The products are the scores again, and the gradients of q, k, v and of the probabilities.
inline double attention_backward_flops(const ConstView&, const ConstView& q, const ConstView& k,
                                       const ConstView& v, const ConstView&, const ConstView&,
                                       const AttentionArgs& args, const auto&...) {
  return 2.0 * attention_pairs(q, k, args) * double(3 * q.shape[3] + 2 * v.shape[3]);
}
FIRN_KERNEL_OF_PRODUCTS(attention, attention_flops)
FIRN_KERNEL_OF_PRODUCTS(attention_backward, attention_backward_flops)
FIRN_KERNEL_WITH_WORKSPACE(rope)

}  // namespace firn::kernels
