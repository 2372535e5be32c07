// Attention by firn's kernels. A block has a tile of queries of a head, and passes over the tiles
// of keys that they see. It keeps the maximum and the sum of its rows so far. It writes one chunk
// of the value's columns; each chunk computes the scores for itself.
#include <type_traits>

#include "kernels/cuda/attention/parts.h"
#include "kernels/cuda/attention/tiles.cuh"

namespace firn::kernels::cuda {
namespace {

/// Folds the values of the 16 threads that have parts of one row.
template <class C, class Fold>
__device__ C row_fold(C value, Fold fold) {
  for (int step = kSide / 2; step > 0; step /= 2) value = fold(value, shuffle_xor(value, step));
  return value;
}

template <class T, class C, int kTile, bool kBias>
static __global__ void __launch_bounds__(kSide* kSide)
    forward_kernel(AttentionProblem<C> problem, HeadsIn<T> q, HeadsIn<T> k, HeadsIn<T> v,
                   HeadsOut o, C* log_sum_exp, std::int64_t tiles, std::int64_t chunks) {
  using Part = TilePart<C, kTile>;
  auto& shared = *gpu::dynamic_shared<AttentionShared<C, kTile>>();
  const BlockPlace at = block_place<kTile>(tiles, problem.heads, chunks);
  const std::int64_t query = at.tile * kTile, key_head = at.head / problem.group;
  const std::int64_t length = problem.length(at.b);
  if (problem.lengths && blockIdx.x % (tiles * chunks * problem.heads) == 0 && threadIdx.x == 0) {
    const std::int64_t given = problem.given_length(at.b);
    if (given != length) raise_fault(problem.fault, at.b, given, problem.band.keys + 1);
  }

  C max[Part::kPer], sum[Part::kPer];
  Part total;
  total.clear();
#pragma unroll
  for (int a = 0; a < Part::kPer; ++a) {
    max[a] = C(-HUGE_VALF);
    sum[a] = C(0);
  }
  const std::int64_t last = math::min(query + kTile, problem.band.queries) - 1;
  const TileRange range =
      tiles_of<kTile>(problem.band.first_key(query), problem.band.end_key(last, length));
  for (std::int64_t j = range.first; j < range.end; ++j) {
    const std::int64_t key = j * kTile;
    const bool all = problem.sees_all(query, key, kTile, length);
    Part scores;
    multiply_rows(q.at(at.b, at.head), query, k.at(at.b, key_head), key, shared, scores);
    __syncthreads();  // the previous tile has been read
#pragma unroll
    for (int a = 0; a < Part::kPer; ++a) {
      const int r = Part::row(a);
      C largest = max[a];
      for (int b = 0; b < Part::kPer; ++b) {
        const int c = Part::column(b);
        const bool seen = all || problem.sees(at.b, at.head, query + r, key + c, length);
        shared.seen[r][c] = seen;
        scores.x[a][b] = seen ? problem.template score<kBias, T>(scores.x[a][b], at.b, at.head,
                                                                 query + r, key + c)
                              : C(-HUGE_VALF);
        largest = math::max(largest, scores.x[a][b]);
      }
      const auto larger = [](C x, C y) { return math::max(x, y); };
      const C now = row_fold(largest, larger), shift = math::softmax_shift(now);
      C terms(0);
      for (int b = 0; b < Part::kPer; ++b) {
        const int c = Part::column(b);
        C p = math::ShiftedExp<C>{shift}(scores.x[a][b]);
        terms += p;
        if (problem.drops && !problem.keeps(at.b, at.head, query + r, key + c)) p = C(0);
        shared.weights[r][c] = p;
      }
      const C factor = math::exp(max[a] - shift);
      sum[a] = sum[a] * factor + row_fold(terms, Add());
      // A factor of 1 would leave NaN and infinities as they are, so it may be skipped.
      for (int b = 0; b < Part::kPer && now != max[a]; ++b) total.x[a][b] *= factor;
      max[a] = now;
    }
    add_weighted<false>(v.at(at.b, key_head), key, at.column, all, shared, total);
  }
#pragma unroll
  for (int a = 0; a < Part::kPer; ++a) {
    const C share = math::softmax_share(sum[a]) * problem.share;
    for (int b = 0; b < Part::kPer; ++b) total.x[a][b] *= share;
    const std::int64_t i = query + Part::row(a);
    if (log_sum_exp && at.column == 0 && thread_column() == 0 && i < problem.band.queries)
      log_sum_exp[(at.b * problem.heads + at.head) * problem.band.queries + i] =
          math::log_sum_exp(max[a], sum[a]);
  }
  store_part(total, shared, o, at.b, at.head, query, problem.band.queries, at.column, v.depth,
             C(1));
}

}  // namespace

void own_attention(const ConstView& q, const ConstView& k, const ConstView& v,
                   const AttentionArgs& args, const View& o, const View& log_sum_exp,
                   Stream stream) {
  if (o.numel() == 0 && (!log_sum_exp.data || log_sum_exp.numel() == 0)) return;
  with_floating(q.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    constexpr int kTile = kTileOf<C>;
    const std::int64_t tiles = math::ceil_div(q.shape[2], kTile);
    const std::int64_t chunks = v.shape[3] == 0 ? 1 : math::ceil_div(v.shape[3], kTile);
    const std::int64_t blocks = q.shape[0] * q.shape[1] * tiles * chunks;
    const auto launch = [&](auto bias) {
      gpu::launch("attention", forward_kernel<T, C, kTile, decltype(bias)::value>,
                  dim3(static_cast<unsigned>(blocks)), dim3(kSide * kSide),
                  sizeof(AttentionShared<C, kTile>), stream,
                  AttentionProblem<C>(q, k, args, stream), HeadsIn<T>(q), HeadsIn<T>(k),
                  HeadsIn<T>(v), HeadsOut(o, 0), log_sum_exp.as<C>(), tiles, chunks);
    };
    args.bias.data ? launch(std::true_type()) : launch(std::false_type());
  });
}

}  // namespace firn::kernels::cuda
