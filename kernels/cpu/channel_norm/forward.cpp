// Normalisation by channel on the CPU: moments and the forward pass. Slabs that stay in the cache
// are summed in the compute type. Slabs, and then tasks, are joined in f64 in a fixed order.
#include "kernels/channel_norm.h"
#include "kernels/cpu/channel_norm/driver.h"
#include "kernels/cpu/channel_norm/per_channel.h"
#include "kernels/math/channel_norm.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using Merge = math::Merge<double>;
using Moments = math::Moments<double>;

/// Merges a slab's moments into those of the `before` elements of each channel that came before it.
/// Distances are from the slab's rounded mean.
template <class C>
void join(std::int64_t before, std::int64_t n, std::int64_t channels, const C* centre,
          const C* first, const C* second, double* mean, double* squares) {
  const Merge merge(static_cast<double>(before), static_cast<double>(n));
  const double inverse = 1.0 / static_cast<double>(n);
  for (std::int64_t k = 0; k < channels; ++k) {
    const math::SumPair<double> sums{static_cast<double>(first[k]), static_cast<double>(second[k])};
    const Moments both = merge({mean[k], squares[k]},
                               math::moments_of(static_cast<double>(centre[k]), sums, inverse));
    mean[k] = both.mean;
    squares[k] = both.squares;
  }
}

template <class C>
void slab_moments(bool across, const SlabData<C>& x, std::int64_t before, double* mean,
                  double* squares) {
  using V = Tile<C>;
  if (!across) {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const C* row = x.row(r);
      const C centre =
          reduce_row<C>(x.columns, math::Elements<V>{}, row).value / static_cast<C>(x.columns);
      const auto s = reduce_row<C>(x.columns, math::Distances<V>{V(centre)}, row);
      join(before, x.columns, 1, &centre, &s.first, &s.second, mean + r, squares + r);
    }
    return;
  }
  const V inverse(1.0 / static_cast<double>(x.rows));
  each_column_block<C>(
      x.columns, [&]<int kTiles>(std::integral_constant<int, kTiles>, std::int64_t k) {
        constexpr int kCount = kTiles == 0 ? 1 : kTiles, kLanes = V::size;
        V sum[kCount];
        for (V& s : sum) s = V(0);
        for (std::int64_t r = 0; r < x.rows; ++r)
          for (int u = 0; u < kCount; ++u)
            sum[u] = sum[u] + load_block<C, kTiles>(x.row(r), k, u, x.columns);
        math::Distances<V> from[kCount];
        math::SumPair<V> distances[kCount];
        for (int u = 0; u < kCount; ++u) from[u].centre = sum[u] * inverse;
        for (std::int64_t r = 0; r < x.rows; ++r)
          for (int u = 0; u < kCount; ++u)
            distances[u] = distances[u] + from[u](load_block<C, kTiles>(x.row(r), k, u, x.columns));
        alignas(64) C lanes[3][kCount * kLanes];
        for (int u = 0; u < kCount; ++u) {
          from[u].centre.store(lanes[0] + u * kLanes);
          distances[u].first.store(lanes[1] + u * kLanes);
          distances[u].second.store(lanes[2] + u * kLanes);
        }
        join(before, x.rows, std::min<std::int64_t>(kCount * kLanes, x.columns - k), lanes[0],
             lanes[1], lanes[2], mean + k, squares + k);
      });
}

