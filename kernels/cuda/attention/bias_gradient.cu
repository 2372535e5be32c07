// The gradient of attention's bias: the gradients of scores, summed over the axes along which the
// bias was repeated, without atomics. A block owns a tile of the gradient, or a part of its sum.
#include "kernels/cuda/attention/gradient.cuh"
#include "kernels/math/sequence/attention_bias.h"

namespace firn::kernels::cuda {
namespace {

/// Least number of blocks of a call, if there is work for them.
constexpr std::int64_t kLeastBlocks = 256;

/// The gradient, [batch, heads, rows, columns] with 1 for repeated axes.
struct BiasOut {
  HeadsOut out;
  std::int64_t rows, columns;
};

/// Folds the rows and columns of a sum that the bias repeats, and stores the tile.
template <class C, int kTile>
__device__ void store_bias_tile(const TilePart<C, kTile>& sum, AttentionShared<C, kTile>& shared,
                                const math::AttentionBiasTiles::Place& at, const BiasOut& grad) {
  publish(sum, shared);
  __syncthreads();
  const int t = static_cast<int>(threadIdx.x);
  if (grad.rows == 1) {
    for (int r = 1; r < kTile && t < kTile; ++r) shared.weights[0][t] += shared.weights[r][t];
    __syncthreads();
  }
  if (grad.columns == 1) {
    for (int c = 1; c < kTile && t < kTile; ++c) shared.weights[t][0] += shared.weights[t][c];
    __syncthreads();
  }
  const std::int64_t row = at.queries * kTile, column = at.keys * kTile;
  for (int i = t; i < kTile * kTile; i += kSide * kSide) {
    const int r = i / kTile, c = i % kTile;
    if (row + r < grad.rows && column + c < grad.columns)
      grad.out.store(at.batch, at.head, row + r, column + c, shared.weights[r][c]);
  }
}

/// Block tile * parts + part adds that part of a tile's pairs, into `sums` if there are several.
template <class T, class C, int kTile>
static __global__ void __launch_bounds__(kSide* kSide)
    bias_kernel(AttentionProblem<C> problem, BackwardIn<T, C> in, math::AttentionBiasTiles tiles,
                BiasOut grad, C* sums) {
  using Part = TilePart<C, kTile>;
  auto& shared = *gpu::dynamic_shared<AttentionShared<C, kTile>>();
  const std::int64_t tile = blockIdx.x / tiles.parts, part = blockIdx.x % tiles.parts;
  const std::int64_t end = tiles.first_repeat(part + 1);
  Part sum;
  sum.clear();
  for (std::int64_t i = tiles.first_repeat(part); i < end; ++i) {
    const math::AttentionBiasTiles::Place at = tiles.place(tile, i);
    const std::int64_t query = at.queries * kTile, key = at.keys * kTile;
    const std::int64_t length = problem.length(at.batch);
    if (!problem.sees_some(query, key, kTile, length)) continue;
    const bool all = problem.sees_all(query, key, kTile, length);
    Part p, ds;
    gradient_tile<true>(problem, in, at.batch, at.head, query, key, length, all, shared, p, ds);
#pragma unroll
    for (int a = 0; a < Part::kPer; ++a)
#pragma unroll
      for (int b = 0; b < Part::kPer; ++b) sum.x[a][b] += ds.x[a][b];
  }
  if (tiles.parts == 1) {
    store_bias_tile(sum, shared, tiles.place(tile), grad);
    return;
  }
  C* const to = sums + std::int64_t{blockIdx.x} * kTile * kTile;
#pragma unroll
  for (int a = 0; a < Part::kPer; ++a)
#pragma unroll
    for (int b = 0; b < Part::kPer; ++b) to[Part::row(a) * kTile + Part::column(b)] = sum.x[a][b];
}

/// Block `tile` adds the parts of its tile.
template <class C, int kTile>
static __global__ void __launch_bounds__(kSide* kSide)
    bias_parts_kernel(math::AttentionBiasTiles tiles, const C* sums, BiasOut grad) {
  using Part = TilePart<C, kTile>;
  auto& shared = *gpu::dynamic_shared<AttentionShared<C, kTile>>();
  Part sum;
  sum.clear();
  const C* from = sums + blockIdx.x * tiles.parts * kTile * kTile;
  for (std::int64_t part = 0; part < tiles.parts; ++part, from += kTile * kTile) {
#pragma unroll
    for (int a = 0; a < Part::kPer; ++a)
#pragma unroll
      for (int b = 0; b < Part::kPer; ++b)
        sum.x[a][b] += from[Part::row(a) * kTile + Part::column(b)];
  }
  store_bias_tile(sum, shared, tiles.place(blockIdx.x), grad);
}

}  // namespace

template <class T, class C>
void attention_bias_gradient(const AttentionProblem<C>& problem, const BackwardIn<T, C>& in,
                             std::int64_t batch, const View& grad, float beta, Stream stream) {
  constexpr int kTile = kTileOf<C>;
  constexpr std::size_t kShared = sizeof(AttentionShared<C, kTile>);
  const Shape& s = grad.shape;
  const math::AttentionBiasTiles tiles(
      {batch, problem.heads, problem.band.queries, problem.band.keys}, {s[0], s[1], s[2], s[3]},
      kTile, kTile, kLeastBlocks);
  const std::int64_t count = tiles.count(), blocks = count * tiles.parts;
  if (count == 0) return;
  const BiasOut out{HeadsOut(grad, beta), s[2], s[3]};
  const std::size_t elements =
      tiles.parts > 1 ? static_cast<std::size_t>(blocks) * kTile * kTile : 0;
  const runtime::Workspace sums(elements * sizeof(C), stream);
  gpu::launch("attention_backward_bias", bias_kernel<T, C, kTile>,
              dim3(static_cast<unsigned>(blocks)), dim3(kSide * kSide), kShared, stream, problem,
              in, tiles, out, sums.as<C>());
  if (tiles.parts > 1)
    gpu::launch("attention_backward_bias_parts", bias_parts_kernel<C, kTile>,
                dim3(static_cast<unsigned>(count)), dim3(kSide * kSide), kShared, stream, tiles,
                static_cast<const C*>(sums.as<C>()), out);
}

#define FIRN_BIAS_GRADIENT(T, C)                                                             \
  template void attention_bias_gradient(const AttentionProblem<C>&, const BackwardIn<T, C>&, \
                                        std::int64_t, const View&, float, Stream);
FIRN_BIAS_GRADIENT(__half, float)
FIRN_BIAS_GRADIENT(__nv_bfloat16, float)
FIRN_BIAS_GRADIENT(float, float)
FIRN_BIAS_GRADIENT(double, double)
#undef FIRN_BIAS_GRADIENT

}  // namespace firn::kernels::cuda
