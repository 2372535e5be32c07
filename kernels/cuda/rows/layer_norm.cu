// Layer norm and RMS norm on CUDA devices. The backward pass reads dy and x once. A team keeps sums
// for the parameters' gradients in registers from row to row; a second launch adds the teams' sums
// in order. The number of teams depends on the shape alone.
#include <algorithm>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/rows/driver.cuh"
#include "kernels/math/channel_norm.h"
#include "kernels/math/rows.h"
#include "kernels/rows.h"

namespace firn::kernels::cuda {
namespace {

constexpr int kPacks = 4;                      // packs of a row in a thread's registers
constexpr int kBackwardPacks = 2;              // packs of each of two inputs, besides two sums
constexpr std::int64_t kRowsOfTeam = 16;       // rows that share one team's sums, if there are many
constexpr std::int64_t kFewTeams = 128;        // up to this number, teams may have fewer
constexpr std::int64_t kMaxThreads = 1 << 17;  // threads of all teams that keep sums

// ---- Forward ----

template <class C>
struct NormOut {
  C *mean, *rstd;  // mean and rstd of every row; mean may be null
};

template <class Team, int kHeld, class T>
static __global__ void __launch_bounds__(Team::kMaxThreads, Team::kMinBlocks)
    norm_kernel(RowsIn<T> x, RowVector weight, RowVector bias, double eps, bool center,
                RowsOut<T> y, NormOut<ComputeOf<T>> out, std::int64_t rows, std::int64_t n) {
  using C = ComputeOf<T>;
  using Row = TeamRow<Team, kHeld, T>;
  using Column = typename Row::Column;
  constexpr int kWidth = Row::kWidth;
  const RowsIn<T> in[1] = {x};
  const C count_n = static_cast<C>(n);
  for (std::int64_t i = Team::number(); i < rows; i += Team::count()) {
    const Row row(in, i, n, 0);
    const C mean = center ? row.sum(math::Elements<C>()).value / count_n : C(0);
    const math::Distances<C> from{mean};  // the pad's distance is not 0
    const auto distances =
        row.template sum_packs<math::SumPair<C>>([&](Column, int count, const C(&v)[1][kWidth]) {
          math::SumPair<C> part;
          for (int k = 0; k < kWidth; ++k)
            if (k < count) part = part + from(v[0][k]);
          return part;
        });
    const C var = math::variance_of(center, distances, C(1) / count_n);
    const C rstd = math::rsqrt(var + static_cast<C>(eps));
    const math::Norm<C> norm{mean, rstd};
    row.packs([&](int, Column j, int count, const C(&v)[1][kWidth]) {
      const auto w = weight.template load<C, kWidth>(j, count),
                 b = bias.template load<C, kWidth>(j, count);
      Lanes<C, kWidth> result;
      for (int k = 0; k < kWidth; ++k) result.lane[k] = norm(v[0][k], w.lane[k], b.lane[k]);
      y.store(i, j, count, result);
    });
    if (Team::thread() == 0) {
      if (out.mean) out.mean[i] = mean;
      out.rstd[i] = rstd;
    }
  }
}

// ---- Backward ----

template <class T>
struct NormIn {
  using C = ComputeOf<T>;
  RowsIn<T> rows[2];  // dy, x
  RowVector weight;
  const C *mean, *rstd;
  bool center;

