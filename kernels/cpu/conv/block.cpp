#include "kernels/cpu/conv/block.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/gemm/block.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Positions [begin, end) of an axis.
struct Range {
  std::int64_t begin, end;
};

/// Returns the outputs of [0, outputs) whose input position out*stride + offset is in [0, inputs).
Range outputs_on_input(std::int64_t outputs, std::int64_t inputs, std::int64_t stride,
                       std::int64_t offset) {
  const std::int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const std::int64_t last = inputs - 1 - offset;  // out*stride may reach this far
  const std::int64_t end = last < 0 ? 0 : std::min(outputs, last / stride + 1);
  return {std::min(first, end), end};
}

// ---- Depthwise: a loop over channels for every pair of an output pixel and a tap ----

/// Calls fn(tap, y, x) with the offsets of every output and input pixel that a tap connects.
template <class Fn>
void for_each_tap(const ConvSizes& z, Fn&& fn) {
  const ConvGeometry& g = z.geometry;
  for (std::int64_t row = 0; row < z.n * z.p; ++row) {
    const std::int64_t image = row / z.p, p = row % z.p;
    for (std::int64_t i = 0; i < z.r; ++i) {
      const std::int64_t ih = p * g.stride[0] - g.before[0] + i * g.dilation[0];
      if (ih < 0 || ih >= z.h) continue;
      for (std::int64_t j = 0; j < z.s; ++j) {
        const std::int64_t offset = j * g.dilation[1] - g.before[1];
        const Range q = outputs_on_input(z.q, z.w, g.stride[1], offset);
        for (std::int64_t at = q.begin; at < q.end; ++at)
          fn(i * z.s + j, (row * z.q + at) * z.k,
             ((image * z.h + ih) * z.w + at * g.stride[1] + offset) * z.c);
      }
    }
  }
}

/// Writes weights [k, taps] as [taps, k], so that a tap's channels are adjacent.
template <class T>
void transpose(std::int64_t rows, std::int64_t columns, const T* from, T* to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

/// Adds the pixels of `from`, times the weights of the tap that connects them, to those of `to`: y
/// from x, or dx from dy.
template <bool kForward, class T>
void depthwise_image(const ConvSizes& z, const T* from, const T* w, T* to) {
  const Workspace own({z.r * z.s, z.c}, dtype_of<T>);
  T* const taps = own.view().as<T>();
  transpose(z.c, z.r * z.s, w, taps);
  for_each_tap(z, [&](std::int64_t tap, std::int64_t at_y, std::int64_t at_x) {
    const T *const a = from + (kForward ? at_x : at_y), *const b = taps + tap * z.c;
    T* const sum = to + (kForward ? at_y : at_x);
    for (std::int64_t c = 0; c < z.c; ++c) sum[c] += a[c] * b[c];
  });
}

template <class T>
void depthwise_weight(const ConvSizes& z, const T* dy, const T* x, T* dw) {
  const Workspace own({z.r * z.s, z.c}, dtype_of<T>);
  T* const taps = own.view().as<T>();
  transpose(z.c, z.r * z.s, dw, taps);
  for_each_tap(z, [&](std::int64_t tap, std::int64_t at_y, std::int64_t at_x) {
    const T *const a = dy + at_y, *const b = x + at_x;
    T* const to = taps + tap * z.c;
    for (std::int64_t c = 0; c < z.c; ++c) to[c] += a[c] * b[c];
  });
  transpose(z.r * z.s, z.c, taps, dw);
}

// ---- im2col ----

/// Runs shorter than this occur with few channels. A call of memcpy would cost more than the copy.
constexpr std::int64_t kShortRun = 16;

template <class T>
void copy_run(const T* from, std::int64_t count, T* to) {
  if (count < kShortRun) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
  }
}

