// The position of a largest or smallest element, and the gradient of these elements.
#include <algorithm>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/reduce/fold.h"
#include "kernels/math/macros.h"
#include "kernels/plan/reduce_plan.h"
#include "kernels/reduce.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using math::beats_in;
using math::is_tie;

constexpr std::int64_t kTile = 256;     // columns side by side
constexpr std::int64_t kShortRun = 32;  // elements: runs up to this are compared side by side
constexpr std::int64_t kWork = 32768;   // elements of a chunk of work, if there are many outputs

/// Returns the position of the first extremum of n > 0 elements. F is MaxFold<A> or MinFold<A>.
template <class F, class A>
std::int64_t extremum_run(const void* src, DType dtype, std::int64_t stride, std::int64_t n) {
  alignas(64) A buffer[kRow];
  A best{};
  std::int64_t position = 0;
  for (std::int64_t i = 0; i < n; i += kRow) {
    const std::int64_t m = std::min(kRow, n - i);
    const A* x = load_row<A>(advance(src, dtype, i * stride), dtype, stride, m, buffer);
    A found = F::identity();
    fold_dense<F>(&found, x, m, 1);
    if (i > 0 && !beats_in<F>(found, best)) continue;
    best = found;
    position = i;
    while (!is_tie(*x, best)) ++x, ++position;
  }
  return position;
}

/// Finds the positions of n columns side by side; rows are `step` apart.
template <class F, class A>
void extremum_columns(const void* src, DType dtype, std::int64_t step, std::int64_t rows,
                      std::int64_t stride, std::int64_t n, std::int64_t* positions) {
  alignas(64) A buffer[kTile];
  alignas(64) A best[kTile];
  std::copy_n(load_row<A>(src, dtype, stride, n, buffer), n, best);
  std::fill_n(positions, n, 0);
  for (std::int64_t r = 1; r < rows; ++r) {
    const A* x = load_row<A>(advance(src, dtype, r * step), dtype, stride, n, buffer);
    for (std::int64_t c = 0; c < n; ++c) {
      const bool better = beats_in<F>(x[c], best[c]);
      best[c] = better ? x[c] : best[c];
      positions[c] = better ? r : positions[c];
    }
  }
}

template <class F, class A>
void arg_extremum_as(const ConstView& x, const View& out, int axis) {
  const std::int64_t rows = x.shape[axis];
  ReducePlan plan = plan_reduction(x, out);
  run_across(plan, kShortRun);
  const std::int64_t step = x.strides[axis];
  if (plan.columns) {
    const ReduceAxis& inner = plan.inner;
    const std::int64_t tiles = math::ceil_div(inner.size, kTile);
    parallel_for(plan.outputs * tiles, x.numel(), [&](std::int64_t i) {
      const ReduceAxis at = plan.kept.at(i / tiles);
      const std::int64_t c = i % tiles * kTile;
      const std::int64_t n = std::min(kTile, inner.size - c);
      alignas(64) std::int64_t positions[kTile];
      extremum_columns<F, A>(advance(x.data, x.dtype, at.x + c * inner.x), x.dtype, step, rows,
                             inner.x, n, positions);
      store_row<std::int64_t>(positions, out.as<std::int64_t>() + at.out + c * inner.out, i64,
                              inner.out, n);
    });
    return;
  }
  const std::int64_t together = std::max<std::int64_t>(1, kWork / rows);
  parallel_for(math::ceil_div(plan.outputs, together), x.numel(), [&](std::int64_t i) {
    const std::int64_t end = std::min(plan.outputs, (i + 1) * together);
    plan.kept.runs(i * together, end, [&](const ReduceAxis& at, std::int64_t n, std::int64_t) {
      const ReduceAxis next = n == 1 ? ReduceAxis{} : plan.kept.back();
      for (std::int64_t k = 0; k < n; ++k) {
        out.as<std::int64_t>()[at.out + k * next.out] =
            extremum_run<F, A>(advance(x.data, x.dtype, at.x + k * next.x), x.dtype, step, rows);
      }
    });
  });
}

/// dx[i] = beta*dx[i] + (x[i] is the extremum ? share : 0), n elements. `extremum` and `share` are
/// one value each, or one per element if `columns`.
template <class A, bool columns>
void share_row(const ConstView& x, std::int64_t x_at, std::int64_t x_stride, const View& dx,
               std::int64_t dx_at, std::int64_t dx_stride, std::int64_t n, const A* extremum,
               const A* share, float beta) {
  alignas(64) A loaded[kRow];
  alignas(64) A old[kRow];
  alignas(64) A sum[kRow];
  for (std::int64_t i = 0; i < n; i += kRow) {
    const std::int64_t m = std::min(kRow, n - i);
    const A* in =
        load_row<A>(advance(x.data, x.dtype, x_at + i * x_stride), x.dtype, x_stride, m, loaded);
    void* dst = advance(dx.data, dx.dtype, dx_at + i * dx_stride);
    for (std::int64_t k = 0; k < m; ++k) {
      const std::int64_t c = columns ? k : 0;
      sum[k] = ((in[k] == extremum[c]) | (in[k] != in[k])) ? share[c] : A(0);
    }
    if (beta != 0) {
      const A* before = load_row<A>(dst, dx.dtype, dx_stride, m, old);
      for (std::int64_t k = 0; k < m; ++k) sum[k] += static_cast<A>(beta) * before[k];
    }
    store_row<A>(sum, dst, dx.dtype, dx_stride, m);
  }
}

