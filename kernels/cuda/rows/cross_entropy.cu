// Cross-entropy on CUDA devices. Softmax, logarithm and pick are fused in one launch each way, or
// one for each chunk of the logits. In the forward pass a block adds up the losses of its rows, and
// the last block adds the blocks' sums in their order. The shape alone decides the number of
// blocks.
#include <algorithm>
#include <limits>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/device/fault.cuh"
#include "kernels/cuda/device/pending_gradient.cuh"
#include "kernels/cuda/device/tickets.cuh"
#include "kernels/cuda/rows/driver.cuh"
#include "kernels/math/rows.h"
#include "kernels/rows.h"

namespace firn::kernels::cuda {
namespace {

constexpr int kPacks = 4;                // packs of a row in a thread's registers
constexpr std::int64_t kMaxSums = 1024;  // most blocks of the forward pass

using Totals = math::SumPair<double>;  // loss, weight; f64 keeps accuracy for any batch size

/// The arguments as the kernels need them: targets, weights, and the coefficients of the loss
/// (math/rows.h).
template <class C>
struct Setting {
  const void* target;
  DType target_dtype;
  std::int64_t target_stride;
  std::int64_t ignore_index, classes;
  std::int64_t columns, first_class, first_row;  ///< the part of the scores in x
  RowVector weights;                             ///< weights of all classes
  RowVector part_weights;                        ///< weights of the classes in x
  const C* row_weights;
  math::CrossEntropyTerms<C> terms;
  bool log_input;
  FaultSite site;

  Setting(const ConstView& targets, const CrossEntropyArgs& args, std::int64_t n)
      : target(targets.data),
        target_dtype(targets.dtype),
        target_stride(targets.strides[0]),
        ignore_index(args.ignore_index),
        classes(args.classes > 0 ? args.classes : n),
        columns(n),
        first_class(args.first_class),
        first_row(args.first_row),
        weights(args.class_weights, 1),
        part_weights(part_of(args.class_weights, first_class), 1),
        row_weights(args.row_weights.as<C>()),
        terms{static_cast<C>(1 - args.label_smoothing),
              classes > 0 ? static_cast<C>(args.label_smoothing / static_cast<double>(classes))
                          : C(0),
              static_cast<C>(args.z_loss)},
        log_input(args.log_input),
        site(fault_site(args.op, "target", targets.device)) {}

  __device__ std::int64_t target_of(std::int64_t row) const {
    return load_element<std::int64_t>(target, target_dtype, row * target_stride);
  }
  __device__ C row_weight(std::int64_t row) const { return row_weights ? row_weights[row] : C(1); }
  /// True if a row with target t is left out.
  __device__ bool ignores(std::int64_t row, std::int64_t t) const {
    return t == ignore_index || row_weight(row) == 0;
  }
  __device__ bool is_class(std::int64_t t) const { return t >= 0 && t < classes; }
  /// Returns the column of x that has the scores of class t; -1 if x does not have them.
  template <class Column>
  __device__ Column column_of(std::int64_t t) const {
    const std::int64_t column = t - first_class;
    return column >= 0 && column < columns ? static_cast<Column>(column) : Column(-1);
  }
  /// Records a target that is outside the classes. One thread of a row's team calls it.
  __device__ void check_target(std::int64_t row, std::int64_t t) const {
    if (t != ignore_index && !is_class(t)) raise_fault(site, first_row + row, t, classes);
  }
  /// Returns the sum of `count` weights. All threads of a block call it.
  __device__ double sum_of_weights(const RowVector& w, std::int64_t count) const {
    if (!w.data) return static_cast<double>(count);
    math::Sum<double> sum;
    for (std::int64_t j = threadIdx.x; j < count; j += blockDim.x)
      sum = sum + math::Sum<double>{static_cast<double>(w.template at<C>(j))};
    return block_fold(sum, math::Sum<double>(), gpu::dynamic_shared<math::Sum<double>>(), Add())
        .value;
  }

 private:
  static ConstView part_of(ConstView w, std::int64_t first) {
    if (w.data)
      w.data = static_cast<const char*>(w.data) +
               first * w.strides[0] * static_cast<std::int64_t>(size_of(w.dtype));
    return w;
  }
};

template <class C>
inline constexpr C kNotANumber = std::numeric_limits<C>::quiet_NaN();

/// Destinations of the sums over all rows.
template <class C>
struct TotalsOut {
  C *loss, *weight;
  Totals* sums;  ///< sums of the blocks, if there are several
  unsigned slot;

