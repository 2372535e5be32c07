// Pooling backward on the CPU.
#include "kernels/cpu/image/pooling.h"
#include "kernels/pool.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Returns a span of n gradients, converted in `buffer` if necessary.
template <class A>
const A* gradients(const ConstView& dy, std::int64_t offset, std::int64_t stride, std::int64_t n,
                   A* buffer) {
  if (dy.dtype == dtype_of<A> && stride == 1) return dy.as<A>() + offset;
  return load_row<A>(advance(dy.data, dy.dtype, offset), dy.dtype, stride, n, buffer);
}

/// The gradients that windows give to their positions. load() reads those of window (i, j) for a
/// span of channels; along the width, it reads those of windows (i, j), (i, j + 1), ... give()
/// computes the share of one position of the window; along the width, the shares of `position`,
/// position + stride, ... add() adds those of a span's e-th window, at `position` and the n - 1
/// positions after it.
template <class A>
struct MaxGradient {
  const ConstView &dy, &index;
  const Pooling& p;

  struct Span {
    const A* d;
    const std::int32_t* k;
    alignas(64) A buffer[kSpan];
    alignas(64) std::int32_t found[kSpan];
  };
  void load(const ImageRow& at, std::int64_t i, std::int64_t j, std::int64_t n, Span& span) const {
    const int axis = p.by_width ? 3 : 1;
    span.d =
        gradients(dy, offset_of(dy.strides, at.n, at.c, i, j), dy.strides[axis], n, span.buffer);
    span.k = index.as<std::int32_t>() + offset_of(index.strides, at.n, at.c, i, j);
    if (index.strides[axis] == 1) return;
    for (std::int64_t e = 0; e < n; ++e) span.found[e] = span.k[e * index.strides[axis]];
    span.k = span.found;
  }
  void give(const Span& span, std::int64_t n, std::int64_t position, A* __restrict out) const {
    const A* const d = span.d;
    const std::int32_t* const k = span.k;
    const auto first = static_cast<std::int32_t>(position);
    if (!p.by_width) {
      using V = Tile<A>;
      std::int64_t e = 0;
      for (; e + V::size <= n; e += V::size) {
        const Mask<A> here{load_lanes<A>(k + e) == all_lanes<A>(position)};
        where(here, V::load(d + e), V(0)).store(out + e);
      }
      for (; e < n; ++e) out[e] = k[e] == first ? d[e] : A(0);
      return;
    }
    const auto step = static_cast<std::int32_t>(p.w.stride);
    for (std::int64_t e = 0; e < n; ++e)
      out[e] = k[e] == first + static_cast<std::int32_t>(e) * step ? d[e] : A(0);
  }
  void add(const Span& span, std::int64_t e, std::int64_t position, std::int64_t n,
           A* __restrict sum) const {
    const std::int64_t here = span.k[e] - position;
    for (std::int64_t i = 0; i < n; ++i) sum[i] += i == here ? span.d[e] : A(0);
  }
};

template <class A>
struct MeanGradient {
  const ConstView& dy;
  const Pooling& p;

  struct Span {
    alignas(64) A part[kSpan];
  };
  void load(const ImageRow& at, std::int64_t i, std::int64_t j, std::int64_t n, Span& span) const {
    const int axis = p.by_width ? 3 : 1;
    const A* const d =
        gradients(dy, offset_of(dy.strides, at.n, at.c, i, j), dy.strides[axis], n, span.part);
    if (p.by_width) {
      p.divide(d, i, j, n, span.part);
    } else {
      const A divisor = static_cast<A>(p.divisor(i, j));
      for (std::int64_t e = 0; e < n; ++e) span.part[e] = d[e] / divisor;
    }
  }
  void give(const Span& span, std::int64_t n, std::int64_t, A* __restrict out) const {
    std::copy_n(span.part, n, out);
  }
  void add(const Span& span, std::int64_t e, std::int64_t, std::int64_t n,
           A* __restrict sum) const {
    for (std::int64_t i = 0; i < n; ++i) sum[i] += span.part[e];
  }
};

