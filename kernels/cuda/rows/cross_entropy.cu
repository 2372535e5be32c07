// Cross-entropy on CUDA devices: softmax, logarithm and pick fused, one launch each way. In the
// forward pass a block adds up the losses of its rows, and the last block adds the blocks' sums in
// their order. The number of blocks follows from the shape alone.
#include <algorithm>
#include <limits>

#include "firn/kernel_support.h"
#include "kernels/cuda/device/fault.cuh"
#include "kernels/cuda/device/pending_seed.cuh"
#include "kernels/cuda/device/tickets.cuh"
#include "kernels/cuda/rows/driver.cuh"
#include "kernels/math/rows.h"
#include "kernels/rows.h"

namespace firn::kernels::cuda {
namespace {

constexpr int kPacks = 4;                // of a row in a thread's registers
constexpr std::int64_t kMaxSums = 1024;  // blocks of the forward pass

using Totals = math::SumPair<double>;  // loss, weight: a batch of any size costs no accuracy

/// Targets, class weights and the two coefficients of the loss (math/rows.h).
template <class C>
struct Setting {
  const void* target;
  DType target_dtype;
  std::int64_t target_stride;
  std::int64_t ignore_index, classes;
  RowVector weights;
  C hit, smooth;  ///< hit = 1 - s, smooth = s/n
  bool log_input;
  FaultSite site;

  Setting(const ConstView& targets, const CrossEntropyArgs& args, std::int64_t n)
      : target(targets.data),
        target_dtype(targets.dtype),
        target_stride(targets.strides[0]),
        ignore_index(args.ignore_index),
        classes(n),
        weights(args.class_weights, 1),
        hit(static_cast<C>(1 - args.label_smoothing)),
        smooth(n > 0 ? static_cast<C>(args.label_smoothing / static_cast<double>(n)) : C(0)),
        log_input(args.log_input),
        site(fault_site(args.log_input ? "nll_loss" : "cross_entropy", "target", targets.device)) {}

  __device__ std::int64_t target_of(std::int64_t row) const {
    return load_element<std::int64_t>(target, target_dtype, row * target_stride);
  }
  __device__ bool is_class(std::int64_t t) const { return t >= 0 && t < classes; }
};

template <class C>
inline constexpr C kNotANumber = std::numeric_limits<C>::quiet_NaN();

/// The sum over the block of each team's totals (given by its thread 0; the others' do not count),
/// in thread 0.
template <class Team>
__device__ Totals sum_of_teams(Totals mine) {
  if constexpr (std::is_same_v<Team, WarpTeam>) {
    return block_fold(Team::thread() == 0 ? mine : Totals(), Totals(),
                      gpu::dynamic_shared<Totals>(), Add());
  } else {
    return mine;
  }
}

template <class Team, int kHeld, class T>
static __global__ void __launch_bounds__(Team::kMaxThreads)
    cross_entropy_kernel(RowsIn<T> x, Setting<ComputeOf<T>> setting, std::int64_t rows,
                         ComputeOf<T>* loss, ComputeOf<T>* weight, ComputeOf<T>* stats,
                         Totals* sums, unsigned slot) {
  using C = ComputeOf<T>;
  constexpr int kWidth = Pack<T>::kWidth;
  const std::int64_t n = setting.classes;
  const RowsIn<T> in[1] = {x};
  Totals totals;
  for (std::int64_t i = Team::number(); i < rows; i += Team::count()) {
    const std::int64_t t = setting.target_of(i);
    C max = 0, log_sum = 0;
    if (t != setting.ignore_index) {
      const TeamRow<Team, kHeld, T> row(in, i, n);
      if (!setting.log_input) {
        max = row.sum(math::Largest<C>()).value;
        const math::ShiftedExp<C> term{max};
        log_sum = math::log(row.sum([&](C v) { return math::Sum<C>{term(v)}; }).value);
      }
      double row_loss = 0;
      if (setting.smooth != 0) {
        const math::WeightedNll<C> pass{max, log_sum};
        const auto all = row.template sum_packs<math::Sum<C>>(
            [&](std::int64_t j, int count, const C(&v)[1][kWidth]) {
              const auto w = setting.weights.template load<C, kWidth>(j, count);
              math::Sum<C> part;
              for (int k = 0; k < kWidth; ++k)
                if (k < count) part = part + pass(v[0][k], w.lane[k]);
              return part;
            });
        row_loss = setting.smooth * all.value;
      }
      if (Team::thread() == 0) {
        C w = kNotANumber<C>, at = 0;
        if (setting.is_class(t)) {
          w = setting.weights.template at<C>(t);
          at = widen(x.data[i * x.stride + t]);
        } else {
          raise_fault(setting.site, i, t, n);
        }
        // A weight of 0 counts for nothing, whatever log p is.
        if (w != 0) row_loss += setting.hit * w * (log_sum - (at - max));
        totals = totals + Totals{row_loss, static_cast<double>(w)};
      }
    }
    if (Team::thread() == 0) {
      stats[2 * i] = max;
      stats[2 * i + 1] = log_sum;
    }
  }

  totals = sum_of_teams<Team>(totals);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) sums[blockIdx.x] = totals;
    if (!is_last_block(&tickets[slot])) return;
    totals = {};
    for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) totals = totals + sums[b];
    totals = block_fold(totals, Totals(), gpu::dynamic_shared<Totals>(), Add());
  }
  if (threadIdx.x == 0) {
    *loss = static_cast<C>(totals.first);
    *weight = static_cast<C>(totals.second);
  }
}

