// The gradients of attention by firn's kernels, without atomics. One pass has a tile of keys in
// each block and adds dk and dv over the queries that see it; the other has a tile of queries and
// adds dq over the keys. The formulas are in kernels/cpu/attention/backward.cpp.
#include "kernels/cuda/attention/gradient.cuh"
#include "kernels/cuda/attention/parts.h"

namespace firn::kernels::cuda {
namespace {

/// Computes delta of a row: the sum of do o. Each warp has a row.
template <class T, class C>
static __global__ void delta_kernel(HeadsIn<T> dout, HeadsIn<T> o, std::int64_t heads,
                                    std::int64_t rows, C* delta) {
  const std::int64_t warps = grid_threads() / kWarp;
  for (std::int64_t i = global_thread() / kWarp; i < rows; i += warps) {
    const std::int64_t row = i % o.rows, head = i / o.rows % heads, b = i / o.rows / heads;
    const HeadRows<T> x = dout.at(b, head), y = o.at(b, head);
    C sum(0);
    for (std::int64_t e = threadIdx.x % kWarp; e < o.depth; e += kWarp)
      sum += static_cast<C>(widen(x.data[row * x.stride + e])) *
             static_cast<C>(widen(y.data[row * y.stride + e]));
    sum = warp_fold(sum, Add());
    if (threadIdx.x % kWarp == 0) delta[i] = sum;
  }
}

template <class T, class C, int kTile, bool kBias>
static __global__ void __launch_bounds__(kSide* kSide)
    keys_kernel(AttentionProblem<C> problem, BackwardIn<T, C> in, HeadsOut dk, HeadsOut dv,
                std::int64_t tiles, std::int64_t key_heads, std::int64_t chunks) {
  using Part = TilePart<C, kTile>;
  auto& shared = *gpu::dynamic_shared<AttentionShared<C, kTile>>();
  const BlockPlace at = block_place<kTile>(tiles, key_heads, chunks);
  const std::int64_t key = at.tile * kTile, length = problem.length(at.b);
  const std::int64_t last = math::min(key + kTile, problem.band.keys) - 1;
  const TileRange range =
      key < length ? tiles_of<kTile>(problem.band.first_query(key), problem.band.end_query(last))
                   : TileRange{0, 0};
  Part dk_sum, dv_sum;
  dk_sum.clear();
  dv_sum.clear();
  for (std::int64_t member = 0; member < problem.group; ++member) {
    const std::int64_t head = at.head * problem.group + member;
    for (std::int64_t i = range.first; i < range.end; ++i) {
      const std::int64_t query = i * kTile;
      const bool all = problem.sees_all(query, key, kTile, length);
      Part p, ds;
      gradient_tile<kBias>(problem, in, at.b, head, query, key, length, all, shared, p, ds);
      if (dv.data) {
        publish(p, shared);
        add_weighted<true>(in.dout.at(at.b, head), query, at.column, all, shared, dv_sum);
      }
      if (dk.data) {
        publish(ds, shared);
        add_weighted<true>(in.q.at(at.b, head), query, at.column, all, shared, dk_sum);
      }
    }
  }
  store_part(dk_sum, shared, dk, at.b, at.head, key, problem.band.keys, at.column, in.k.depth,
             problem.scale);
  store_part(dv_sum, shared, dv, at.b, at.head, key, problem.band.keys, at.column, in.v.depth,
             problem.share);
}

template <class T, class C, int kTile, bool kBias>
static __global__ void __launch_bounds__(kSide* kSide)
    queries_kernel(AttentionProblem<C> problem, BackwardIn<T, C> in, HeadsOut dq,
                   std::int64_t tiles, std::int64_t chunks) {
  using Part = TilePart<C, kTile>;
  auto& shared = *gpu::dynamic_shared<AttentionShared<C, kTile>>();
  const BlockPlace at = block_place<kTile>(tiles, problem.heads, chunks);
  const std::int64_t query = at.tile * kTile, length = problem.length(at.b);
  const std::int64_t last = math::min(query + kTile, problem.band.queries) - 1;
  const TileRange range =
      tiles_of<kTile>(problem.band.first_key(query), problem.band.end_key(last, length));
  Part sum;
  sum.clear();
  for (std::int64_t j = range.first; j < range.end; ++j) {
    const bool all = problem.sees_all(query, j * kTile, kTile, length);
    Part p, ds;
    gradient_tile<kBias>(problem, in, at.b, at.head, query, j * kTile, length, all, shared, p, ds);
    publish(ds, shared);
    add_weighted<false>(in.k.at(at.b, at.head / problem.group), j * kTile, at.column, all, shared,
                        sum);
  }
  store_part(sum, shared, dq, at.b, at.head, query, problem.band.queries, at.column, in.q.depth,
             problem.scale);
}

/// Launches the kernels for those gradients of q, k and v that are wanted.
template <bool kBias, class T, class C>
void launch_gradients(const AttentionProblem<C>& problem, const BackwardIn<T, C>& in,
                      std::int64_t batch, std::int64_t key_heads, const AttentionGrads& grads,
                      Stream stream) {
  constexpr int kTile = kTileOf<C>;
  constexpr std::size_t kShared = sizeof(AttentionShared<C, kTile>);
  const auto chunks_of = [](std::int64_t columns) { return math::ceil_div(columns, kTile); };
  const std::int64_t key_chunks = std::max(grads.dk.data ? chunks_of(in.k.depth) : 0,
                                           grads.dv.data ? chunks_of(in.v.depth) : 0);
  const std::int64_t key_tiles = math::ceil_div(problem.band.keys, kTile);
  const std::int64_t key_blocks = batch * key_heads * key_tiles * key_chunks;
  if (key_blocks > 0)
    gpu::launch("attention_backward_keys", keys_kernel<T, C, kTile, kBias>,
                dim3(static_cast<unsigned>(key_blocks)), dim3(kSide * kSide), kShared, stream,
                problem, in, HeadsOut(grads.dk, grads.dk_beta), HeadsOut(grads.dv, grads.dv_beta),
                key_tiles, key_heads, key_chunks);
  const std::int64_t chunks = grads.dq.data ? chunks_of(in.q.depth) : 0;
  const std::int64_t tiles = math::ceil_div(problem.band.queries, kTile);
  const std::int64_t blocks = batch * problem.heads * tiles * chunks;
  if (blocks > 0)
    gpu::launch("attention_backward_queries", queries_kernel<T, C, kTile, kBias>,
                dim3(static_cast<unsigned>(blocks)), dim3(kSide * kSide), kShared, stream, problem,
                in, HeadsOut(grads.dq, grads.dq_beta), tiles, chunks);
}

}  // namespace

void own_attention_backward(const ConstView& dout, const ConstView& q, const ConstView& k,
                            const ConstView& v, const ConstView& o, const ConstView& log_sum_exp,
                            const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  with_floating(q.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const std::int64_t rows = q.shape[0] * q.shape[1] * q.shape[2];
    const runtime::Workspace delta(static_cast<std::size_t>(rows) * sizeof(C), stream);
    if (rows > 0)
      gpu::launch("attention_delta", delta_kernel<T, C>, grid_for(rows * kWarp), dim3(kBlock), 0,
                  stream, HeadsIn<T>(dout), HeadsIn<T>(o), q.shape[1], rows, delta.as<C>());
    const AttentionProblem<C> problem(q, k, args, stream);
    const BackwardIn<T, C> in{HeadsIn<T>(dout), HeadsIn<T>(q),       HeadsIn<T>(k),
                              HeadsIn<T>(v),    log_sum_exp.as<C>(), delta.as<C>()};
    if (grads.dbias.data)
      attention_bias_gradient(problem, in, q.shape[0], grads.dbias, grads.dbias_beta, stream);
    if (q.shape[0] == 0 || k.shape[1] == 0) return;
    if (args.bias.data) {
      launch_gradients<true>(problem, in, q.shape[0], k.shape[1], grads, stream);
    } else {
      launch_gradients<false>(problem, in, q.shape[0], k.shape[1], grads, stream);
    }
  });
}

}  // namespace firn::kernels::cuda
