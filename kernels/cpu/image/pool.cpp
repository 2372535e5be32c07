// Pooling forward on the CPU.
#include "kernels/pool.h"
#include "kernels/cpu/image/pooling.h"
#include "kernels/math/fold.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr int kTaps = 16;  // rows folded in one pass

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

/// Calls fold(row, i, n, position) with one tap of the n windows i, i + 1, ... of a row. These taps
/// are row[0], row[1], ... at `position`, position + stride, ... of the image.
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
      fold(load_row<A>(src, x.dtype, x.strides[3] * p.w.stride, n, buffer), begin - at.w, n,
           h * p.w.in + w);
    }
  }
}

/// Calls fold(values, n, position) with the rows of window (at.h, j), in pieces of at most kSpan
/// elements. They are at `position`, position + 1, ... of the image.
template <class A, class Fold>
void fold_runs(const Pooling& p, const ConstView& x, const ImageRow& at, std::int64_t j,
               Fold&& fold) {
  alignas(64) A buffer[kSpan];
  const Range down = p.h.positions(at.h), across = p.across[static_cast<std::size_t>(j)];
  const bool direct = x.dtype == dtype_of<A> && x.strides[3] == 1;
  for (std::int64_t h = down.begin; h < down.end; ++h) {
    for (std::int64_t w = across.begin; w < across.end; w += kSpan) {
      const std::int64_t n = std::min(kSpan, across.end - w);
      const void* src = advance(x.data, x.dtype, offset_of(x.strides, at.n, at.c, h, w));
      fold(direct ? static_cast<const A*>(src) : load_row<A>(src, x.dtype, x.strides[3], n, buffer),
           n, h * p.w.in + w);
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

/// Lets the n elements of a row, at `position`, position + stride, ..., replace those of `best`
/// that they beat. A position below 0 is that of an empty window.
template <class A>
void take_larger(const A* row, std::int64_t position, std::int64_t stride, std::int64_t n, A* best,
                 std::int32_t* found) {
  using V = Tile<A>;
  std::int64_t k = 0;
  for (; k + V::size <= n; k += V::size) {
    Lanes<A> at;
    for (int l = 0; l < V::size; ++l)
      at[l] = static_cast<typename Mask<A>::Word>(position + (k + l) * stride);
    const V v = V::load(row + k), b = V::load(best + k);
    const Lanes<A> old = load_lanes<A>(found + k);
    const Mask<A> better = math::beats(v, b) | Mask<A>{old < 0};
    where(better, v, b).store(best + k);
    store_lanes<A>(better.v ? at : old, found + k);
  }
  for (; k < n; ++k) {
    const bool better = math::beats(row[k], best[k]) | (found[k] < 0);
    best[k] = better ? row[k] : best[k];
    found[k] = better ? static_cast<std::int32_t>(position + k * stride) : found[k];
  }
}

/// Finds the largest element of each window of a span along the width.
template <class A>
void max_along_width(const ConstView& x, const Pooling& p, const ImageRow& at, A* best,
                     std::int32_t* found) {
  std::fill_n(best, at.size, math::MaxFold<A>::identity());
  std::fill_n(found, at.size, -1);
  fold_along_width<A>(p, x, at,
                      [&](const A* row, std::int64_t i, std::int64_t n, std::int64_t position) {
                        take_larger(row, position, p.w.stride, n, best + i, found + i);
                      });
}

/// Finds the largest element of each adaptive window of a span along the width.
template <class A>
void max_by_window(const ConstView& x, const Pooling& p, const ImageRow& at, A* best,
                   std::int32_t* found) {
  for (std::int64_t e = 0; e < at.size; ++e) {
    A b = A(0);
    std::int64_t k = -1;
    fold_runs<A>(p, x, at, at.w + e, [&](const A* row, std::int64_t n, std::int64_t position) {
      for (std::int64_t i = 0; i < n; ++i) {
        const bool better = k < 0 || math::beats(row[i], b);
        b = better ? row[i] : b;
        k = better ? position + i : k;
      }
    });
    best[e] = b;
    found[e] = static_cast<std::int32_t>(k);
  }
}

/// Sums each window of a span along the width.
template <class A>
void sum_along_width(const ConstView& x, const Pooling& p, const ImageRow& at, A* sums) {
  std::fill_n(sums, at.size, -A(0));  // keeps the sign of zeros
  fold_along_width<A>(p, x, at, [&](const A* row, std::int64_t i, std::int64_t n, std::int64_t) {
    for (std::int64_t k = 0; k < n; ++k) sums[i + k] += row[k];
  });
}

/// Sums each adaptive window of a span along the width.
template <class A>
void sum_by_window(const ConstView& x, const Pooling& p, const ImageRow& at, A* sums) {
  for (std::int64_t e = 0; e < at.size; ++e) {
    A sum = -A(0);  // keeps the sign of zeros
    fold_runs<A>(p, x, at, at.w + e, [&](const A* row, std::int64_t n, std::int64_t) {
      for (std::int64_t i = 0; i < n; ++i) sum += row[i];
    });
    sums[e] = sum;
  }
}

template <class A>
void max_pool_as(const ConstView& x, const Pooling& p, const View& y, const View& index) {
  constexpr A kLowest = math::MaxFold<A>::identity();
  for_image_rows(y.shape, p.by_width, p.window_size(), [&](const ImageRow& at) {
    alignas(64) A buffer[kSpan];
    if (p.by_width) {
      const std::int64_t offset = offset_of(y.strides, at.n, at.c, at.h, at.w);
      IndexSpan span(index, offset, y.strides[3]);
      (p.by_window ? max_by_window<A> : max_along_width<A>)(x, p, at, buffer, span.data());
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
      (p.by_window ? sum_by_window<A> : sum_along_width<A>)(x, p, at, buffer);
      p.divide(buffer, at.h, at.w, at.size, buffer);
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

Pooling forward_pooling(const ConstView& x, const PoolWindows& windows, const View& y) {
  Pooling p(windows, x.shape, y.shape, y);
  p.find_positions();
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

void avg_pool(const ConstView& x, const PoolWindows& windows, const View& y, Stream) {
  if (y.numel() == 0) return;
  const Pooling p = forward_pooling(x, windows, y);
  if (x.dtype == DType::f64) return avg_pool_as<double>(x, p, y);
  avg_pool_as<float>(x, p, y);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
