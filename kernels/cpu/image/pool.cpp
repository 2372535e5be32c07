// Pooling. Spans run along the channels: a window is a few rows, which are folded in registers. In
// row-major images they run along the width: one tap of all windows of a row is a span.
#include "kernels/pool.h"

#include <vector>

#include "kernels/cpu/device/tile.h"
#include "kernels/cpu/image/image_rows.h"
#include "kernels/math/fold.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using math::Range;
using math::WindowAxis;
using tiles::Mask;
using tiles::Tile;

constexpr int kTaps = 16;  // rows folded in one pass

/// Images and the windows over them.
struct Pooling {
  WindowAxis h, w;
  bool count_padding;
  bool by_width;
  /// Each window's positions along the width (forward), or each position's windows (backward).
  std::vector<Range> across;

  Pooling(const PoolWindows& windows, const Shape& in, const Shape& out, const ConstView& written)
      : h(window_axis(windows, 0, in[2], out[2])),
        w(window_axis(windows, 1, in[3], out[3])),
        count_padding(windows.count_padding),
        by_width(!windows.adaptive && along_width(written)) {}

  std::int64_t divisor(std::int64_t i, std::int64_t j) const {
    return h.divisor(i, count_padding) * w.divisor(j, count_padding);
  }
  /// Approximate number of a window's elements in the image.
  std::int64_t window_size() const { return along(h) * along(w); }
  /// Approximate number of windows that hold a position.
  std::int64_t windows_at() const {
    return (along(h) * h.out / h.in + 1) * (along(w) * w.out / w.in + 1);
  }
  static std::int64_t along(const WindowAxis& a) {
    return a.adaptive ? a.in / a.out + 1 : std::min(a.size, a.in);
  }
};

// ---- Forward ----

/// Rows of n elements, each with its position in the image.
template <class A>
struct Taps {
  int count = 0;
  const A* row[kTaps];
  std::int32_t position[kTaps];
  alignas(64) A buffer[kTaps][kSpan];
};

/// Calls fold(taps, first) with the rows of window (i, j) for a span of channels, up to kTaps at a
/// time. Returns false if the window holds none.
template <class A, class Fold>
bool fold_window(const Pooling& p, const ConstView& x, const ImageRow& at, std::int64_t j,
                 Taps<A>& taps, Fold&& fold) {
  const Range down = p.h.positions(at.h), across = p.across[static_cast<std::size_t>(j)];
  const bool direct = x.dtype == dtype_of<A> && x.strides[1] == 1;
  bool first = true;
  taps.count = 0;
  for (std::int64_t h = down.begin; h < down.end; h += p.h.dilation) {
    for (std::int64_t w = across.begin; w < across.end; w += p.w.dilation) {
      if (taps.count == kTaps) {
        fold(taps, first);
        first = false;
        taps.count = 0;
      }
      const void* src = advance(x.data, x.dtype, offset_of(x.strides, at.n, at.c, h, w));
      taps.row[taps.count] =
          direct ? static_cast<const A*>(src)
                 : load_row<A>(src, x.dtype, x.strides[1], at.size, taps.buffer[taps.count]);
      taps.position[taps.count++] = static_cast<std::int32_t>(h * p.w.in + w);
    }
  }
  if (taps.count > 0) fold(taps, first);
  return taps.count > 0;
}

/// Adjacent positions, one for each lane of a tile of A.
template <class A>
using Lanes = typename Mask<A>::Vec;
template <class A>
Lanes<A> load_lanes(const std::int32_t* index) {
  Lanes<A> k;
  if constexpr (sizeof(typename Mask<A>::Word) == sizeof(std::int32_t)) {
    std::memcpy(&k, index, sizeof k);
  } else {
    for (int l = 0; l < Tile<A>::size; ++l) k[l] = index[l];
  }
  return k;
}
template <class A>
void store_lanes(Lanes<A> k, std::int32_t* index) {
  if constexpr (sizeof(typename Mask<A>::Word) == sizeof(std::int32_t)) {
    std::memcpy(index, &k, sizeof k);
  } else {
    for (int l = 0; l < Tile<A>::size; ++l) index[l] = static_cast<std::int32_t>(k[l]);
  }
}
template <class A>
Lanes<A> all_lanes(std::int64_t position) {
  return static_cast<typename Mask<A>::Word>(position) - Lanes<A>{};
}

