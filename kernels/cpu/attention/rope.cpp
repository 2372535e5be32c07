// Rotary positions on the CPU: a table of the angles' cosines and sines is made, then used for all
// rows.
#include "kernels/sequence/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/cpu/device/tile.h"
#include "kernels/cpu/index/index.h"
#include "kernels/math/sequence/rope.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Writes cosines and sines [rows, pairs] of the angles. Sines have the sign of the rotation.
template <class C>
void fill_table(const ConstView& positions, const RopeArgs& args, std::int64_t rows, std::int64_t n,
                std::int64_t pairs, C* cosines, C* sines) {
  using V = Tile<C>;
  const Workspace frequencies({pairs}, DType::f64);
  if (runtime::dry_run()) return;
  auto* const frequency = frequencies.view().as<double>();
  for (std::int64_t i = 0; i < pairs; ++i)
    frequency[i] =
        args.frequencies ? args.frequencies[i] : math::rope_frequency(args.theta, i, pairs);
  parallel_for(rows, rows * pairs * 16, [&](std::int64_t row) {
    const std::int64_t position =
        positions.data
            ? index_at(positions, row / n * positions.strides[0] + row % n * positions.strides[1])
            : args.offset + row;
    C angles[V::size] = {};
    for (std::int64_t i = 0; i < pairs; i += V::size) {
      const std::int64_t count = std::min<std::int64_t>(V::size, pairs - i);
      for (std::int64_t k = 0; k < count; ++k)
        angles[k] = static_cast<C>(math::rope_angle(position, frequency[i + k]));
      const V angle = V::load(angles), sine = sin(angle);
      cos(angle).store(cosines + row * pairs + i, count);
      (args.inverse ? -sine : sine).store(sines + row * pairs + i, count);
    }
  });
}

template <class C>
void turn_rows(const ConstView& x, const ConstView& positions, const RopeArgs& args, const View& y,
               float beta) {
  const std::int64_t heads = x.shape[1], n = x.shape[2], d = x.shape[3], pairs = d / 2;
  const std::int64_t rows = positions.data ? positions.shape[0] * n : n;
  const Workspace table({2, rows * pairs}, dtype_of<C>);
  C *const cosines = table.view().as<C>(), *const sines = cosines + rows * pairs;
  fill_table(positions, args, rows, n, pairs, cosines, sines);
  const std::int64_t bytes = slot_bytes_of<C>(4 * d);
  parallel_for_with_scratch(bytes, x.shape[0] * n, x.numel() * 4, [&](std::int64_t task) {
    const std::int64_t b = task / n, r = task % n, row = rows == n ? r : task;
    const Workspace buffers({4, d}, dtype_of<C>);
    C* const buffer = buffers.view().as<C>();
    const C *const c = cosines + row * pairs, *const s = sines + row * pairs;
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto at = [&](const Strides& t) { return b * t[0] + h * t[1] + r * t[2]; };
      const C* const in =
          load_row(advance(x.data, x.dtype, at(x.strides)), x.dtype, x.strides[3], d, buffer);
      void* const to = advance(y.data, y.dtype, at(y.strides));
      C* const out = buffer + d;
      const auto turn = [&](std::int64_t i, std::int64_t first, std::int64_t second) {
        const math::Turn<C> angle{c[i], s[i]};
        const C x1 = in[first], x2 = in[second];
        out[first] = angle.first(x1, x2);
        out[second] = angle.second(x1, x2);
      };
      if (args.interleaved) {
        for (std::int64_t i = 0; i < pairs; ++i) turn(i, 2 * i, 2 * i + 1);
      } else {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < pairs; ++i) turn(i, i, i + pairs);
      }
      if (beta != 0) {
        const C* const old = load_row<C>(to, y.dtype, y.strides[3], d, buffer + 2 * d);
        for (std::int64_t i = 0; i < d; ++i) out[i] += C(beta) * old[i];
      }
      store_row(out, to, y.dtype, y.strides[3], d);
    }
  });
}

}  // namespace

void rope(const ConstView& x, const ConstView& positions, const RopeArgs& args, const View& y,
          float beta, Stream) {
  if (x.numel() == 0) return;
  x.dtype == DType::f64 ? turn_rows<double>(x, positions, args, y, beta)
                        : turn_rows<float>(x, positions, args, y, beta);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
