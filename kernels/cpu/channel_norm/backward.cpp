// The backward pass of normalisation by channel on the CPU.
#include <algorithm>
#include <cmath>

#include "kernels/channel_norm.h"
#include "kernels/cpu/channel_norm/driver.h"
#include "kernels/cpu/channel_norm/per_channel.h"
#include "kernels/math/channel_norm.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

template <class C>
void slab_gradients(bool across, const SlabData<C>& dy, const SlabData<C>& x, const C* mean,
                    double* first, double* second) {
  using V = Tile<C>;
  if (!across) {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const auto s =
          reduce_row<C>(x.columns, math::ChannelGradPass<V>{V(mean[r])}, dy.row(r), x.row(r));
      first[r] += static_cast<double>(s.first);
      second[r] += static_cast<double>(s.second);
    }
    return;
  }
  each_column_block<C>(
      x.columns, [&]<int kTiles>(std::integral_constant<int, kTiles>, std::int64_t k) {
        constexpr int kCount = kTiles == 0 ? 1 : kTiles, kLanes = V::size;
        math::ChannelGradPass<V> pass[kCount];
        math::SumPair<V> sum[kCount];
        for (int u = 0; u < kCount; ++u)
          pass[u].mean = load_block<C, kTiles>(mean, k, u, x.columns);
        for (std::int64_t r = 0; r < x.rows; ++r)
          for (int u = 0; u < kCount; ++u)
            sum[u] = sum[u] + pass[u](load_block<C, kTiles>(dy.row(r), k, u, x.columns),
                                      load_block<C, kTiles>(x.row(r), k, u, x.columns));
        alignas(64) C lanes[2][kCount * kLanes];
        for (int u = 0; u < kCount; ++u) {
          sum[u].first.store(lanes[0] + u * kLanes);
          sum[u].second.store(lanes[1] + u * kLanes);
        }
        for (std::int64_t i = 0; i < std::min<std::int64_t>(kCount * kLanes, x.columns - k); ++i) {
          first[k + i] += static_cast<double>(lanes[0][i]);
          second[k + i] += static_cast<double>(lanes[1][i]);
        }
      });
}

template <class C>
void gradient_sums_as(const ConstView& dy, const ConstView& x, NormCells cells,
                      const ConstView& mean, const ConstView& var, double eps, const View& sums) {
  const ChannelCut cut(x, cells.per_sample, {&dy});
  const ChannelPlane<C> dy_in(cut, dy), x_in(cut, x);
  const Pairs partial(cut.units, cut.c);
  const PerChannel<C, 1> means(x, cells,
                               [&](std::int64_t, std::int64_t, std::int64_t cell, const auto& set) {
                                 set(0, mean.as<C>()[cell]);
                               });
  const std::int64_t bytes = SlabBuffers<C>::bytes(dy_in, x_in);
  parallel_for_with_scratch(bytes, cut.tasks(), x.numel() * 4, [&](std::int64_t t) {
    const ChannelTask task = cut.task(t);
    const SlabBuffers<C> buffers(dy_in, x_in);
    double* const first = partial.first(task.unit) + task.channel;
    double* const second = partial.second(task.unit) + task.channel;
    std::fill_n(first, task.channels, 0.0);
    std::fill_n(second, task.channels, 0.0);
    cut.slabs(task, [&](const Slab& s) {
      const std::int64_t at = s.channel - task.channel;
      slab_gradients(cut.across, dy_in.read(s, buffers[0]), x_in.read(s, buffers[1]),
                     means.at(0, s), first + at, second + at);
    });
  });

  const RowBuffer<C> rstd = inverse_deviations<C>(var, eps);
  const std::int64_t sections = sums.shape[0];
  const std::int64_t units = sections > 0 ? cut.units / sections : 0;
  const std::int64_t width = cut.c / std::max<std::int64_t>(cells.groups, 1);
  parallel_for(sections, cut.units * cut.c * 2, [&](std::int64_t s) {
    for (std::int64_t ch = 0; ch < cut.c; ++ch) {
      double first = 0, second = 0;
      for (std::int64_t u = s * units; u < (s + 1) * units; ++u) {
        first += partial.first(u)[ch];
        second += partial.second(u)[ch];
      }
      const auto r = static_cast<double>(rstd.data()[s * cells.groups + ch / width]);
      C* const out = sums.as<C>() + (s * cut.c + ch) * 2;
      out[0] = static_cast<C>(first);
      out[1] = static_cast<C>(second * r);
    }
  });
}

/// grad = beta*grad + the sums of member `which` of each pair over the samples.
template <class C>
void parameter_gradient(const ConstView& sums, int which, const View& grad, float beta) {
  if (!grad.data) return;
  const std::int64_t samples = sums.shape[0], c = sums.shape[1];
  const RowBuffer<C> total(c), before(c);
  if (runtime::dry_run()) return;
  for (std::int64_t ch = 0; ch < c; ++ch) {
    double sum = 0;
    for (std::int64_t s = 0; s < samples; ++s)
      sum += static_cast<double>(sums.as<C>()[(s * c + ch) * 2 + which]);
    total.data()[ch] = static_cast<C>(sum);
  }
  if (beta != 0) {
    const C* old = load_row(grad.data, grad.dtype, grad.strides[0], c, before.data());
    for (std::int64_t ch = 0; ch < c; ++ch) total.data()[ch] += old[ch];
  }
  store_row(total.data(), grad.data, grad.dtype, grad.strides[0], c);
}