template <class A>
void extremum_backward_as(const ConstView& dy, const ConstView& x, const ConstView& y,
                          const View& dx, float beta) {
  // The plan's field `out` has the strides of these workspaces, to which dy and y are copied first.
  const Workspace shares(y.shape, dtype_of<A>);
  const Workspace extrema(y.shape, dtype_of<A>);
  ReducePlan plan = plan_reduction(x, shares.view(), &dx.strides);
  run_across(plan, kShortRun);
  A* const share = shares.view().template as<A>();
  A* const extremum = extrema.view().template as<A>();
  AxisList all;
  for (int i = 0; i < y.rank(); ++i) {
    all.push_back({y.shape[i], dy.strides[i], shares.view().strides[i], y.strides[i]});
  }
  if (runtime::dry_run()) return;
  all.runs(0, all.count(), [&](const ReduceAxis& at, std::int64_t n, std::int64_t) {
    const ReduceAxis step = n == 1 ? ReduceAxis{1, 1, 1, 1} : all.back();
    const A* from =
        load_row<A>(advance(dy.data, dy.dtype, at.x), dy.dtype, step.x, n, share + at.out);
    if (from != share + at.out) std::copy_n(from, n, share + at.out);
    from =
        load_row<A>(advance(y.data, y.dtype, at.other), y.dtype, step.other, n, extremum + at.out);
    if (from != extremum + at.out) std::copy_n(from, n, extremum + at.out);
  });

  // Two passes over each output's elements count the ties, then give each tie its share.
  const std::int64_t width = plan.columns ? plan.inner.size : 1;
  const std::int64_t tiles = math::ceil_div(width, kTile);
  parallel_for(plan.outputs * tiles, 2 * x.numel(), [&](std::int64_t i) {
    const ReduceAxis at = plan.kept.at(i / tiles);
    const std::int64_t c = i % tiles * kTile;
    const std::int64_t n = std::min(kTile, width - c);
    const ReduceAxis& inner = plan.inner;
    alignas(64) A buffer[kRow];
    alignas(64) std::int64_t count[kTile] = {};
    alignas(64) A top[kTile];
    alignas(64) A part[kTile];
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t o = at.out + (c + j) * inner.out;
      top[j] = extremum[o];
      part[j] = share[o];
    }
    const auto each_run = [&](auto&& fn) {
      const ReduceAxis step = plan.reduced.size() == 0 ? ReduceAxis{} : plan.reduced.back();
      plan.reduced.runs(
          0, plan.reduced.count(), [&](const ReduceAxis& o, std::int64_t runs, std::int64_t) {
            for (std::int64_t k = 0; k < runs; ++k) {
              fn(at.x + o.x + k * step.x + c * (plan.columns ? inner.x : 0),
                 at.other + o.other + k * step.other + c * (plan.columns ? inner.other : 0));
            }
          });
    };
    each_run([&](std::int64_t x_at, std::int64_t) {
      const std::int64_t length = plan.columns ? n : inner.size;
      for (std::int64_t k = 0; k < length; k += kRow) {
        const std::int64_t m = std::min(kRow, length - k);
        const A* in =
            load_row<A>(advance(x.data, x.dtype, x_at + k * inner.x), x.dtype, inner.x, m, buffer);
        if (plan.columns) {
          for (std::int64_t j = 0; j < m; ++j) count[j] += is_tie(in[j], top[j]);
        } else {
          for (std::int64_t j = 0; j < m; ++j) count[0] += is_tie(in[j], top[0]);
        }
      }
    });
    for (std::int64_t j = 0; j < n; ++j) part[j] /= static_cast<A>(count[j]);
    each_run([&](std::int64_t x_at, std::int64_t dx_at) {
      if (plan.columns) {
        share_row<A, true>(x, x_at, inner.x, dx, dx_at, inner.other, n, top, part, beta);
      } else {
        share_row<A, false>(x, x_at, inner.x, dx, dx_at, inner.other, inner.size, top, part, beta);
      }
    });
  });
}

template <template <class> class Fold>
void arg_extremum(const ConstView& x, const View& out, int axis) {
  if (out.numel() == 0) return;
  switch (compute_dtype(x.dtype)) {
    case DType::f32:
      return arg_extremum_as<Fold<float>, float>(x, out, axis);
    case DType::f64:
      return arg_extremum_as<Fold<double>, double>(x, out, axis);
    default:
      return arg_extremum_as<Fold<std::int64_t>, std::int64_t>(x, out, axis);
  }
}

}  // namespace

void argmax(const ConstView& x, const View& out, int axis, Stream) {
  arg_extremum<MaxFold>(x, out, axis);
}
void argmin(const ConstView& x, const View& out, int axis, Stream) {
  arg_extremum<MinFold>(x, out, axis);
}

void extremum_backward(const ConstView& dy, const ConstView& x, const ConstView& y, const View& dx,
                       float beta, Stream) {
  if (dx.numel() == 0) return;
  if (compute_dtype(x.dtype) == DType::f64) return extremum_backward_as<double>(dy, x, y, dx, beta);
  extremum_backward_as<float>(dy, x, y, dx, beta);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