  /// Stores the totals, with `mine` from thread 0 of each block. All threads of all blocks call it.
  __device__ void store(Totals mine) const {
    if (gridDim.x > 1) {
      if (threadIdx.x == 0) sums[blockIdx.x] = mine;
      if (!is_last_block(&tickets[slot])) return;
      mine = {};
      for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) mine = mine + sums[b];
      mine = block_fold(mine, Totals(), gpu::dynamic_shared<Totals>(), Add());
    }
    if (threadIdx.x == 0) {
      *loss = static_cast<C>(mine.first);
      *weight = static_cast<C>(mine.second);
    }
  }
};

/// Returns the sum over the block of each team's totals, in thread 0. Only the totals of a team's
/// thread 0 count.
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
__device__ ComputeOf<T> sum_of_exp(const TeamRow<Team, kHeld, T>& row, ComputeOf<T> shift) {
  using C = ComputeOf<T>;
  using V = FormulaOf<T>;
  const math::ShiftedExp<V> term{V(shift)};
  return row.sum([&](C v) { return math::Sum<C>{C(term(V(v)))}; }).value;
}

template <class Row, class C>
__device__ C weighted_nll(const Row& row, C max, C log_sum, const RowVector& weights) {
  using Column = typename Row::Column;
  constexpr int kWidth = Row::kWidth;
  const math::WeightedNll<C> pass{max, log_sum};
  const auto all =
      row.template sum_packs<math::Sum<C>>([&](Column j, int count, const C(&v)[1][kWidth]) {
        const auto w = weights.template load<C, kWidth>(j, count);
        math::Sum<C> part;
        for (int k = 0; k < kWidth; ++k)
          if (k < count) part = part + pass(v[0][k], w.lane[k]);
        return part;
      });
  return all.value;
}

/// kSmooth is true with label smoothing.
template <class Team, int kHeld, class T, bool kSmooth>
static __global__ void __launch_bounds__(Team::kMaxThreads, Team::kMinBlocks)
    cross_entropy_kernel(RowsIn<T> x, Setting<ComputeOf<T>> setting, std::int64_t rows,
                         ComputeOf<T>* stats, TotalsOut<ComputeOf<T>> out) {
  using C = ComputeOf<T>;
  const RowsIn<T> in[1] = {x};
  Totals totals;
  for (std::int64_t i = Team::number(); i < rows; i += Team::count()) {
    const std::int64_t t = setting.target_of(i);
    if (Team::thread() == 0) setting.check_target(i, t);
    C max = 0, log_sum = 0;
    if (!setting.ignores(i, t)) {
      const TeamRow<Team, kHeld, T> row(in, i, setting.columns, -HUGE_VALF);
      if (!setting.log_input) {
        max = row.sum(math::Largest<C>()).value;
        log_sum = math::log(sum_of_exp(row, max));
      }
      C spread = 0;
      if constexpr (kSmooth) spread = weighted_nll(row, max, log_sum, setting.weights);
      if (Team::thread() == 0) {
        C w = kNotANumber<C>, at = 0;
        if (setting.is_class(t)) {
          w = setting.weights.template at<C>(t);
          at = widen(x.data[i * x.stride + t]);
        }
        const double lse = static_cast<double>(max) + static_cast<double>(log_sum);
        const double u = setting.row_weight(i);
        totals = totals + Totals{u * setting.terms.loss(w, log_sum - (at - max), spread, lse),
                                 u * static_cast<double>(w)};
      }
    }
    if (Team::thread() == 0) {
      stats[2 * i] = max;
      stats[2 * i + 1] = log_sum;
    }
  }
  out.store(sum_of_teams<Team>(totals));
}

template <class Team, int kHeld, class T, bool kSmooth>
static __global__ void __launch_bounds__(Team::kMaxThreads, Team::kMinBlocks)
    cross_entropy_part_kernel(RowsIn<T> x, Setting<ComputeOf<T>> setting, std::int64_t rows,
                              math::CrossEntropyState* states) {
  using C = ComputeOf<T>;
  const RowsIn<T> in[1] = {x};
  double weight_sum = 0;
  if constexpr (kSmooth) weight_sum = setting.sum_of_weights(setting.part_weights, setting.columns);
  for (std::int64_t i = Team::number(); i < rows; i += Team::count()) {
    const std::int64_t t = setting.target_of(i);
    math::CrossEntropyState state;
    if (Team::thread() == 0) setting.check_target(i, t);
    if (!setting.ignores(i, t)) {
      const TeamRow<Team, kHeld, T> row(in, i, setting.columns, -HUGE_VALF);
      const C max = row.sum(math::Largest<C>()).value;
      const C shift = math::shift_of(max);
      state.max = max;
      state.sum = sum_of_exp(row, shift);
      if constexpr (kSmooth)
        state.dot = weight_sum * static_cast<double>(shift) -
                    static_cast<double>(weighted_nll(row, shift, C(0), setting.part_weights));
      const auto column = setting.template column_of<std::int64_t>(t);
      if (column >= 0) state.at = static_cast<double>(widen(x.data[i * x.stride + column]));
    }
    if (Team::thread() == 0) states[i] = setting.first_class == 0 ? state : states[i] + state;
  }
}

template <class C>
static __global__ void cross_entropy_total_kernel(const math::CrossEntropyState* states,
                                                  Setting<C> setting, std::int64_t rows, C* stats,
                                                  TotalsOut<C> out) {
  double weight_sum = 0;
  if (setting.terms.smooth != 0)
    weight_sum = setting.sum_of_weights(setting.weights, setting.classes);
  Totals totals;
  const std::int64_t first = global_thread(), step = grid_threads();
  for (std::int64_t i = first; i < rows; i += step) {
    const std::int64_t t = setting.target_of(i);
    double max = 0, log_sum = 0;
    if (!setting.ignores(i, t)) {
      const math::CrossEntropyState state = states[i];
      max = state.max;
      log_sum = math::log(state.sum);
      const C w = setting.is_class(t) ? setting.weights.template at<C>(t) : kNotANumber<C>;
      const double lse = max + log_sum, u = setting.row_weight(i);
      totals = totals + Totals{u * setting.terms.loss(w, log_sum - (state.at - max),
                                                      weight_sum * lse - state.dot, lse),
                               u * static_cast<double>(w)};
    }
    stats[2 * i] = static_cast<C>(max);
    stats[2 * i + 1] = static_cast<C>(log_sum);
  }
  out.store(block_fold(totals, Totals(), gpu::dynamic_shared<Totals>(), Add()));
}

template <class Team, int kHeld, class T, class O>
static __global__ void __launch_bounds__(Team::kMaxThreads, Team::kMinBlocks)
    cross_entropy_backward_kernel(const ComputeOf<T>* dloss_at, RowsIn<T> x,
                                  Setting<ComputeOf<T>> setting, const ComputeOf<T>* stats,
                                  RowsOut<O> dx, std::int64_t rows, PendingPointers pending) {
  using C = ComputeOf<T>;
  using V = FormulaOf<T>;
  using Row = TeamRow<Team, kHeld, T>;
  using Column = typename Row::Column;
  constexpr int kWidth = Row::kWidth;
  const RowsIn<T> in[1] = {x};
  __shared__ C seed;
  if (threadIdx.x == 0) {
    math::LossSums ignored;
    seed = pending.gradient ? static_cast<C>(pending.compute(ignored)) : *dloss_at;
  }
  __syncthreads();
  const C dloss = seed;
  C weight_sum = 0;
  if (setting.terms.smooth != 0)
    weight_sum = static_cast<C>(setting.sum_of_weights(setting.weights, setting.classes));

  for (std::int64_t i = Team::number(); i < rows; i += Team::count()) {
    const std::int64_t t = setting.target_of(i);
    const bool ignored = setting.ignores(i, t);
    if (ignored || !setting.is_class(t)) {
      if (!ignored || !dx.adds) Row::fill(dx, i, setting.columns, ignored ? C(0) : kNotANumber<C>);
      continue;
    }
    const Row row(in, i, setting.columns, -HUGE_VALF);
    const C factor = dloss * setting.row_weight(i), weight = setting.weights.template at<C>(t);
    const C hit = factor * (setting.terms.hit * weight), spread = factor * setting.terms.smooth;
    const C max = stats[2 * i], log_sum = stats[2 * i + 1];
    const C scale = factor * setting.terms.scale(weight, weight_sum, max + log_sum);
    const math::CrossEntropyGrad<V> grad{V(max), V(log_sum), V(scale), V(spread)};
    const Column column = setting.template column_of<Column>(t);
    row.packs([&](int, Column j, int count, const C(&v)[1][kWidth]) {
      Lanes<C, kWidth> y;
      if (setting.terms.smooth != 0) {
        const auto w = setting.part_weights.template load<C, kWidth>(j, count);
        for (int k = 0; k < kWidth; ++k)
          y.lane[k] =
              setting.log_input ? C(0) - spread * w.lane[k] : C(grad(V(v[0][k]), V(w.lane[k])));
      } else {
        for (int k = 0; k < kWidth; ++k) y.lane[k] = setting.log_input ? C(0) : C(grad(V(v[0][k])));
      }
      if (column >= j && column < j + kWidth)
        for (int k = 0; k < kWidth; ++k)
          if (j + k == column) y.lane[k] -= hit;
      dx.store(i, j, count, y);
    });
  }
  if (pending.gradient) pending.commit();
}

/// Calls fn(O()) with the type of dx: as with_sink(), or 16-bit for x in f32.
template <class T, class Fn>
void with_result(DType dtype, Fn&& fn) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::f16) return fn(__half());
    if (dtype == DType::bf16) return fn(__nv_bfloat16());
  }
  with_sink<T>(dtype, std::forward<Fn>(fn));
}

