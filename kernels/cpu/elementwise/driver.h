// The one driver of all elementwise kernels on the CPU. A kernel is a row function on spans of the
// compute type; the driver walks the views, converts, broadcasts and splits the work over threads.
// All ops share its code, so an op costs only its row functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "firn/view.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/streaming.h"
#include "kernels/cpu/device/tile_functions.h"
#include "kernels/cpu/elementwise/operand.h"
#include "kernels/math/integer.h"
#include "kernels/math/unary.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Computes out[0 .. n) from in[0][0 .. n), in[1][0 .. n), ... `old` is null, or holds the previous
/// values of out, to be added (axpby: scaled and added). Spans may coincide exactly but not overlap
/// otherwise.
template <class C>
using RowFn = void (*)(const C* const* in, const C* old, C* out, std::int64_t n,
                       const math::Args& args);

/// out[i] = fn(in[i]...), tile by tile. Integers are computed one by one, and wrap around.
template <class C, class Fn, class... In>
void map_row(std::int64_t n, C* out, Fn fn, const In*... in) {
  if constexpr (std::is_same_v<C, std::int64_t>) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = fn(math::Wrapping(in[i])...).n;
  } else {
    using V = Tile<C>;
    for (std::int64_t i = 0; i < n; i += V::size) {
      if (n - i >= V::size) [[likely]] {
        fn(V::load(in + i)...).store(out + i);
      } else {
        fn(V::load_repeating(in + i, n - i)...).store(out + i, n - i);
      }
    }
  }
}

/// Number of elements of a chunk.
inline constexpr std::int64_t kChunk = 16 * kRow;

/// Number of elements that bypass the caches at a time, few enough that loads do not stall, and
/// distance at which their operands are prefetched.
inline constexpr std::int64_t kStreamed = 128, kAhead = 1024;
inline void fetch_ahead(const void* from, std::size_t size) {
  const char* const at = static_cast<const char*>(from) + kAhead * static_cast<std::int64_t>(size);
  for (std::size_t line = 0; line < kStreamed * size; line += 64) __builtin_prefetch(at + line);
}

/// True if a view of several elements repeats one.
inline bool repeats_one(const ConstView& x) {
  bool several = false;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.shape[i] == 1) continue;
    if (x.strides[i] != 0) return false;
    several = true;
  }
  return several;
}

/// elementwise() of views that differ in their order, block by block.
template <class C, int N>
void elementwise_in_blocks(RowFn<C> row, const ConstView* const (&in)[N], const View& out,
                           bool accumulate, const math::Args& args, int cost) {
  const Strides* strides[N + 1] = {&out.strides};
  for (int k = 0; k < N; ++k) strides[k + 1] = &in[k]->strides;
  const Blocks blocks(out.shape, strides, N + 1, kRow);
  // Long rows are computed where they are, and the others in buffers, many at once.
  const bool dense = blocks.dense(0);
  bool by_rows = !dense;
  for (int k = 0; k < N; ++k)
    by_rows = by_rows || (in[k]->dtype == dtype_of<C> && blocks.in_rows(k + 1));
  by_rows = by_rows && blocks.width() >= kLongRow;
  const BlockSteps to = blocks.steps(0);
  const bool in_place = out.dtype == dtype_of<C> && to.column == 1 && (dense || by_rows);
  parallel_for(blocks.chunks(), out.numel() * cost, [&](std::int64_t c) {
    alignas(64) C buffers[N + 2][kRow];
    Operand<C> x[N], old;
    for (int k = 0; k < N; ++k) x[k] = Operand<C>(*in[k], blocks, k + 1, !by_rows, buffers[k]);
    if (accumulate) old = Operand<C>(out, blocks, 0, !by_rows, buffers[N]);
    blocks.visit(c, [&](const std::int64_t* offsets, std::int64_t height, std::int64_t width) {
      const C* from[N];
      for (int k = 0; k < N; ++k) from[k] = x[k].read(offsets[k + 1], height, width);
      const C* before = accumulate ? old.read(offsets[0], height, width) : nullptr;
      void* const target = advance(out.data, out.dtype, offsets[0]);
      C* const y = in_place ? static_cast<C*>(target) : buffers[N + 1];
      const std::int64_t calls = by_rows ? height : 1, n = by_rows ? width : height * width;
      for (std::int64_t r = 0; r < calls; ++r) {
        row(from, before, y + r * (in_place ? to.row : width), n, args);
        for (int k = 0; k < N; ++k) from[k] += x[k].row(width);
        if (before) before += old.row(width);
      }
      if (in_place) return;
      if (dense) return store_row(y, target, out.dtype, 1, height * width);
      store_rows(y, width, target, out.dtype, to.row, to.column, height, width);
    });
  });
}