  __device__ C mean_of(std::int64_t row) const { return center ? mean[row] : C(0); }
};

/// Writes dx of every row if `data`. If `sums` is not null, writes each team's sums for dweight and
/// dbias to sums[team][2][n].
template <class Team, int kHeld, class T, class O>
static __global__ void __launch_bounds__(Team::kMaxThreads, Team::kMinBlocks)
    norm_backward_kernel(NormIn<T> in, RowsOut<O> dx, bool data, ComputeOf<T>* sums,
                         std::int64_t teams, std::int64_t rows, std::int64_t n) {
  using C = ComputeOf<T>;
  using Row = TeamRow<Team, kHeld, T, 2>;
  using Column = typename Row::Column;
  constexpr int kWidth = Row::kWidth;
  constexpr int kSums = kHeld > 0 ? kHeld : 1;
  const C count_n = static_cast<C>(n);
  C dweight[kSums][kWidth] = {}, dbias[kSums][kWidth] = {};
  const std::int64_t first = Team::number() < teams ? Team::number() : rows;  // else no row is left
  for (std::int64_t i = first; i < rows; i += teams) {
    const Row row(in.rows, i, n, 0);
    const C mean = in.mean_of(i), rstd = in.rstd[i];
    if (data) {
      const math::NormGradPass<C> pass{mean, rstd};
      const auto s = row.template sum_packs<math::SumPair<C>>(
          [&](Column j, int count, const C(&x)[2][kWidth]) {
            const auto w = in.weight.template load<C, kWidth>(j, count);
            math::SumPair<C> part;
            for (int k = 0; k < kWidth; ++k) part = part + pass(x[0][k], x[1][k], w.lane[k]);
            return part;
          });
      const math::NormGrad<C> grad{mean, rstd, in.center ? s.first / count_n : C(0),
                                   s.second / count_n};
      row.packs([&](int, Column j, int count, const C(&x)[2][kWidth]) {
        const auto w = in.weight.template load<C, kWidth>(j, count);
        Lanes<C, kWidth> result;
        for (int k = 0; k < kWidth; ++k) result.lane[k] = grad(x[0][k], x[1][k], w.lane[k]);
        dx.store(i, j, count, result);
      });
    }
    if constexpr (kHeld > 0) {
      if (sums) {
        row.packs([&](int p, Column, int, const C(&x)[2][kWidth]) {
          for (int k = 0; k < kWidth; ++k) {
            dweight[p][k] += x[0][k] * math::NormGrad<C>::normalised(x[1][k], mean, rstd);
            dbias[p][k] += x[0][k];
          }
        });
      }
    }
  }
  if constexpr (kHeld > 0) {
    if (!sums || Team::number() >= teams) return;
    C* const mine = sums + Team::number() * 2 * n;
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      for (int k = 0; k < kWidth; ++k) {
        const std::int64_t j = (std::int64_t{p} * Team::threads() + Team::thread()) * kWidth + k;
        if (j >= n) continue;
        mine[j] = dweight[p][k];
        mine[n + j] = dbias[p][k];
      }
    }
  }
}

/// Adds up a block's values of 32 columns and `lines` lines, one per thread, in the order of the
/// lines. Returns the sum of the thread's column. `scratch` holds one value per thread.
template <class C>
__device__ C fold_lines(C value, C* scratch, int lines) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  __syncthreads();  // an earlier call may still read scratch
  scratch[threadIdx.x] = value;
  __syncthreads();
  C sum = scratch[lane];
  for (int line = 1; line < lines; ++line) sum += scratch[line * kWarp + lane];
  return sum;
}

/// Computes the parameters' sums if rows are too long for registers. Blocks have 32 columns and
/// kBlock / 32 lines, each with a chunk of rows; they write sums[chunk][2][n].
template <class T>
static __global__ void norm_columns_kernel(NormIn<T> in, ComputeOf<T>* sums, std::int64_t chunks,
                                           std::int64_t chunk, std::int64_t rows, std::int64_t n) {
  using C = ComputeOf<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int line = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t part = blockIdx.x % chunks;
  const std::int64_t j = blockIdx.x / chunks * kWarp + lane;
  const std::int64_t begin = part * chunk, end = begin + chunk < rows ? begin + chunk : rows;
  C dweight = 0, dbias = 0;
  for (std::int64_t i = begin + line; i < end && j < n; i += kBlock / kWarp) {
    const C dy = widen(in.rows[0].data[i * in.rows[0].stride + j]);
    const C x = widen(in.rows[1].data[i * in.rows[1].stride + j]);
    dweight += dy * math::NormGrad<C>::normalised(x, in.mean_of(i), in.rstd[i]);
    dbias += dy;
  }
  C* const scratch = gpu::dynamic_shared<C>();
  dweight = fold_lines(dweight, scratch, kBlock / kWarp);
  dbias = fold_lines(dbias, scratch, kBlock / kWarp);
  if (line > 0 || j >= n) return;
  sums[part * 2 * n + j] = dweight;
  sums[part * 2 * n + n + j] = dbias;
}

/// A parameter's gradient: grad = beta*grad + sum; unused if data is null.
struct ParameterGrad {
  void* data;
  DType dtype;
  std::int64_t stride;
  float beta;
};

constexpr int kMaxLines = 32;  // lines of a block that adds up the teams' sums

/// Computes both gradients from sums[team][2][n]. One thread stores both of a column, because
/// weight and bias may be one tensor.
template <class C>
static __global__ void __launch_bounds__(kMaxLines* kWarp)
    norm_parameters_kernel(const C* sums, std::int64_t teams, std::int64_t n, ParameterGrad dweight,
                           ParameterGrad dbias) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int line = static_cast<int>(threadIdx.x) / kWarp;
  const int lines = static_cast<int>(blockDim.x) / kWarp;
  const std::int64_t j = std::int64_t{blockIdx.x} * kWarp + lane;
  for (int which = 0; which < 2; ++which) {
    const ParameterGrad grad = which == 0 ? dweight : dbias;
    C sum = 0;
    if (grad.data && j < n) {
#pragma unroll 4
      for (std::int64_t t = line; t < teams; t += lines) sum += sums[(t * 2 + which) * n + j];
    }
    sum = fold_lines(sum, gpu::dynamic_shared<C>(), lines);
    if (!grad.data || j >= n || line > 0) continue;
    if (grad.beta != 0)
      sum += static_cast<C>(grad.beta) * load_element<C>(grad.data, grad.dtype, j * grad.stride);
    store_element(sum, grad.data, grad.dtype, j * grad.stride);
  }
}

