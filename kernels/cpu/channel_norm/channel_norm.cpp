// Normalisation by channel on the CPU. Sums are made of slabs that stay in the cache, in the
// compute type; slabs, and after them tasks, are joined in f64, in the order of their numbers.
#include "kernels/channel_norm.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cpu/channel_norm/driver.h"
#include "kernels/math/channel_norm.h"

namespace firn::kernels::cpu {
namespace {

using Merge = math::Merge<double>;
using Moments = math::Moments<double>;

/// Two numbers for each channel of each unit: [units][2][c].
class Pairs {
 public:
  Pairs(std::int64_t units, std::int64_t c) : c_(c), memory_(units * 2 * c) {}
  double* first(std::int64_t unit) const { return memory_.data() + unit * 2 * c_; }
  double* second(std::int64_t unit) const { return first(unit) + c_; }

 private:
  std::int64_t c_;
  RowBuffer<double> memory_;
};

// ---- Moments ----

/// Merges a slab's moments into those of the `before` elements of each channel that came before it.
/// The distances are from the slab's mean, as rounded.
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
  parallel_for(cut.tasks(), x.numel() * 4, [&](std::int64_t t) {
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
  parallel_for(sections, cut.units * cut.c * 4, [&](std::int64_t s) {
    std::vector<double> mean(static_cast<std::size_t>(cut.c)), squares(mean.size());
    std::int64_t count = 0;
    for (std::int64_t u = s * units; u < (s + 1) * units; ++u) {
      const std::int64_t n = cut.unit(u).count();
      const Merge merge(static_cast<double>(count), static_cast<double>(n));
      const double *m = partial.first(u), *q = partial.second(u);
      for (std::size_t k = 0; k < mean.size(); ++k) {
        const Moments both = merge({mean[k], squares[k]}, {m[k], q[k]});
        mean[k] = both.mean;
        squares[k] = both.squares;
      }
      count += n;
    }
    for (std::int64_t g = 0; g < cells.groups; ++g) {
      Moments all;
      for (std::int64_t k = 0; k < width; ++k) {
        const auto at = static_cast<std::size_t>(g * width + k);
        const Merge merge(static_cast<double>(k * count), static_cast<double>(count));
        all = merge(all, {mean[at], squares[at]});
      }
      const double n = static_cast<double>(width * count);
      mean_out.as<C>()[s * cells.groups + g] = static_cast<C>(all.mean);
      var_out.as<C>()[s * cells.groups + g] = static_cast<C>(all.squares / n);
    }
  });
}

// ---- Normalisation ----

/// Numbers for each channel, of all samples or of each: kKinds arrays [sections, c].
template <class C, int kKinds>
class PerChannel {
 public:
  /// fill(section, channel, cell, set): set(kind, value).
  template <class Fill>
  PerChannel(const ConstView& x, NormCells cells, const Fill& fill)
      : c_(x.shape[1]),
        per_sample_(cells.per_sample),
        sections_(per_sample_ ? x.shape[0] : 1),
        memory_(kKinds * sections_ * c_) {
    const std::int64_t width = c_ / std::max<std::int64_t>(cells.groups, 1);
    parallel_for(sections_, sections_ * c_ * 8, [&](std::int64_t s) {
      for (std::int64_t ch = 0; ch < c_; ++ch) {
        fill(s, ch, s * cells.groups + ch / width,
             [&](int kind, C value) { memory_.data()[(kind * sections_ + s) * c_ + ch] = value; });
      }
    });
  }
  const C* at(int kind, const Slab& s) const {
    return memory_.data() + (kind * sections_ + (per_sample_ ? s.i : 0)) * c_ + s.channel;
  }

 private:
  std::int64_t c_;
  bool per_sample_;
  std::int64_t sections_;
  RowBuffer<C> memory_;
};

/// rstd of every cell.
template <class C>
RowBuffer<C> inverse_deviations(const ConstView& var, double eps) {
  const std::int64_t n = var.numel();
  RowBuffer<C> rstd(n);
  for (std::int64_t i = 0; i < n; ++i)
    rstd.data()[i] = C(1) / std::sqrt(var.as<C>()[i] + static_cast<C>(eps));
  return rstd;
}

/// out = beta*out + formula(k...)(in...), where k are a channel's numbers and Formula is made of
/// them as V.
template <template <class> class Formula, class C, int kKinds, class... In>
void map_slab(bool across, const Slab& s, const PerChannel<C, kKinds>& numbers,
              const SlabData<C, C*>& out, float beta, const In&... in) {
  using V = Tile<C>;
  const auto formula = [&]<std::size_t... kind>(std::index_sequence<kind...>, const auto& pick) {
    return Formula<V>{pick(numbers.at(static_cast<int>(kind), s))...};
  };
  constexpr auto kinds = std::make_index_sequence<kKinds>();
  if (!across) {
    for (std::int64_t r = 0; r < out.rows; ++r)
      map_row(out.columns, out.row(r), beta, formula(kinds, [r](const C* k) { return V(k[r]); }),
              in.row(r)...);
    return;
  }
  each_column_block<C>(
      out.columns, [&]<int kTiles>(std::integral_constant<int, kTiles>, std::int64_t k) {
        constexpr int kCount = kTiles == 0 ? 1 : kTiles;
        const auto run = [&](auto formulas) {
          for (std::int64_t r = 0; r < out.rows; ++r) {
            for (int u = 0; u < kCount; ++u) {
              V y = formulas[u](load_block<C, kTiles>(in.row(r), k, u, out.columns)...);
              if (beta != 0) y = load_block<C, kTiles>(out.row(r), k, u, out.columns) + y;
              store_block<C, kTiles>(y, out.row(r), k, u, out.columns);
            }
          }
        };
        const auto at = [&](int u) {
          return formula(kinds, [&](const C* numbers_at) {
            return load_block<C, kTiles>(numbers_at, k, u, out.columns);
          });
        };
        if constexpr (kCount == 1) {
          run(std::array{at(0)});
        } else {
          run(std::array{at(0), at(1), at(2), at(3)});
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
  parallel_for(cut.tasks(), x.numel() * 4, [&](std::int64_t t) {
    const SlabBuffers<C> buffers(in, out);
    cut.slabs(cut.task(t), [&](const Slab& s) {
      const auto from = in.read(s, buffers[0]);
      const auto to = out.open(s, buffers[1], false);
      map_slab<math::ChannelNorm>(cut.across, s, numbers, to, 0, from);
      out.close(s, to);
    });
  });
}

// ---- Gradients ----

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
  parallel_for(cut.tasks(), x.numel() * 4, [&](std::int64_t t) {
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

/// grad = beta*grad + sums over the samples of member `which` of each pair.
template <class C>
void parameter_gradient(const ConstView& sums, int which, const View& grad, float beta) {
  if (!grad.data) return;
  const std::int64_t samples = sums.shape[0], c = sums.shape[1];
  const RowBuffer<C> total(c), before(c);
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
    parallel_for(cut.tasks(), x.numel() * 2, [&](std::int64_t t) {
      const SlabBuffers<C> buffers(dy_in, out);
      cut.slabs(cut.task(t), [&](const Slab& s) {
        const auto to = out.open(s, buffers[1], beta != 0);
        map_slab<math::ChannelScale>(cut.across, s, scale, to, beta, dy_in.read(s, buffers[0]));
        out.close(s, to);
      });
    });
    return;
  }

  // a/n and b/n of every cell.
  const std::int64_t cell_count = var.numel();
  const RowBuffer<C> a(cell_count), b(cell_count);
  for (std::int64_t cell = 0; cell < cell_count; ++cell) {
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
  parallel_for(cut.tasks(), x.numel() * 6, [&](std::int64_t t) {
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

void channel_gradient_sums(const ConstView& dy, const ConstView& x, NormCells cells,
                           const ConstView& mean, const ConstView& var, double eps,
                           const View& sums, Stream) {
  x.dtype == DType::f64 ? gradient_sums_as<double>(dy, x, cells, mean, var, eps, sums)
                        : gradient_sums_as<float>(dy, x, cells, mean, var, eps, sums);
}

void channel_parameter_gradients(const ConstView& sums, const View& dweight, float dweight_beta,
                                 const View& dbias, float dbias_beta, Stream) {
  // One after the other: weight and bias may be one tensor.
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

}  // namespace firn::kernels::cpu