template <class C>
void data_gradient_as(const ConstView& dy, const ConstView& x, NormCells cells,
                      const ConstView& mean, const ConstView& var, const ConstView& weight,
                      double eps, const ConstView& sums, double count, const View& dx, float beta) {
  const ConstView dx_as_input = dx;
  const ChannelCut cut(x, cells.per_sample, {&dy, &dx_as_input});
  const ChannelPlane<C> dy_in(cut, dy), x_in(cut, x), out(cut, dx);
  const std::int64_t c = x.shape[1], width = c / std::max<std::int64_t>(cells.groups, 1);
  const RowBuffer<C> w(c), rstd = inverse_deviations<C>(var, eps);
  load_vector(weight, c, 1, w.data());

  const bool constant = !sums.data;
  if (constant) {
    const PerChannel<C, 1> scale(
        x, cells, [&](std::int64_t, std::int64_t ch, std::int64_t cell, const auto& set) {
          set(0, rstd.data()[cell] * w.data()[ch]);
        });
    const std::int64_t bytes = SlabBuffers<C>::bytes(dy_in, out);
    parallel_for_with_scratch(bytes, cut.tasks(), x.numel() * 2, [&](std::int64_t t) {
      const SlabBuffers<C> buffers(dy_in, out);
      cut.slabs(cut.task(t), [&](const Slab& s) {
        const auto to = out.open(s, buffers[1], beta != 0);
        map_slab<math::ChannelScale>(cut.across, s, scale, to, beta, dy_in.read(s, buffers[0]));
        out.close(s, to);
      });
    });
    return;
  }

  // Computes a/n and b/n of every cell.
  const std::int64_t cell_count = var.numel();
  const RowBuffer<C> a(cell_count), b(cell_count);
  for (std::int64_t cell = 0; cell < cell_count && !runtime::dry_run(); ++cell) {
    const std::int64_t s = cell / cells.groups, first = cell % cells.groups * width;
    double of_dy = 0, of_xhat = 0;
    for (std::int64_t ch = first; ch < first + width; ++ch) {
      const C* pair = sums.as<C>() + (s * c + ch) * 2;
      const auto wide = static_cast<double>(w.data()[ch]);
      of_dy += wide * static_cast<double>(pair[0]);
      of_xhat += wide * static_cast<double>(pair[1]);
    }
    a.data()[cell] = static_cast<C>(of_dy / count);
    b.data()[cell] = static_cast<C>(of_xhat / count);
  }
  const PerChannel<C, 4> numbers(
      x, cells, [&](std::int64_t, std::int64_t ch, std::int64_t cell, const auto& set) {
        const auto k = math::ChannelGrad<C>::make(mean.as<C>()[cell], rstd.data()[cell],
                                                  w.data()[ch], a.data()[cell], b.data()[cell]);
        set(0, k.mean);
        set(1, k.scale);
        set(2, k.offset);
        set(3, k.slope);
      });
  const std::int64_t bytes = SlabBuffers<C>::bytes(dy_in, x_in, out);
  parallel_for_with_scratch(bytes, cut.tasks(), x.numel() * 6, [&](std::int64_t t) {
    const SlabBuffers<C> buffers(dy_in, x_in, out);
    cut.slabs(cut.task(t), [&](const Slab& s) {
      const auto to = out.open(s, buffers[2], beta != 0);
      map_slab<math::ChannelGrad>(cut.across, s, numbers, to, beta, dy_in.read(s, buffers[0]),
                                  x_in.read(s, buffers[1]));
      out.close(s, to);
    });
  });
}

}  // namespace

void channel_gradient_sums(const ConstView& dy, const ConstView& x, NormCells cells,
                           const ConstView& mean, const ConstView& var, double eps,
                           const View& sums, Stream) {
  x.dtype == DType::f64 ? gradient_sums_as<double>(dy, x, cells, mean, var, eps, sums)
                        : gradient_sums_as<float>(dy, x, cells, mean, var, eps, sums);
}

void channel_parameter_gradients(const ConstView& sums, const View& dweight, float dweight_beta,
                                 const View& dbias, float dbias_beta, Stream) {
  // These run one after the other, since weight and bias may be one tensor.
  const auto both = [&]<class C>(C) {
    parameter_gradient<C>(sums, 1, dweight, dweight_beta);
    parameter_gradient<C>(sums, 0, dbias, dbias_beta);
  };
  sums.dtype == DType::f64 ? both(double()) : both(float());
}

void channel_data_gradient(const ConstView& dy, const ConstView& x, NormCells cells,
                           const ConstView& mean, const ConstView& var, const ConstView& weight,
                           double eps, const ConstView& sums, double count, const View& dx,
                           float beta, Stream) {
  x.dtype == DType::f64
      ? data_gradient_as<double>(dy, x, cells, mean, var, weight, eps, sums, count, dx, beta)
      : data_gradient_as<float>(dy, x, cells, mean, var, weight, eps, sums, count, dx, beta);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