/// Calls fn(in, out, count) for every run that is contiguous in x and in a row of the panel. `in`
/// is an offset in x (-1: padding), `out` one in the panel of rows [first, last).
template <class Fn>
void for_each_run(const ConvSizes& z, std::int64_t group, std::int64_t first, std::int64_t last,
                  Fn&& fn) {
  const ConvGeometry& g = z.geometry;
  const std::int64_t c = z.channels(), across = z.s * c;
  const bool joined = g.groups == 1 && g.dilation[1] == 1;  // true if taps across are adjacent
  std::int64_t out = 0;
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t image = row / z.p, top = row % z.p * g.stride[0] - g.before[0];
    for (std::int64_t q = 0; q < z.q; ++q) {
      const std::int64_t left = q * g.stride[1] - g.before[1];
      for (std::int64_t i = 0; i < z.r; ++i, out += across) {
        const std::int64_t ih = top + i * g.dilation[0];
        if (ih < 0 || ih >= z.h) {
          fn(std::int64_t{-1}, out, across);
          continue;
        }
        const std::int64_t line = (image * z.h + ih) * z.w;
        if (joined) {
          const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, z.s);
          const std::int64_t end = std::clamp<std::int64_t>(z.w - left, begin, z.s);
          if (begin > 0) fn(std::int64_t{-1}, out, begin * c);
          if (end > begin) fn((line + left + begin) * z.c, out + begin * c, (end - begin) * c);
          if (end < z.s) fn(std::int64_t{-1}, out + end * c, (z.s - end) * c);
          continue;
        }
        for (std::int64_t j = 0; j < z.s; ++j) {
          const std::int64_t iw = left + j * g.dilation[1];
          const bool inside = iw >= 0 && iw < z.w;
          fn(inside ? (line + iw) * z.c + group * c : std::int64_t{-1}, out + j * c, c);
        }
      }
    }
  }
}

template <class T>
void gather(const ConvSizes& z, std::int64_t group, std::int64_t first, std::int64_t last,
            const T* x, T* panel) {
  for_each_run(z, group, first, last, [&](std::int64_t in, std::int64_t out, std::int64_t count) {
    if (in < 0) {
      std::fill_n(panel + out, count, T(0));
    } else {
      copy_run(x + in, count, panel + out);
    }
  });
}

template <class T>
void scatter_add(const ConvSizes& z, std::int64_t group, std::int64_t first, std::int64_t last,
                 const T* panel, T* dx) {
  for_each_run(z, group, first, last, [&](std::int64_t in, std::int64_t out, std::int64_t count) {
    if (in < 0) return;
    const T* const from = panel + out;
    T* const to = dx + in;
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
  });
}

/// Numbers of a panel that stays in the L2 cache together with the other operand.
constexpr std::int64_t kPanel = 1 << 16;

/// Returns the number of rows of the output (z.n * z.p in all) for each panel.
std::int64_t rows_at_a_time(const ConvSizes& z) {
  const std::int64_t row = std::max<std::int64_t>(1, z.q * z.column());
  return std::clamp<std::int64_t>(kPanel / row, 1, std::max<std::int64_t>(1, z.n * z.p));
}

/// True if the kernel has one tap that reads every pixel once: then x itself is the panel.
bool pointwise(const ConvSizes& z) {
  const ConvGeometry& g = z.geometry;
  return z.r == 1 && z.s == 1 && g.stride[0] == 1 && g.stride[1] == 1 && g.before[0] == 0 &&
         g.before[1] == 0 && z.p == z.h && z.q == z.w;
}

}  // namespace

template <class T>
std::int64_t conv_block_scratch(ConvPass pass, const ConvSizes& z) {
  if (z.depthwise()) return slot_bytes_of<T>(z.r * z.s * z.c);
  const bool whole = pointwise(z);
  const std::int64_t row = z.column(), k = z.kernels(), rows = z.n * z.p;
  const std::int64_t step = whole ? rows : rows_at_a_time(z);
  std::int64_t product = 0;
  for (const std::int64_t count : {std::min(step, rows), step > 0 ? rows % step : 0}) {
    const std::int64_t pixels = count * z.q;
    if (pass == ConvPass::forward)
      product = std::max(product, gemm_block_scratch<T>(pixels, k, row, false, true));
    if (pass == ConvPass::weight)
      product = std::max(product, gemm_block_scratch<T>(k, row, pixels, true, false));
  }
  return product + (whole ? 0 : slot_bytes_of<T>(step * z.q * row));
}

