// Per-channel numbers for the kernels of normalisation by channel, and the loop that applies a
// formula with these numbers to a slab.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "kernels/channel_norm.h"
#include "kernels/cpu/channel_norm/driver.h"

namespace firn::kernels::cpu::FIRN_ISA {

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

/// kKinds numbers for each channel, of all samples or of each sample, in arrays [sections, c].
template <class C, int kKinds>
class PerChannel {
 public:
  /// Calls fill(section, channel, cell, set), which calls set(kind, value).
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

/// Returns rstd of every cell.
template <class C>
RowBuffer<C> inverse_deviations(const ConstView& var, double eps) {
  const std::int64_t n = var.numel();
  RowBuffer<C> rstd(n);
  if (runtime::dry_run()) return rstd;
  for (std::int64_t i = 0; i < n; ++i)
    rstd.data()[i] = C(1) / std::sqrt(var.as<C>()[i] + static_cast<C>(eps));
  return rstd;
}

/// out = beta*out + Formula<V>{k...}(in...), where k are a channel's numbers.
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

}  // namespace firn::kernels::cpu::FIRN_ISA