/// dx = beta*dx + the shares that its windows give, for spans along the width.
template <class A, class Gradient>
void gather_along_width(const Pooling& p, const Gradient& gradient, const View& dx, float beta,
                        const ImageRow& at) {
  alignas(64) A sum[kSpan];
  alignas(64) A part[kSpan];
  typename Gradient::Span span;
  std::fill_n(sum, at.size, A(0));
  const Range down = p.h.windows(at.h), taps = p.w.taps();
  for (std::int64_t i = down.begin; i < down.end; ++i) {
    if (!p.h.holds(i, at.h)) continue;
    for (std::int64_t k = taps.end - 1; k >= taps.begin; --k) {  // windows in rising order
      const Range across = p.w.windows_with(k, {at.w, at.w + at.size});
      const std::int64_t n = across.end - across.begin;
      if (n <= 0) continue;
      const std::int64_t w = p.w.first(across.begin) + k * p.w.dilation;
      gradient.load(at, i, across.begin, n, span);
      gradient.give(span, n, at.h * p.w.in + w, part);
      for (std::int64_t e = 0; e < n; ++e) sum[w - at.w + e * p.w.stride] += part[e];
    }
  }
  void* const dst = advance(dx.data, dx.dtype, offset_of(dx.strides, at.n, at.c, at.h, at.w));
  store_gradient(sum, dst, dx.dtype, dx.strides[3], at.size, beta, part);
}

/// gather_along_width() for adaptive windows.
template <class A, class Gradient>
void gather_by_window(const Pooling& p, const Gradient& gradient, const View& dx, float beta,
                      const ImageRow& at) {
  alignas(64) A sum[kSpan];
  alignas(64) A old[kSpan];
  typename Gradient::Span span;
  std::fill_n(sum, at.size, -A(0));  // keeps the sign of zeros
  const Range down = p.h.windows(at.h);
  const Range across{p.w.windows(at.w).begin, p.w.windows(at.w + at.size - 1).end};
  for (std::int64_t i = down.begin; i < down.end; ++i) {
    for (std::int64_t j = across.begin; j < across.end; j += kSpan) {
      const std::int64_t n = std::min(kSpan, across.end - j);
      gradient.load(at, i, j, n, span);
      for (std::int64_t e = 0; e < n; ++e) {
        const Range all = p.across[static_cast<std::size_t>(j + e)];
        const std::int64_t begin = std::max(all.begin, at.w);
        const std::int64_t end = std::min(all.end, at.w + at.size);
        gradient.add(span, e, at.h * p.w.in + begin, end - begin, sum + (begin - at.w));
      }
    }
  }
  void* const dst = advance(dx.data, dx.dtype, offset_of(dx.strides, at.n, at.c, at.h, at.w));
  store_gradient(sum, dst, dx.dtype, dx.strides[3], at.size, beta, old);
}

/// dx = beta*dx + these shares, for spans along the channels.
template <class A, class Gradient>
void gather_channels(const Pooling& p, const Gradient& gradient, const View& dx, float beta,
                     const ImageRow& at) {
  alignas(64) A buffer[kSpan];
  alignas(64) A part[kSpan];
  typename Gradient::Span span;
  const Range down = p.h.windows(at.h);
  for (std::int64_t w = 0; w < p.w.in; ++w) {
    void* const dst = advance(dx.data, dx.dtype, offset_of(dx.strides, at.n, at.c, at.h, w));
    A* const sum = beta != 0 ? buffer : row_target<A>(dst, dx.dtype, dx.strides[1], buffer);
    const Range across = p.across[static_cast<std::size_t>(w)];
    bool first = true;
    for (std::int64_t i = down.begin; i < down.end; ++i) {
      if (!p.h.holds(i, at.h)) continue;
      for (std::int64_t j = across.begin; j < across.end; ++j) {
        if (!p.w.holds(j, w)) continue;
        gradient.load(at, i, j, at.size, span);
        gradient.give(span, at.size, at.h * p.w.in + w, first ? sum : part);
        for (std::int64_t e = 0; !first && e < at.size; ++e) sum[e] += part[e];
        first = false;
      }
    }
    if (first) std::fill_n(sum, at.size, A(0));
    store_gradient(sum, dst, dx.dtype, dx.strides[1], at.size, beta, part);
  }
}