template <class C>
void moments_as(const ConstView& x, NormCells cells, const View& mean_out, const View& var_out) {
  const ChannelCut cut(x, cells.per_sample, {});
  const ChannelPlane<C> in(cut, x);
  const Pairs partial(cut.units, cut.c);
  const std::int64_t bytes = SlabBuffers<C>::bytes(in);
  parallel_for_with_scratch(bytes, cut.tasks(), x.numel() * 4, [&](std::int64_t t) {
    const ChannelTask task = cut.task(t);
    const SlabBuffers<C> buffers(in);
    double* const mean = partial.first(task.unit) + task.channel;
    double* const squares = partial.second(task.unit) + task.channel;
    std::fill_n(mean, task.channels, 0.0);
    std::fill_n(squares, task.channels, 0.0);
    cut.slabs(task, [&](const Slab& s) {
      const std::int64_t at = s.channel - task.channel;
      slab_moments(cut.across, in.read(s, buffers[0]), s.before, mean + at, squares + at);
    });
  });

  const std::int64_t sections = cells.per_sample ? x.shape[0] : 1;
  const std::int64_t units = sections > 0 ? cut.units / sections : 0;
  const std::int64_t width = cut.c / std::max<std::int64_t>(cells.groups, 1);  // channels of a cell
  const std::int64_t sums = 2 * slot_bytes_of<double>(cut.c);
  parallel_for_with_scratch(sums, sections, cut.units * cut.c * 4, [&](std::int64_t s) {
    const RowBuffer<double> means(cut.c), all_squares(cut.c);
    double *const mean = means.data(), *const squares = all_squares.data();
    std::fill_n(mean, cut.c, 0.0);
    std::fill_n(squares, cut.c, 0.0);
    std::int64_t count = 0;
    for (std::int64_t u = s * units; u < (s + 1) * units; ++u) {
      const std::int64_t n = cut.unit(u).count();
      const Merge merge(static_cast<double>(count), static_cast<double>(n));
      const double *m = partial.first(u), *q = partial.second(u);
      for (std::int64_t k = 0; k < cut.c; ++k) {
        const Moments both = merge({mean[k], squares[k]}, {m[k], q[k]});
        mean[k] = both.mean;
        squares[k] = both.squares;
      }
      count += n;
    }
    for (std::int64_t g = 0; g < cells.groups; ++g) {
      Moments all;
      for (std::int64_t k = 0; k < width; ++k) {
        const std::int64_t at = g * width + k;
        const Merge merge(static_cast<double>(k * count), static_cast<double>(count));
        all = merge(all, {mean[at], squares[at]});
      }
      const double n = static_cast<double>(width * count);
      mean_out.as<C>()[s * cells.groups + g] = static_cast<C>(all.mean);
      var_out.as<C>()[s * cells.groups + g] = static_cast<C>(all.squares / n);
    }
  });
}

template <class C>
void normalize_as(const ConstView& x, NormCells cells, const ConstView& mean, const ConstView& var,
                  const ConstView& weight, const ConstView& bias, double eps, const View& y) {
  const ConstView y_as_input = y;
  const ChannelCut cut(x, cells.per_sample, {&y_as_input});
  const ChannelPlane<C> in(cut, x), out(cut, y);
  const std::int64_t c = x.shape[1];
  const RowBuffer<C> w(c), b(c), rstd = inverse_deviations<C>(var, eps);
  load_vector(weight, c, 1, w.data());
  load_vector(bias, c, 0, b.data());
  const PerChannel<C, 3> numbers(
      x, cells, [&](std::int64_t, std::int64_t ch, std::int64_t cell, const auto& set) {
        set(0, mean.as<C>()[cell]);
        set(1, rstd.data()[cell] * w.data()[ch]);
        set(2, b.data()[ch]);
      });
  const std::int64_t bytes = SlabBuffers<C>::bytes(in, out);
  parallel_for_with_scratch(bytes, cut.tasks(), x.numel() * 4, [&](std::int64_t t) {
    const SlabBuffers<C> buffers(in, out);
    cut.slabs(cut.task(t), [&](const Slab& s) {
      const auto from = in.read(s, buffers[0]);
      const auto to = out.open(s, buffers[1], false);
      map_slab<math::ChannelNorm>(cut.across, s, numbers, to, 0, from);
      out.close(s, to);
    });
  });
}

}  // namespace

void channel_moments(const ConstView& x, NormCells cells, const View& mean, const View& var,
                     Stream) {
  x.dtype == DType::f64 ? moments_as<double>(x, cells, mean, var)
                        : moments_as<float>(x, cells, mean, var);
}

void channel_normalize(const ConstView& x, NormCells cells, const ConstView& mean,
                       const ConstView& var, const ConstView& weight, const ConstView& bias,
                       double eps, const View& y, Stream) {
  x.dtype == DType::f64 ? normalize_as<double>(x, cells, mean, var, weight, bias, eps, y)
                        : normalize_as<float>(x, cells, mean, var, weight, bias, eps, y);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
