// Pooling. Spans run along the channels, where a window is a few rows that are folded in registers,
// or, in row-major images, along the width, where a tap of all windows of a row is a row of its
// own.
#include "kernels/pool.h"

#include <vector>

#include "kernels/cpu/image_rows.h"
#include "kernels/cpu/tile.h"
#include "kernels/math/fold.h"

namespace firn::kernels::cpu {
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
  std::vector<Range>
      across;  // along the width: each window's positions, or each position's windows

  Pooling(const PoolWindows& windows, const Shape& in, const Shape& out, const ConstView& written)
      : h(window_axis(windows, 0, in[2], out[2])),
        w(window_axis(windows, 1, in[3], out[3])),
        count_padding(windows.count_padding),
        by_width(!windows.adaptive && along_width(written)) {}

  std::int64_t divisor(std::int64_t i, std::int64_t j) const {
    return h.divisor(i, count_padding) * w.divisor(j, count_padding);
  }
  /// Elements of a window, about.
  std::int64_t window_size() const {
    return h.adaptive ? (h.in / h.out + 1) * (w.in / w.out + 1) : h.size * w.size;
  }
};

// ---- Forward ----

/// Rows of n elements, and for each where in the image it lies.
template <class A>
struct Taps {
  int count = 0;
  const A* row[kTaps];
  std::int32_t position[kTaps];
  alignas(64) A buffer[kTaps][kSpan];
};

/// Calls fold(taps, first) with the rows of window (i, j) for a span of channels, up to kTaps at a
/// time. False where the window holds none.
template <class A, class Fold>
bool fold_window(const Pooling& p, const ConstView& x, const ImageRow& at, std::int64_t j,
                 Taps<A>& taps, Fold&& fold) {
  const Range down = p.h.positions(at.h), across = p.across[static_cast<std::size_t>(j)];
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
          load_row<A>(src, x.dtype, x.strides[1], at.size, taps.buffer[taps.count]);
      taps.position[taps.count++] = static_cast<std::int32_t>(h * p.w.in + w);
    }
  }
  if (taps.count > 0) fold(taps, first);
  return taps.count > 0;
}