/// Runs `row` over views of one shape. If `accumulate`, row gets out's previous values. `cost` is
/// the number of operations per element, which decides whether threads pay.
template <class C, int N>
void elementwise(RowFn<C> row, const ConstView* const (&in)[N], const View& out, bool accumulate,
                 const math::Args& args, int cost) {
  const std::int64_t numel = out.numel();
  if (numel == 0) return;

  bool in_order = in_one_order(out), converts = out.dtype != dtype_of<C>, repeats[N];
  for (int k = 0; k < N; ++k) {
    repeats[k] = repeats_one(*in[k]);
    in_order = in_order && (repeats[k] || in_one_order(out, *in[k]));
    converts = converts || repeats[k] || in[k]->dtype != dtype_of<C>;
  }
  const std::int64_t chunks = math::ceil_div(numel, kChunk);
  if (in_order) {
    // Lines that are read anyway are better written through the caches.
    const auto out_size = static_cast<std::int64_t>(size_of(out.dtype));
    bool streams = !accumulate && outgrows_caches(numel * out_size);
    for (int k = 0; k < N; ++k) streams = streams && in[k]->data != out.data;
    const std::int64_t piece = streams ? kStreamed : kRow;
    parallel_for(chunks, numel * cost, [&](std::int64_t c) {
      const std::int64_t begin = c * kChunk, end = std::min(begin + kChunk, numel);
      const C* x[N];
      if (!streams && !converts) {
        for (int k = 0; k < N; ++k) x[k] = static_cast<const C*>(in[k]->data) + begin;
        C* const y = static_cast<C*>(out.data) + begin;
        return row(x, accumulate ? y : nullptr, y, end - begin, args);
      }
      alignas(64) C buffers[N + 1][kRow], old[kRow];
      alignas(64) char narrow[kStreamed * sizeof(C)];
      for (std::int64_t i = begin; i < end; i += piece) {
        const std::int64_t n = std::min(piece, end - i);
        for (int k = 0; k < N; ++k) {
          if (repeats[k]) {
            if (i == begin) x[k] = load_row(in[k]->data, in[k]->dtype, 0, n, buffers[k]);
            continue;
          }
          const void* const from = advance(in[k]->data, in[k]->dtype, i);
          if (streams) fetch_ahead(from, size_of(in[k]->dtype));
          x[k] = load_row(from, in[k]->dtype, 1, n, buffers[k]);
        }
        void* const to = advance(out.data, out.dtype, i);
        const C* const before = accumulate ? load_row(to, out.dtype, 1, n, old) : nullptr;
        C* const y = streams ? buffers[N] : row_target(to, out.dtype, 1, buffers[N]);
        row(x, before, y, n, args);
        if (!streams) {
          store_row(y, to, out.dtype, 1, n);
        } else if (out.dtype == dtype_of<C>) {
          stream_bytes(y, to, n * out_size);
        } else {
          store_row(y, narrow, out.dtype, 1, n);
          stream_bytes(narrow, to, n * out_size);
        }
      }
      if (streams) end_stream();
    });
    return;
  }

  elementwise_in_blocks(row, in, out, accumulate, args, cost);
}

/// The row functions of one op in the three compute types; null for types that the op does not
/// take.
struct Rows {
  RowFn<float> f = nullptr;
  RowFn<double> d = nullptr;
  RowFn<std::int64_t> i = nullptr;
};

/// Returns row(C()) for each compute type C that the op takes.
template <class Op, class RowOf>
constexpr Rows rows_of(RowOf row) {
  Rows rows;
  if constexpr (Op::floats) {
    rows.f = row(float());
    rows.d = row(double());
  }
  if constexpr (Op::integers) rows.i = row(std::int64_t());
  return rows;
}

/// Picks the compute type: the widest among the operands, which are of one class.
template <int N>
void elementwise(const Rows& rows, const ConstView* const (&in)[N], const View& out,
                 bool accumulate, const math::Args& args, int cost) {
  DType widest = in[0]->dtype;
  for (int k = 1; k < N; ++k) {
    if (in[k]->dtype == DType::f64) widest = DType::f64;
  }
  switch (compute_dtype(widest)) {
    case DType::f32:
      return elementwise<float, N>(rows.f, in, out, accumulate, args, cost);
    case DType::f64:
      return elementwise<double, N>(rows.d, in, out, accumulate, args, cost);
    default:
      return elementwise<std::int64_t, N>(rows.i, in, out, accumulate, args, cost);
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