/// Finds the largest of the taps, and its position. Unless `first`, the previous result in best and
/// index takes part. kCount is the number of taps, or 0 for taps.count.
template <class A, int kCount>
void fold_max_of(const Taps<A>& taps, bool first, std::int64_t n, A* best, std::int32_t* index) {
  using V = Tile<A>;
  const int count = kCount > 0 ? kCount : taps.count;
  std::int64_t i = 0;
  for (; i + V::size <= n; i += V::size) {
    V b = V::load((first ? taps.row[0] : best) + i);
    Lanes<A> k = first ? all_lanes<A>(taps.position[0]) : load_lanes<A>(index + i);
    for (int t = first; t < count; ++t) {
      const V v = V::load(taps.row[t] + i);
      const Mask<A> better = math::beats(v, b);
      b = where(better, v, b);
      k = better.v ? all_lanes<A>(taps.position[t]) : k;
    }
    b.store(best + i);
    store_lanes<A>(k, index + i);
  }
  for (; i < n; ++i) {
    A b = first ? taps.row[0][i] : best[i];
    std::int32_t k = first ? taps.position[0] : index[i];
    for (int t = first; t < count; ++t) {
      const A v = taps.row[t][i];
      if (math::beats(v, b)) {
        b = v;
        k = taps.position[t];
      }
    }
    best[i] = b;
    index[i] = k;
  }
}
template <class A>
void fold_max(const Taps<A>& taps, bool first, std::int64_t n, A* best, std::int32_t* index) {
  if (first && taps.count == 4) return fold_max_of<A, 4>(taps, true, n, best, index);
  if (first && taps.count == 9) return fold_max_of<A, 9>(taps, true, n, best, index);
  fold_max_of<A, 0>(taps, first, n, best, index);
}

template <class A>
void fold_sum(const Taps<A>& taps, bool first, std::int64_t n, A* sum) {
  using V = Tile<A>;
  std::int64_t i = 0;
  for (; i + V::size <= n; i += V::size) {
    V s = V::load((first ? taps.row[0] : sum) + i);
    for (int t = first; t < taps.count; ++t) s += V::load(taps.row[t] + i);
    s.store(sum + i);
  }
  for (; i < n; ++i) {
    A s = first ? taps.row[0][i] : sum[i];
    for (int t = first; t < taps.count; ++t) s += taps.row[t][i];
    sum[i] = s;
  }
}

/// Calls fold(row, step, i, n, position) with one tap of the n windows i, i + 1, ... of a row.
/// These taps are at `position`, position + stride, ... of the image, and at row[0], row[step], ...
/// in memory.
template <class A, class Fold>
void fold_along_width(const Pooling& p, const ConstView& x, const ImageRow& at, Fold&& fold) {
  alignas(64) A buffer[kSpan];
  const Range down = p.h.positions(at.h), taps = p.w.taps();
  for (std::int64_t h = down.begin; h < down.end; h += p.h.dilation) {
    for (std::int64_t k = taps.begin; k < taps.end; ++k) {
      const Range all = p.w.windows_with(k, {0, p.w.in});
      const std::int64_t begin = std::max(all.begin, at.w);
      const std::int64_t n = std::min(all.end, at.w + at.size) - begin;
      if (n <= 0) continue;
      const std::int64_t w = p.w.first(begin) + k * p.w.dilation;
      const void* src = advance(x.data, x.dtype, offset_of(x.strides, at.n, at.c, h, w));
      const std::int64_t step = x.strides[3] * p.w.stride;
      if (x.dtype == dtype_of<A>) {
        fold(static_cast<const A*>(src), step, begin - at.w, n, h * p.w.in + w);
      } else {
        fold(load_row<A>(src, x.dtype, step, n, buffer), 1, begin - at.w, n, h * p.w.in + w);
      }
    }
  }
}

/// A span of indices, buffered if it is stored with a stride.
class IndexSpan {
 public:
  IndexSpan(const View& index, std::int64_t offset, std::int64_t stride)
      : out_(index.data == nullptr ? nullptr : index.as<std::int32_t>() + offset),
        stride_(stride) {}
  std::int32_t* data() { return out_ != nullptr && stride_ == 1 ? out_ : buffer_; }
  void store(std::int64_t n) const {
    if (out_ == nullptr || stride_ == 1) return;
    for (std::int64_t i = 0; i < n; ++i) out_[i * stride_] = buffer_[i];
  }

 private:
  std::int32_t* out_;
  std::int64_t stride_;
  alignas(64) std::int32_t buffer_[kSpan];
};

template <class A>
void max_pool_as(const ConstView& x, const Pooling& p, const View& y, const View& index) {
  constexpr A kLowest = math::MaxFold<A>::identity();
  for_image_rows(y.shape, p.by_width, p.window_size(), [&](const ImageRow& at) {
    alignas(64) A buffer[kSpan];
    if (p.by_width) {
      const std::int64_t offset = offset_of(y.strides, at.n, at.c, at.h, at.w);
      IndexSpan span(index, offset, y.strides[3]);
      std::int32_t* const found = span.data();
      std::fill_n(buffer, at.size, kLowest);
      std::fill_n(found, at.size, -1);
      fold_along_width<A>(
          p, x, at,
          [&](const A* row, std::int64_t step, std::int64_t i, std::int64_t n,
              std::int64_t position) {
            for (std::int64_t k = 0; k < n; ++k) {
              const A v = row[k * step];
              const bool better = math::beats(v, buffer[i + k]) | (found[i + k] < 0);
              buffer[i + k] = better ? v : buffer[i + k];
              found[i + k] =
                  better ? static_cast<std::int32_t>(position + k * p.w.stride) : found[i + k];
            }
          });
      store_row<A>(buffer, advance(y.data, y.dtype, offset), y.dtype, y.strides[3], at.size);
      span.store(at.size);
      return;
    }
    Taps<A> taps;
    for (std::int64_t j = 0; j < p.w.out; ++j) {
      const std::int64_t offset = offset_of(y.strides, at.n, at.c, at.h, j);
      void* const dst = advance(y.data, y.dtype, offset);
      A* const best = row_target<A>(dst, y.dtype, y.strides[1], buffer);
      IndexSpan span(index, offset, y.strides[1]);
      const bool any = fold_window(p, x, at, j, taps, [&](const Taps<A>& t, bool first) {
        fold_max(t, first, at.size, best, span.data());
      });
      if (!any) {
        std::fill_n(best, at.size, kLowest);
        std::fill_n(span.data(), at.size, -1);
      }
      if (best != dst) store_row<A>(best, dst, y.dtype, y.strides[1], at.size);
      span.store(at.size);
    }
  });
}