/// Memory of the blocks' sums, while a kernel is queued, and the destination of all sums.
template <class C>
class TotalsMemory {
 public:
  TotalsMemory(const View& loss, const View& weight, unsigned blocks, Stream stream)
      : sums_(blocks > 1 ? blocks * sizeof(Totals) : 0, stream),
        out_{loss.as<C>(), weight.as<C>(), sums_.template as<Totals>(),
             blocks > 1 ? ticket_slot(stream) : 0u} {}
  const TotalsOut<C>& out() const { return out_; }

 private:
  runtime::Workspace sums_;
  TotalsOut<C> out_;
};

}  // namespace

void cross_entropy(const ConstView& x, const ConstView& target, const CrossEntropyArgs& args,
                   const View& loss, const View& weight, const View& stats, Stream stream) {
  const std::int64_t rows = x.shape[0], n = x.shape[1];
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const Setting<C> setting(target, args, n);
    with_row_teams<T, kPacks>(n, [&]<class Team, int kHeld>(TeamChoice<Team, kHeld> teams) {
      const dim3 grid = teams.grid(std::min(rows, kMaxSums * teams.teams_in_block()));
      const TotalsMemory<C> totals(loss, weight, grid.x, stream);
      const auto kernel = args.label_smoothing != 0 ? cross_entropy_kernel<Team, kHeld, T, true>
                                                    : cross_entropy_kernel<Team, kHeld, T, false>;
      gpu::launch(setting.site.op, kernel, grid, dim3(teams.threads), teams.shared, stream,
                  RowsIn<T>(x), setting, rows, stats.as<C>(), totals.out());
    });
  });
}