/// gather_channels() if no two windows share a position. A row of windows writes all positions up
/// to the next row's, including those between windows.
template <class A, class Gradient>
void spread_channels(const Pooling& p, const Gradient& gradient, const View& dx, float beta,
                     const ImageRow& at) {
  alignas(64) A buffer[kSpan];
  alignas(64) A old[kSpan];
  typename Gradient::Span span;
  const Range down = p.h.positions(at.h), rows = p.h.territory(at.h);
  for (std::int64_t j = 0; j < p.w.out; ++j) {
    gradient.load(at, at.h, j, at.size, span);
    const Range across = p.w.positions(j), columns = p.w.territory(j);
    for (std::int64_t h = rows.begin; h < rows.end; ++h) {
      for (std::int64_t w = columns.begin; w < columns.end; ++w) {
        void* const dst = advance(dx.data, dx.dtype, offset_of(dx.strides, at.n, at.c, h, w));
        A* const sum = beta != 0 ? buffer : row_target<A>(dst, dx.dtype, dx.strides[1], buffer);
        if (h >= down.begin && h < down.end && w >= across.begin && w < across.end) {
          gradient.give(span, at.size, h * p.w.in + w, sum);
        } else {
          std::fill_n(sum, at.size, A(0));
        }
        store_gradient(sum, dst, dx.dtype, dx.strides[1], at.size, beta, old);
      }
    }
  }
}

template <class A, class Gradient>
void backward(const Pooling& p, const Gradient& gradient, const Shape& windows, const View& dx,
              float beta) {
  if (!p.by_width && p.h.disjoint() && p.w.disjoint()) {
    const std::int64_t writes = p.h.in * p.w.in / (p.h.out * p.w.out) + 1;
    return for_image_rows(windows, false, writes, [&](const ImageRow& at) {
      spread_channels<A>(p, gradient, dx, beta, at);
    });
  }
  for_image_rows(dx.shape, p.by_width, p.windows_at(), [&](const ImageRow& at) {
    if (p.by_window) {
      gather_by_window<A>(p, gradient, dx, beta, at);
    } else if (p.by_width) {
      gather_along_width<A>(p, gradient, dx, beta, at);
    } else {
      gather_channels<A>(p, gradient, dx, beta, at);
    }
  });
}

Pooling backward_pooling(const ConstView& dy, const PoolWindows& windows, const View& dx) {
  Pooling p(windows, dx.shape, dy.shape, dx);
  if (p.by_window) {
    p.find_positions();
  } else {
    p.find_windows();
  }
  return p;
}

}  // namespace

void max_pool_backward(const ConstView& dy, const ConstView& index, const PoolWindows& windows,
                       const View& dx, float beta, Stream) {
  if (dx.numel() == 0) return;
  const Pooling p = backward_pooling(dy, windows, dx);
  if (dy.dtype == DType::f64) {
    return backward<double>(p, MaxGradient<double>{dy, index, p}, dy.shape, dx, beta);
  }
  backward<float>(p, MaxGradient<float>{dy, index, p}, dy.shape, dx, beta);
}

void avg_pool_backward(const ConstView& dy, const PoolWindows& windows, const View& dx, float beta,
                       Stream) {
  if (dx.numel() == 0) return;
  const Pooling p = backward_pooling(dy, windows, dx);
  if (dy.dtype == DType::f64) {
    return backward<double>(p, MeanGradient<double>{dy, p}, dy.shape, dx, beta);
  }
  backward<float>(p, MeanGradient<float>{dy, p}, dy.shape, dx, beta);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
