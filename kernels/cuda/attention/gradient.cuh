// The gradients of a tile of scores. The formulas are in kernels/cpu/attention/backward.cpp.
#pragma once

#include "kernels/cuda/attention/tiles.cuh"

namespace firn::kernels::cuda {

template <class T, class C>
struct BackwardIn {
  HeadsIn<T> dout, q, k, v;
  const C* log_sum_exp;
  const C* delta;
};

/// Computes a tile's weights: p as dv needs it, without the factor of dropout, and ds.
template <bool kBias, class C, int kTile, class T>
__device__ void gradient_tile(const AttentionProblem<C>& problem, const BackwardIn<T, C>& in,
                              std::int64_t b, std::int64_t head, std::int64_t query,
                              std::int64_t key, std::int64_t length, bool all,
                              AttentionShared<C, kTile>& shared, TilePart<C, kTile>& p,
                              TilePart<C, kTile>& ds) {
  using Part = TilePart<C, kTile>;
  const std::int64_t key_head = head / problem.group;
  multiply_rows(in.q.at(b, head), query, in.k.at(b, key_head), key, shared, p);
  multiply_rows(in.dout.at(b, head), query, in.v.at(b, key_head), key, shared, ds);
  __syncthreads();  // the previous tile has been read
#pragma unroll
  for (int a = 0; a < Part::kPer; ++a) {
    const std::int64_t i = query + Part::row(a);
    const bool inside = i < problem.band.queries;
    const std::int64_t number = (b * problem.heads + head) * problem.band.queries + i;
    const C shift = inside ? math::backward_shift(in.log_sum_exp[number]) : C(0);
    const C delta = inside ? in.delta[number] : C(0);
#pragma unroll
    for (int c = 0; c < Part::kPer; ++c) {
      const std::int64_t j = key + Part::column(c);
      const bool seen = all || problem.sees(b, head, i, j, length);
      shared.seen[Part::row(a)][Part::column(c)] = seen;
      if (!seen) {
        p.x[a][c] = ds.x[a][c] = C(0);
        continue;
      }
      const C probability =
          math::ShiftedExp<C>{shift}(problem.template score<kBias, T>(p.x[a][c], b, head, i, j));
      C kept = probability, dp = ds.x[a][c];
      if (problem.drops) {
        const bool keeps = problem.keeps(b, head, i, j);
        kept = keeps ? probability : C(0);
        dp = keeps ? dp * problem.share : C(0);
      }
      p.x[a][c] = kept;
      ds.x[a][c] = math::SoftmaxGrad<C>{delta}(dp, probability);
    }
  }
}

/// grad = beta grad + the gradient of the bias of a call.
template <class T, class C>
void attention_bias_gradient(const AttentionProblem<C>& problem, const BackwardIn<T, C>& in,
                             std::int64_t batch, const View& grad, float beta, Stream stream);

}  // namespace firn::kernels::cuda