void cross_entropy_part(const ConstView& x, const ConstView& target, const CrossEntropyArgs& args,
                        const View& states, Stream stream) {
  const std::int64_t rows = x.shape[0], n = x.shape[1];
  if (rows == 0) return;
  with_floating(x.dtype, [&]<class T>(T) {
    const Setting<ComputeOf<T>> setting(target, args, n);
    with_row_teams<T, kPacks>(n, [&]<class Team, int kHeld>(TeamChoice<Team, kHeld> teams) {
      const auto kernel = args.label_smoothing != 0
                              ? cross_entropy_part_kernel<Team, kHeld, T, true>
                              : cross_entropy_part_kernel<Team, kHeld, T, false>;
      gpu::launch("cross_entropy_part", kernel, teams.grid(rows), dim3(teams.threads), teams.shared,
                  stream, RowsIn<T>(x), setting, rows, states.as<math::CrossEntropyState>());
    });
  });
}

void cross_entropy_total(const ConstView& states, const ConstView& target,
                         const CrossEntropyArgs& args, const View& loss, const View& weight,
                         const View& stats, Stream stream) {
  const std::int64_t rows = states.shape[0];
  const auto launch = [&]<class C>(C) {
    const Setting<C> setting(target, args, args.classes);
    const dim3 grid(std::min(grid_for(rows).x, static_cast<unsigned>(kMaxSums)));
    const TotalsMemory<C> totals(loss, weight, grid.x, stream);
    gpu::launch("cross_entropy_total", cross_entropy_total_kernel<C>, grid, dim3(kBlock),
                BlockTeam::kBytes, stream, states.as<math::CrossEntropyState>(), setting, rows,
                stats.as<C>(), totals.out());
  };
  stats.dtype == DType::f64 ? launch(double()) : launch(float());
}

void cross_entropy_backward(const ConstView& dloss, const ConstView& x, const ConstView& target,
                            const ConstView& stats, const CrossEntropyArgs& args, const View& dx,
                            float beta, const PendingGradient* pending, Stream stream) {
  const std::int64_t rows = x.shape[0], n = x.shape[1];
  if (rows == 0 || n == 0) return;
  with_floating(x.dtype, [&]<class T>(T) {
    using C = ComputeOf<T>;
    const Setting<C> setting(target, args, n);
    with_result<T>(dx.dtype, [&]<class O>(O) {
      with_row_teams<T, kPacks>(n, [&]<class Team, int kHeld>(TeamChoice<Team, kHeld> teams) {
        gpu::launch("cross_entropy_backward", cross_entropy_backward_kernel<Team, kHeld, T, O>,
                    teams.grid(rows), dim3(teams.threads), teams.shared, stream, dloss.as<C>(),
                    RowsIn<T>(x), setting, stats.as<C>(), RowsOut<O>(dx, beta), rows,
                    PendingPointers(pending));
      });
    });
  });
}

}  // namespace firn::kernels::cuda