template <class T>
void conv_forward_block(const ConvSizes& z, const T* x, const T* w, T* y) {
  if (z.depthwise()) {
    std::fill_n(y, z.n * z.p * z.q * z.k, T(0));
    return depthwise_image<true>(z, x, w, y);
  }
  const std::int64_t row = z.column(), k = z.kernels(), c = z.channels();
  const auto weights = [&](std::int64_t group) {
    return BlockOperand<T>{w + group * k * row, std::max<std::int64_t>(row, 1), true};
  };
  if (pointwise(z)) {
    for (std::int64_t group = 0; group < z.geometry.groups; ++group)
      gemm_block<T>(z.n * z.p * z.q, k, c, T(1),
                    {x + group * c, std::max<std::int64_t>(z.c, 1), false}, weights(group), T(0),
                    y + group * k, z.k);
    return;
  }
  const std::int64_t step = rows_at_a_time(z);
  const Workspace own({step * z.q, row}, dtype_of<T>);
  T* const panel = own.view().as<T>();
  for (std::int64_t first = 0; first < z.n * z.p; first += step) {
    const std::int64_t last = std::min(first + step, z.n * z.p);
    for (std::int64_t group = 0; group < z.geometry.groups; ++group) {
      gather(z, group, first, last, x, panel);
      gemm_block<T>((last - first) * z.q, k, row, T(1),
                    {panel, std::max<std::int64_t>(row, 1), false}, weights(group), T(0),
                    y + first * z.q * z.k + group * k, z.k);
    }
  }
}

template <class T>
void conv_data_block(const ConvSizes& z, const T* dy, const T* w, T* dx) {
  if (z.column() == 0 || z.k == 0) return;
  if (z.depthwise()) return depthwise_image<false>(z, dy, w, dx);
  const std::int64_t row = z.column(), k = z.kernels(), c = z.channels();
  if (pointwise(z)) {
    for (std::int64_t group = 0; group < z.geometry.groups; ++group)
      gemm_block<T>(z.n * z.p * z.q, c, k, T(1), {dy + group * k, z.k, false},
                    {w + group * k * c, c, false}, T(1), dx + group * c, z.c);
    return;
  }
  const std::int64_t step = rows_at_a_time(z);
  const Workspace own({step * z.q, row}, dtype_of<T>);
  T* const panel = own.view().as<T>();
  for (std::int64_t first = 0; first < z.n * z.p; first += step) {
    const std::int64_t last = std::min(first + step, z.n * z.p);
    for (std::int64_t group = 0; group < z.geometry.groups; ++group) {
      gemm_block<T>((last - first) * z.q, row, k, T(1),
                    {dy + first * z.q * z.k + group * k, z.k, false},
                    {w + group * k * row, row, false}, T(0), panel, row);
      scatter_add(z, group, first, last, panel, dx);
    }
  }
}

template <class T>
void conv_weight_block(const ConvSizes& z, const T* dy, const T* x, T* dw) {
  if (z.column() == 0 || z.k == 0) return;
  if (z.depthwise()) return depthwise_weight(z, dy, x, dw);
  const std::int64_t row = z.column(), k = z.kernels(), c = z.channels();
  if (pointwise(z)) {
    for (std::int64_t group = 0; group < z.geometry.groups; ++group)
      gemm_block<T>(k, c, z.n * z.p * z.q, T(1), {dy + group * k, z.k, true},
                    {x + group * c, z.c, false}, T(1), dw + group * k * c, c);
    return;
  }
  const std::int64_t step = rows_at_a_time(z);
  const Workspace own({step * z.q, row}, dtype_of<T>);
  T* const panel = own.view().as<T>();
  for (std::int64_t first = 0; first < z.n * z.p; first += step) {
    const std::int64_t last = std::min(first + step, z.n * z.p);
    for (std::int64_t group = 0; group < z.geometry.groups; ++group) {
      gather(z, group, first, last, x, panel);
      gemm_block<T>(k, row, (last - first) * z.q, T(1),
                    {dy + first * z.q * z.k + group * k, z.k, true}, {panel, row, false}, T(1),
                    dw + group * k * row, row);
    }
  }
}

#define FIRN_CONV_BLOCK(T)                                                    \
  template std::int64_t conv_block_scratch<T>(ConvPass, const ConvSizes&);    \
  template void conv_forward_block(const ConvSizes&, const T*, const T*, T*); \
  template void conv_data_block(const ConvSizes&, const T*, const T*, T*);    \
  template void conv_weight_block(const ConvSizes&, const T*, const T*, T*);
FIRN_CONV_BLOCK(float)
FIRN_CONV_BLOCK(double)
#undef FIRN_CONV_BLOCK

}  // namespace firn::kernels::cpu::FIRN_ISA