template <class Team, int kHeld, class T, class O>
static __global__ void __launch_bounds__(Team::kMaxThreads)
    cross_entropy_backward_kernel(const ComputeOf<T>* dloss_at, RowsIn<T> x,
                                  Setting<ComputeOf<T>> setting, const ComputeOf<T>* stats,
                                  RowsOut<O> dx, std::int64_t rows, SeedPointers pending) {
  using C = ComputeOf<T>;
  constexpr int kWidth = Pack<T>::kWidth;
  const std::int64_t n = setting.classes;
  const RowsIn<T> in[1] = {x};
  __shared__ C seed;
  if (threadIdx.x == 0) {
    math::SeedSums ignored;
    seed = pending.seed ? static_cast<C>(pending.compute(ignored)) : *dloss_at;
  }
  __syncthreads();
  const C dloss = seed;
  C weight_sum = static_cast<C>(n);
  if (setting.smooth != 0 && setting.weights.data) {
    math::Sum<double> sum;
    for (std::int64_t j = threadIdx.x; j < n; j += blockDim.x)
      sum = sum + math::Sum<double>{static_cast<double>(setting.weights.template at<C>(j))};
    sum = block_fold(sum, math::Sum<double>(), gpu::dynamic_shared<math::Sum<double>>(), Add());
    weight_sum = static_cast<C>(sum.value);
  }
  const C spread = dloss * setting.smooth;

  for (std::int64_t i = Team::number(); i < rows; i += Team::count()) {
    const std::int64_t t = setting.target_of(i);
    const bool ignored = t == setting.ignore_index, known = setting.is_class(t);
    if (ignored && dx.beta != 0) continue;
    const TeamRow<Team, kHeld, T> row(in, i, n);
    if (ignored || !known) {
      const C fill = ignored ? C(0) : kNotANumber<C>;
      row.map(dx, [&](C) { return fill; });
      continue;
    }
    const C hit = dloss * setting.hit * setting.weights.template at<C>(t);
    const math::CrossEntropyGrad<C> grad{stats[2 * i], stats[2 * i + 1], hit + spread * weight_sum,
                                         spread};
    row.packs([&](int, std::int64_t j, int count, const C(&v)[1][kWidth]) {
      Lanes<C, kWidth> y;
      if (setting.smooth != 0) {
        const auto w = setting.weights.template load<C, kWidth>(j, count);
        for (int k = 0; k < kWidth; ++k)
          y.lane[k] = setting.log_input ? C(0) - spread * w.lane[k] : grad(v[0][k], w.lane[k]);
      } else {
        for (int k = 0; k < kWidth; ++k) y.lane[k] = setting.log_input ? C(0) : grad(v[0][k]);
      }
      for (int k = 0; k < kWidth; ++k)
        if (j + k == t) y.lane[k] -= hit;
      dx.store(i, j, count, y);
    });
  }
  if (pending.seed) pending.commit();
}

}  // namespace

void cross_entropy(const ConstView& x, const ConstView& target, const CrossEntropyArgs& args,
                   const View& loss, const View& weight, const View& stats, Stream stream) {
  const std::int64_t rows = x.shape[0], n = x.shape[1];
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const Setting<C> setting(target, args, n);
    with_row_teams<T, kPacks>(n, [&]<class Team, int kHeld>(TeamChoice<Team, kHeld> teams) {
      const dim3 grid = teams.grid(std::min(rows, kMaxSums * teams.teams_in_block()));
      const runtime::Workspace sums(grid.x > 1 ? grid.x * sizeof(Totals) : 0, stream);
      gpu::launch(setting.site.op, cross_entropy_kernel<Team, kHeld, T>, grid, dim3(teams.threads),
                  teams.shared, stream, RowsIn<T>(x), setting, rows, loss.as<C>(), weight.as<C>(),
                  stats.as<C>(), sums.as<Totals>(), grid.x > 1 ? ticket_slot(stream) : 0u);
    });
  });
}

void cross_entropy_backward(const ConstView& dloss, const ConstView& x, const ConstView& target,
                            const ConstView& stats, const CrossEntropyArgs& args, const View& dx,
                            float beta, const PendingSeed* pending, Stream stream) {
  const std::int64_t rows = x.shape[0], n = x.shape[1];
  if (rows == 0 || n == 0) return;
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const Setting<C> setting(target, args, n);
    with_sink<T>(dx.dtype, [&]<class O>(O) {
      with_row_teams<T, kPacks>(n, [&]<class Team, int kHeld>(TeamChoice<Team, kHeld> teams) {
        gpu::launch("cross_entropy_backward", cross_entropy_backward_kernel<Team, kHeld, T, O>,
                    teams.grid(rows), dim3(teams.threads), teams.shared, stream, dloss.as<C>(),
                    RowsIn<T>(x), setting, stats.as<C>(), RowsOut<O>(dx, beta), rows,
                    SeedPointers(pending));
      });
    });
  });
}

}  // namespace firn::kernels::cuda