template <class A>
void avg_pool_as(const ConstView& x, const Pooling& p, const View& y) {
  for_image_rows(y.shape, p.by_width, p.window_size(), [&](const ImageRow& at) {
    alignas(64) A buffer[kSpan];
    if (p.by_width) {
      std::fill_n(buffer, at.size, A(0));
      fold_along_width<A>(
          p, x, at,
          [&](const A* row, std::int64_t step, std::int64_t i, std::int64_t n, std::int64_t) {
            for (std::int64_t k = 0; k < n; ++k) buffer[i + k] += row[k * step];
          });
      for (std::int64_t k = 0; k < at.size; ++k)
        buffer[k] /= static_cast<A>(p.divisor(at.h, at.w + k));
      void* const dst = advance(y.data, y.dtype, offset_of(y.strides, at.n, at.c, at.h, at.w));
      return store_row<A>(buffer, dst, y.dtype, y.strides[3], at.size);
    }
    Taps<A> taps;
    for (std::int64_t j = 0; j < p.w.out; ++j) {
      void* const dst = advance(y.data, y.dtype, offset_of(y.strides, at.n, at.c, at.h, j));
      A* const mean = row_target<A>(dst, y.dtype, y.strides[1], buffer);
      fold_window(p, x, at, j, taps,
                  [&](const Taps<A>& t, bool first) { fold_sum(t, first, at.size, mean); });
      const A divisor = static_cast<A>(p.divisor(at.h, j));
      for (std::int64_t k = 0; k < at.size; ++k) mean[k] /= divisor;
      if (mean != dst) store_row<A>(mean, dst, y.dtype, y.strides[1], at.size);
    }
  });
}

// ---- Backward ----

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
/// position + stride, ...
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
      for (std::int64_t e = 0; e < n; ++e)
        span.part[e] = d[e] / static_cast<A>(p.divisor(i, j + e));
    } else {
      const A divisor = static_cast<A>(p.divisor(i, j));
      for (std::int64_t e = 0; e < n; ++e) span.part[e] = d[e] / divisor;
    }
  }
  void give(const Span& span, std::int64_t n, std::int64_t, A* __restrict out) const {
    std::copy_n(span.part, n, out);
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
    if (p.by_width) {
      gather_along_width<A>(p, gradient, dx, beta, at);
    } else {
      gather_channels<A>(p, gradient, dx, beta, at);
    }
  });
}

Pooling forward_pooling(const ConstView& x, const PoolWindows& windows, const View& y) {
  Pooling p(windows, x.shape, y.shape, y);
  for (std::int64_t j = 0; j < p.w.out; ++j) p.across.push_back(p.w.positions(j));
  return p;
}

Pooling backward_pooling(const ConstView& dy, const PoolWindows& windows, const View& dx) {
  Pooling p(windows, dx.shape, dy.shape, dx);
  for (std::int64_t w = 0; w < p.w.in; ++w) p.across.push_back(p.w.windows(w));
  return p;
}

}  // namespace

void max_pool(const ConstView& x, const PoolWindows& windows, const View& y, const View& index,
              Stream) {
  if (y.numel() == 0) return;  // before the axes' tables are made
  const Pooling p = forward_pooling(x, windows, y);
  if (x.dtype == DType::f64) return max_pool_as<double>(x, p, y, index);
  max_pool_as<float>(x, p, y, index);
}

void max_pool_backward(const ConstView& dy, const ConstView& index, const PoolWindows& windows,
                       const View& dx, float beta, Stream) {
  if (dx.numel() == 0) return;
  const Pooling p = backward_pooling(dy, windows, dx);
  if (dy.dtype == DType::f64) {
    return backward<double>(p, MaxGradient<double>{dy, index, p}, dy.shape, dx, beta);
  }
  backward<float>(p, MaxGradient<float>{dy, index, p}, dy.shape, dx, beta);
}

void avg_pool(const ConstView& x, const PoolWindows& windows, const View& y, Stream) {
  if (y.numel() == 0) return;
  const Pooling p = forward_pooling(x, windows, y);
  if (x.dtype == DType::f64) return avg_pool_as<double>(x, p, y);
  avg_pool_as<float>(x, p, y);
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