/// Largest of the taps, and where it lies; joined with what best and index hold unless `first`.
template <class A>
void fold_max(const Taps<A>& taps, bool first, std::int64_t n, A* best, std::int32_t* index) {
  using V = Tile<A>;
  using Lanes = typename Mask<A>::Vec;
  const auto lanes_of = [&](int tap) {
    return static_cast<typename Mask<A>::Word>(taps.position[tap]) - Lanes{};
  };
  std::int64_t i = 0;
  for (; i + V::size <= n; i += V::size) {
    V b;
    Lanes k;
    if (first) {
      b = V::load(taps.row[0] + i);
      k = lanes_of(0);
    } else {
      b = V::load(best + i);
      for (int l = 0; l < V::size; ++l) k[l] = index[i + l];
    }
    for (int t = first; t < taps.count; ++t) {
      const V v = V::load(taps.row[t] + i);
      const Mask<A> better = math::beats(v, b);
      b = where(better, v, b);
      k = better.v ? lanes_of(t) : k;
    }
    b.store(best + i);
    if constexpr (sizeof(Lanes) == sizeof(std::int32_t) * V::size) {
      std::memcpy(index + i, &k, sizeof k);
    } else {
      for (int l = 0; l < V::size; ++l) index[i + l] = static_cast<std::int32_t>(k[l]);
    }
  }
  for (; i < n; ++i) {
    A b = first ? taps.row[0][i] : best[i];
    std::int32_t k = first ? taps.position[0] : index[i];
    for (int t = first; t < taps.count; ++t) {
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

/// Calls fold(row, i, n, position) for the taps of a row's windows i, i + 1, ..., n of them, which
/// lie in a row of the image at `position`, position + stride, ...
template <class A, class Fold>
void fold_along_width(const Pooling& p, const ConstView& x, const ImageRow& at, Fold&& fold) {
  alignas(64) A buffer[kSpan];
  const Range down = p.h.positions(at.h);
  for (std::int64_t h = down.begin; h < down.end; h += p.h.dilation) {
    for (std::int64_t k = 0; k < p.w.size; ++k) {
      const Range all = p.w.windows_with(k, {0, p.w.in});
      const std::int64_t begin = std::max(all.begin, at.w);
      const std::int64_t n = std::min(all.end, at.w + at.size) - begin;
      if (n <= 0) continue;
      const std::int64_t w = p.w.first(begin) + k * p.w.dilation;
      const void* src = advance(x.data, x.dtype, offset_of(x.strides, at.n, at.c, h, w));
      fold(load_row<A>(src, x.dtype, x.strides[3] * p.w.stride, n, buffer), begin - at.w, n,
           h * p.w.in + w);
    }
  }
}

/// A span of indices on its way to memory with strides.
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
          p, x, at, [&](const A* row, std::int64_t i, std::int64_t n, std::int64_t position) {
            for (std::int64_t k = 0; k < n; ++k) {
              const bool better = math::beats(row[k], buffer[i + k]) | (found[i + k] < 0);
              buffer[i + k] = better ? row[k] : buffer[i + k];
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
      store_row<A>(best, dst, y.dtype, y.strides[1], at.size);
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
      fold_along_width<A>(p, x, at,
                          [&](const A* row, std::int64_t i, std::int64_t n, std::int64_t) {
                            for (std::int64_t k = 0; k < n; ++k) buffer[i + k] += row[k];
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
      store_row<A>(mean, dst, y.dtype, y.strides[1], at.size);
    }
  });
}

// ---- Backward ----

/// What a window's output gives to one of its positions: spans of it, along channels or windows.
template <class A>
struct MaxGradient {
  const ConstView &dy, &index;
  const Pooling& p;

  /// out[k] for channel c + k of window (i, j), whose position is `position`; or, along the width,
  /// for window (i, j + k) and position + k*stride.
  void take(const ImageRow& at, std::int64_t i, std::int64_t j, std::int64_t n,
            std::int64_t position, A* __restrict out) const {
    alignas(64) A buffer[kSpan];
    alignas(64) std::int32_t found[kSpan];
    const int axis = p.by_width ? 3 : 1;
    const void* src = advance(dy.data, dy.dtype, offset_of(dy.strides, at.n, at.c, i, j));
    const A* const d = load_row<A>(src, dy.dtype, dy.strides[axis], n, buffer);
    const std::int32_t* k = index.as<std::int32_t>() + offset_of(index.strides, at.n, at.c, i, j);
    if (index.strides[axis] != 1) {
      for (std::int64_t e = 0; e < n; ++e) found[e] = k[e * index.strides[axis]];
      k = found;
    }
    const auto first = static_cast<std::int32_t>(position);
    if (!p.by_width) {
      for (std::int64_t e = 0; e < n; ++e) out[e] = k[e] == first ? d[e] : A(0);
    } else {
      const auto step = static_cast<std::int32_t>(p.w.stride);
      for (std::int64_t e = 0; e < n; ++e) {
        out[e] = k[e] == first + static_cast<std::int32_t>(e) * step ? d[e] : A(0);
      }
    }
  }
};

template <class A>
struct MeanGradient {
  const ConstView& dy;
  const Pooling& p;

  void take(const ImageRow& at, std::int64_t i, std::int64_t j, std::int64_t n, std::int64_t,
            A* __restrict out) const {
    alignas(64) A buffer[kSpan];
    const void* src = advance(dy.data, dy.dtype, offset_of(dy.strides, at.n, at.c, i, j));
    const A* const d = load_row<A>(src, dy.dtype, dy.strides[p.by_width ? 3 : 1], n, buffer);
    if (!p.by_width) {
      const A divisor = static_cast<A>(p.divisor(i, j));
      for (std::int64_t e = 0; e < n; ++e) out[e] = d[e] / divisor;
    } else {
      for (std::int64_t e = 0; e < n; ++e) out[e] = d[e] / static_cast<A>(p.divisor(i, j + e));
    }
  }
};

/// dx = beta*dx + what its windows give.
template <class A, class Gradient>
void gather(const Pooling& p, const Gradient& gradient, const View& dx, float beta) {
  const std::int64_t reads = std::max<std::int64_t>(
      1, p.window_size() * p.h.out * p.w.out / std::max<std::int64_t>(1, p.h.in * p.w.in));
  for_image_rows(dx.shape, p.by_width, reads, [&](const ImageRow& at) {
    alignas(64) A buffer[kSpan];
    alignas(64) A part[kSpan];
    const Range down = p.h.windows(at.h);
    if (p.by_width) {
      std::fill_n(buffer, at.size, A(0));
      for (std::int64_t i = down.begin; i < down.end; ++i) {
        if (!p.h.holds(i, at.h)) continue;
        for (std::int64_t k = p.w.size - 1; k >= 0; --k) {  // windows in rising order
          const Range across = p.w.windows_with(k, {at.w, at.w + at.size});
          const std::int64_t n = across.end - across.begin;
          if (n <= 0) continue;
          const std::int64_t w = p.w.first(across.begin) + k * p.w.dilation;
          gradient.take(at, i, across.begin, n, at.h * p.w.in + w, part);
          for (std::int64_t e = 0; e < n; ++e) buffer[w - at.w + e * p.w.stride] += part[e];
        }
      }
      void* const dst = advance(dx.data, dx.dtype, offset_of(dx.strides, at.n, at.c, at.h, at.w));
      return store_gradient(buffer, dst, dx.dtype, dx.strides[3], at.size, beta, part);
    }
    for (std::int64_t w = 0; w < p.w.in; ++w) {
      void* const dst = advance(dx.data, dx.dtype, offset_of(dx.strides, at.n, at.c, at.h, w));
      A* const sum = beta != 0 ? buffer : row_target<A>(dst, dx.dtype, dx.strides[1], buffer);
      const Range across = p.across[static_cast<std::size_t>(w)];
      bool first = true;
      for (std::int64_t i = down.begin; i < down.end; ++i) {
        if (!p.h.holds(i, at.h)) continue;
        for (std::int64_t j = across.begin; j < across.end; ++j) {
          if (!p.w.holds(j, w)) continue;
          gradient.take(at, i, j, at.size, at.h * p.w.in + w, first ? sum : part);
          for (std::int64_t e = 0; !first && e < at.size; ++e) sum[e] += part[e];
          first = false;
        }
      }
      if (first) std::fill_n(sum, at.size, A(0));
      store_gradient(sum, dst, dx.dtype, dx.strides[1], at.size, beta, part);
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
  const Pooling p = forward_pooling(x, windows, y);
  if (x.dtype == DType::f64) return max_pool_as<double>(x, p, y, index);
  max_pool_as<float>(x, p, y, index);
}

void max_pool_backward(const ConstView& dy, const ConstView& index, const PoolWindows& windows,
                       const View& dx, float beta, Stream) {
  const Pooling p = backward_pooling(dy, windows, dx);
  if (dy.dtype == DType::f64) {
    return gather<double>(p, MaxGradient<double>{dy, index, p}, dx, beta);
  }
  gather<float>(p, MaxGradient<float>{dy, index, p}, dx, beta);
}

void avg_pool(const ConstView& x, const PoolWindows& windows, const View& y, Stream) {
  const Pooling p = forward_pooling(x, windows, y);
  if (x.dtype == DType::f64) return avg_pool_as<double>(x, p, y);
  avg_pool_as<float>(x, p, y);
}

void avg_pool_backward(const ConstView& dy, const PoolWindows& windows, const View& dx, float beta,
                       Stream) {
  const Pooling p = backward_pooling(dy, windows, dx);
  if (dy.dtype == DType::f64) return gather<double>(p, MeanGradient<double>{dy, p}, dx, beta);
  gather<float>(p, MeanGradient<float>{dy, p}, dx, beta);
}

}  // namespace firn::kernels::cpu
