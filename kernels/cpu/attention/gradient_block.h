// Steps on a block of pairs that the gradients of attention share. Their formulas are in
// backward.cpp.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention/score_bias.h"
#include "kernels/cpu/attention/tile_scratch.h"
#include "kernels/math/rows.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Computes delta of some rows of one head: the sums of do o.
template <class C>
void sum_products(const Matrix& dout, const Matrix& o, std::int64_t rows, std::int64_t depth,
                  C* delta) {
  using V = Tile<C>;
  alignas(64) C x_buffer[kRow], y_buffer[kRow];
  for (std::int64_t r = 0; r < rows; ++r) {
    C sum(0);
    for (std::int64_t c = 0; c < depth; c += kRow) {
      const std::int64_t n = std::min(kRow, depth - c);
      const C* x =
          load_row(advance(dout.data, dout.dtype, r * dout.row + c), dout.dtype, 1, n, x_buffer);
      const C* y = load_row(advance(o.data, o.dtype, r * o.row + c), o.dtype, 1, n, y_buffer);
      V terms(0);
      std::int64_t k = 0;
      for (; k + V::size <= n; k += V::size) terms += V::load(x + k) * V::load(y + k);
      for (; k < n; ++k) sum += x[k] * y[k];
      for (int lane = 0; lane < V::size; ++lane) sum += terms[lane];
    }
    delta[r] = sum;
  }
}

/// Turns products into probabilities and the gradients of scores.
template <class C>
class GradientBlock {
 public:
  GradientBlock(const AttentionSizes& sizes, const AttentionArgs& args)
      : ld_(sizes.key_block), scale_(C(args.scale)), bias_(args), dropout_(sizes, args) {}

  const AttentionDropout& dropout() const { return dropout_; }

  /// Replaces the products q k in p by the probabilities (after dropout, but for its factor) and
  /// the products do v in ds by ds. Both become 0 for pairs that are not seen. The first row is
  /// number `row` of [batch, heads, queries]. `stats` and `delta` are the block's; `words` is
  /// scratch of dropout.
  void operator()(const PairMasks::OfHead& mask, Cover cover, const PairBlock& block,
                  std::int64_t b, std::int64_t head, std::int64_t row, const C* stats,
                  const C* delta, std::uint32_t* words, C* p, C* ds) const {
    if (dropout_.on) dropout_.words(row, block, words);
    if (bias_.given()) bias_.add(b, head, block, p, ld_);
    const C scale = bias_.given() ? C(1) : scale_;
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::int64_t o = r * ld_;
      gradient_row(p + o, ds + o, block.cols, scale, stats[r], delta[r],
                   dropout_.on ? words + r * kKeyBlock : nullptr);
    }
    if (cover == Cover::some) {
      mask.hide(block, p, ld_, C(0));
      mask.hide(block, ds, ld_, C(0));
    }
  }

 private:
  using V = Tile<C>;

  void gradient_row(C* p, C* ds, std::int64_t cols, C factor, C log_sum_exp, C delta,
                    const std::uint32_t* words) const {
    const math::ShiftedExp<V> probability{V(log_sum_exp)};
    const math::SoftmaxGrad<V> grad{V(delta)};
    const V scale(factor);
    const C share(dropout_.share);
    if (words)
      for (std::int64_t c = 0; c < cols; ++c)
        ds[c] = words[c] >= dropout_.threshold ? ds[c] * share : C(0);
    for_tiles<C>(cols, [&](std::int64_t i) {
      const V prob = probability(V::load(p + i) * scale);
      prob.store(p + i);
      grad(V::load(ds + i), prob).store(ds + i);
    });
    if (words)
      for (std::int64_t c = 0; c < cols; ++c) p[c] = words[c] >= dropout_.threshold ? p[c] : C(0);
  }

  std::int64_t ld_;
  C scale_;
  ScoreBias<C> bias_;
  AttentionDropout dropout_;
};

/// grad = beta grad + the gradient of the bias, as attention_backward() writes it.
template <class C>
void write_bias_gradient(const ConstView& dout, const ConstView& q, const ConstView& k,
                         const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                         const AttentionArgs& args, const View& grad, float beta);

}  // namespace firn::kernels::cpu::FIRN_ISA