ParameterGrad parameter(const View& v, float beta) {
  return {v.data, v.dtype, v.data ? v.strides[0] : 0, beta};
}

template <class T, class O>
void norm_backward_as(const NormIn<T>& in, const NormGrads& grads, std::int64_t rows,
                      std::int64_t n, Stream stream) {
  using C = ComputeOf<T>;
  const char* const op = in.center ? "layer_norm_backward" : "rms_norm_backward";
  const bool data = grads.dx.data, parameters = grads.dweight.data || grads.dbias.data;
  // `none` stands in for an absent dx; nothing is stored there.
  const View none{nullptr, DType::f32, stream.device, {rows, n}, {n, 1}};
  const RowsOut<O> dx(data ? grads.dx : none, grads.dx_beta);
  const auto add_up = [&](const C* sums, std::int64_t teams) {
    const auto threads =
        static_cast<unsigned>(std::clamp<std::int64_t>(teams, 1, kMaxLines) * kWarp);
    gpu::launch(
        op, norm_parameters_kernel<C>, dim3(static_cast<unsigned>(math::ceil_div(n, kWarp))),
        dim3(threads), threads * sizeof(C), stream, sums, teams, n,
        parameter(grads.dweight, grads.dweight_beta), parameter(grads.dbias, grads.dbias_beta));
  };
  if (rows == 0) {  // the sums over no rows must be stored
    if (parameters) add_up(nullptr, 0);
    return;
  }
  with_row_teams<T, kBackwardPacks>(n, [&]<class Team, int kHeld>(TeamChoice<Team, kHeld> choice) {
    std::int64_t teams = rows;
    const bool together = parameters && kHeld > 0;
    if (together) {
      const std::int64_t most = kMaxThreads / (choice.threads / choice.teams_in_block());
      teams =
          std::min(most, std::max(math::ceil_div(rows, kRowsOfTeam), std::min(rows, kFewTeams)));
    }
    const dim3 grid = choice.grid(teams);
    const std::int64_t in_grid = std::int64_t{grid.x} * choice.teams_in_block();
    teams = together ? std::min(teams, in_grid) : in_grid;
    std::int64_t chunks = 1;
    if (parameters && !together) {
      chunks =
          std::clamp<std::int64_t>(1024 / math::ceil_div(n, kWarp), 1, math::ceil_div(rows, 64));
    }
    const std::int64_t partials = !parameters ? 0 : together ? teams : chunks;
    const runtime::Workspace workspace(static_cast<std::size_t>(partials * 2 * n) * sizeof(C),
                                       stream);
    C* const sums = workspace.as<C>();
    if (data || together) {
      gpu::launch(op, norm_backward_kernel<Team, kHeld, T, O>, grid, dim3(choice.threads),
                  choice.shared, stream, in, dx, data, together ? sums : nullptr, teams, rows, n);
    }
    if (parameters && !together) {
      gpu::launch(op, norm_columns_kernel<T>,
                  dim3(static_cast<unsigned>(chunks * math::ceil_div(n, kWarp))), dim3(kBlock),
                  kBlock * sizeof(C), stream, in, sums, chunks, math::ceil_div(rows, chunks), rows,
                  n);
    }
    if (parameters) add_up(sums, partials);
  });
}

}  // namespace

void norm(const ConstView& x, const ConstView& weight, const ConstView& bias, double eps,
          bool center, const View& y, const View& mean, const View& rstd, Stream stream) {
  const std::int64_t rows = x.shape[0], n = x.shape[1];
  if (rows == 0) return;
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const NormOut<C> out{center ? mean.as<C>() : nullptr, rstd.as<C>()};
    with_row_teams<T, kPacks>(n, [&]<class Team, int kHeld>(TeamChoice<Team, kHeld> teams) {
      gpu::launch(center ? "layer_norm" : "rms_norm", norm_kernel<Team, kHeld, T>, teams.grid(rows),
                  dim3(teams.threads), teams.shared, stream, RowsIn<T>(x), RowVector(weight, 1),
                  RowVector(bias, 0), eps, center, RowsOut<T>(y, 0), out, rows, n);
    });
  });
}

void norm_backward(const ConstView& dy, const ConstView& x, const ConstView& weight,
                   const ConstView& mean, const ConstView& rstd, bool center,
                   const NormGrads& grads, Stream stream) {
  const std::int64_t rows = x.shape[0], n = x.shape[1];
  if (n == 0) return;
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const NormIn<T> in{{RowsIn<T>(dy), RowsIn<T>(x)},
                       RowVector(weight, 1),
                       center ? mean.as<C>() : nullptr,
                       rstd.as<C>(),
                       center};
    with_sink<T>(grads.dx.data ? grads.dx.dtype : x.dtype,
                 [&]<class O>(O) { norm_backward_as<T, O>(in, grads, rows, n, stream); });
  });
}

}  // namespace firn::kernels::cuda
