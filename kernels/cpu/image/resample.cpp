// Resizing of images. Spans run along the channels, or in row-major images along the width. The
// sources and weights of an axis are computed once per call.
#include "kernels/resample.h"

#include <array>
#include <vector>

#include "firn/half.h"
#include "kernels/cpu/image/image_rows.h"
#include "kernels/math/image/resize.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using math::Range;
using math::ResizeAxis;

/// Each output's sources and their weights, by tap.
template <class A>
struct Sources {
  int taps;
  std::array<std::vector<std::int64_t>, 4> at;
  std::array<std::vector<A>, 4> weight;

  explicit Sources(const ResizeAxis& axis) : taps(axis.taps()) {
    for (std::int64_t i = 0; i < axis.out; ++i) {
      if (taps == 1) {
        at[0].push_back(axis.nearest(i));
        weight[0].push_back(1);
        continue;
      }
      const auto between = axis.between(i);
      for (int k = 0; k < taps; ++k) {
        at[index(k)].push_back(axis.source(between, k));
        weight[index(k)].push_back(axis.template weight<A>(between, k));
      }
    }
  }
  static std::size_t index(int k) { return static_cast<std::size_t>(k); }
};

/// The outputs that read each source, and their weights.
template <class A>
class Readers {
 public:
  explicit Readers(const ResizeAxis& axis) {
    const bool one = axis.taps() == 1;
    for (std::int64_t p = 0; p < axis.in; ++p) {
      outputs_.push_back(one ? axis.nearest_outputs(p) : axis.outputs(p));
      begin_.push_back(weights_.size());
      for (std::int64_t i = outputs_.back().begin; i < outputs_.back().end; ++i)
        weights_.push_back(one ? A(1) : axis.template weight_of<A>(i, p));
    }
  }
  Range outputs(std::int64_t p) const { return outputs_[static_cast<std::size_t>(p)]; }
  /// Returns a part of the axis that holds the outputs of all these sources.
  Range outputs_of(Range sources) const {
    Range all{0, 0};
    for (std::int64_t p = sources.begin; p < sources.end; ++p) {
      const Range own = outputs(p);
      if (own.begin >= own.end) continue;
      all = all.begin == all.end
                ? own
                : Range{std::min(all.begin, own.begin), std::max(all.end, own.end)};
    }
    return all;
  }
  /// Returns the weighted sum of those outputs of p that lie in `part`, whose values are `line`.
  A sum(std::int64_t p, Range part, const A* line) const {
    const Range own = outputs(p);
    const A* const weight = weights(p);
    const std::int64_t begin = std::max(own.begin, part.begin), end = std::min(own.end, part.end);
    A total = 0;
    for (std::int64_t j = begin; j < end; ++j)
      total += weight[j - own.begin] * line[j - part.begin];
    return total;
  }
  /// Returns the weights of p in its outputs, in order.
  const A* weights(std::int64_t p) const {
    return weights_.data() + begin_[static_cast<std::size_t>(p)];
  }

 private:
  std::vector<Range> outputs_;
  std::vector<std::size_t> begin_;
  std::vector<A> weights_;
};

/// Loads n elements at `positions`, `stride` apart.
template <class A>
void load_at(const void* src, DType dtype, std::int64_t stride, const std::int64_t* positions,
             std::int64_t n, A* out) {
  const auto load = [&]<class C>(const auto* x, C) {
    for (std::int64_t i = 0; i < n; ++i)
      out[i] = static_cast<A>(static_cast<C>(x[positions[i] * stride]));
  };
  switch (dtype) {
    case DType::f16:
      return load(static_cast<const half*>(src), 0.f);
    case DType::bf16:
      return load(static_cast<const bfloat16*>(src), 0.f);
    case DType::f64:
      return load(static_cast<const double*>(src), 0.0);
    default:
      return load(static_cast<const float*>(src), 0.f);
  }
}

/// Rows of sources of one row-major image, interpolated along the width: a span of each of those
/// that an output row reads. Neighbouring output rows share them.
template <class A>
class SourceRows {
 public:
  SourceRows(const ConstView& x, const Sources<A>& down, const Sources<A>& across, std::int64_t n,
             std::int64_t c)
      : x_(x), down_(down), across_(across), n_(n), c_(c) {}

  /// Begins with another span of the width.
  void begin(std::int64_t w, std::int64_t size) {
    held_.fill(-1);
    w_ = w;
    size_ = size;
  }
  /// Returns what tap r of output row i reads.
  const A* row(std::size_t r, std::size_t i) {
    const std::int64_t h = down_.at[r][i];
    std::size_t slot = 0;
    while (slot < held_.size() && held_[slot] != h) ++slot;
    if (slot == held_.size()) {
      slot = 0;
      while (is_read(held_[slot], i)) ++slot;
      interpolate(h, rows_[slot]);
      held_[slot] = h;
    }
    return rows_[slot];
  }

 private:
  bool is_read(std::int64_t h, std::size_t i) const {
    bool read = false;
    for (std::size_t r = 0; r < static_cast<std::size_t>(down_.taps); ++r)
      read |= down_.at[r][i] == h;
    return read;
  }
  void interpolate(std::int64_t h, A* out) const {
    alignas(64) A left[kSpan], right[kSpan];
    const void* const src = advance(x_.data, x_.dtype, offset_of(x_.strides, n_, c_, h, 0));
    const auto load = [&](std::size_t tap, A* to) {
      load_at(src, x_.dtype, x_.strides[3], across_.at[tap].data() + w_, size_, to);
    };
    if (across_.taps == 2 && down_.taps == 2) {
      load(0, left);
      load(1, right);
      const A* const weight = across_.weight[1].data() + w_;
      for (std::int64_t k = 0; k < size_; ++k) out[k] = math::linear(left[k], right[k], weight[k]);
      return;
    }
    std::fill_n(out, size_, A(0));
    for (std::size_t tap = 0; tap < static_cast<std::size_t>(across_.taps); ++tap) {
      load(tap, left);
      const A* const weight = across_.weight[tap].data() + w_;
      for (std::int64_t k = 0; k < size_; ++k) out[k] += weight[k] * left[k];
    }
  }

  const ConstView& x_;
  const Sources<A>&down_, &across_;
  std::int64_t n_, c_, w_ = 0, size_ = 0;
  std::array<std::int64_t, 4> held_;
  alignas(64) A rows_[4][kSpan];
};

/// Resizes row-major images, whose outputs have several taps.
template <class A>
void resample_rows(const ConstView& x, const Sources<A>& down, const Sources<A>& across,
                   const View& y) {
  constexpr std::int64_t kTogether = 16;  // rows of a task
  const std::int64_t height = y.shape[2], width = y.shape[3];
  const std::int64_t blocks = math::ceil_div(height, kTogether);
  const bool bilinear = down.taps == 2 && across.taps == 2;
  parallel_for(y.shape[0] * y.shape[1] * blocks, 4 * y.numel(), [&](std::int64_t task) {
    const std::int64_t n = task / blocks / y.shape[1], c = task / blocks % y.shape[1];
    const std::int64_t begin = task % blocks * kTogether, end = std::min(height, begin + kTogether);
    SourceRows<A> rows(x, down, across, n, c);
    alignas(64) A total[kSpan];
    for (std::int64_t w = 0; w < width; w += kSpan) {
      const std::int64_t size = std::min(kSpan, width - w);
      rows.begin(w, size);
      for (std::int64_t h = begin; h < end; ++h) {
        const auto i = static_cast<std::size_t>(h);
        if (bilinear) {
          const A* const above = rows.row(0, i);
          const A* const below = rows.row(1, i);
          const A weight = down.weight[1][i];
          for (std::int64_t k = 0; k < size; ++k)
            total[k] = math::linear(above[k], below[k], weight);
        } else {
          std::fill_n(total, size, A(0));
          for (std::size_t r = 0; r < static_cast<std::size_t>(down.taps); ++r) {
            const A* const row = rows.row(r, i);
            const A weight = down.weight[r][i];
            for (std::int64_t k = 0; k < size; ++k) total[k] += weight * row[k];
          }
        }
        void* const dst = advance(y.data, y.dtype, offset_of(y.strides, n, c, h, w));
        store_row<A>(total, dst, y.dtype, y.strides[3], size);
      }
    }
  });
}

/// total += below * row, and row = 0: the sum of one row of sources is complete.
template <class A>
void add_row(A* __restrict row, A below, A* __restrict total, std::int64_t n) {
  for (std::int64_t k = 0; k < n; ++k) {
    total[k] += below * row[k];
    row[k] = 0;
  }
}

template <class A>
void resample_as(const ConstView& x, Resampling how, const View& y) {
  const Sources<A> down(how.axis(x.shape, y.shape, 2)), across(how.axis(x.shape, y.shape, 3));
  const bool by_width = along_width(y);
  const int taps = down.taps * across.taps;
  if (by_width && taps > 1) return resample_rows(x, down, across, y);
  const bool bilinear = down.taps == 2 && across.taps == 2;
  for_image_rows(y.shape, by_width, taps, [&](const ImageRow& at) {
    alignas(64) A corner[4][kSpan];
    alignas(64) A total[kSpan], row[kSpan];
    const auto i = static_cast<std::size_t>(at.h);
    const auto source = [&](std::int64_t h, std::int64_t w) {
      return advance(x.data, x.dtype, offset_of(x.strides, at.n, at.c, h, w));
    };
    const auto target = [&](std::int64_t w) {
      return advance(y.data, y.dtype, offset_of(y.strides, at.n, at.c, at.h, w));
    };
    if (by_width) {
      load_at(source(down.at[0][i], 0), x.dtype, x.strides[3], across.at[0].data() + at.w, at.size,
              total);
      return store_row<A>(total, target(at.w), y.dtype, y.strides[3], at.size);
    }
    for (std::int64_t w = 0; w < y.shape[3]; ++w) {
      const auto j = static_cast<std::size_t>(w);
      const auto load = [&](std::size_t r, std::size_t c, A* to) {
        return load_row<A>(source(down.at[r][i], across.at[c][j]), x.dtype, x.strides[1], at.size,
                           to);
      };
      void* const dst = target(w);
      if (taps == 1) {
        store_row<A>(load(0, 0, corner[0]), dst, y.dtype, y.strides[1], at.size);
        continue;
      }
      if (!bilinear) {
        std::fill_n(total, at.size, A(0));
        std::fill_n(row, at.size, A(0));
        for (std::size_t r = 0; r < static_cast<std::size_t>(down.taps); ++r) {
          for (std::size_t c = 0; c < static_cast<std::size_t>(across.taps); ++c) {
            const A* const from = load(r, c, corner[0]);
            const A weight = across.weight[c][j];
            for (std::int64_t k = 0; k < at.size; ++k) row[k] += weight * from[k];
          }
          add_row(row, down.weight[r][i], total, at.size);
        }
        store_row<A>(total, dst, y.dtype, y.strides[1], at.size);
        continue;
      }
      const A* const a = load(0, 0, corner[0]);
      const A* const b = load(0, 1, corner[1]);
      const A* const c = load(1, 0, corner[2]);
      const A* const d = load(1, 1, corner[3]);
      A* const __restrict out = row_target<A>(dst, y.dtype, y.strides[1], total);
      const A below = down.weight[1][i], right = across.weight[1][j];
      for (std::int64_t k = 0; k < at.size; ++k)
        out[k] = math::bilinear(a[k], b[k], c[k], d[k], below, right);
      store_row<A>(out, dst, y.dtype, y.strides[1], at.size);
    }
  });
}

template <class A>
void resample_backward_as(const ConstView& dy, Resampling how, const View& dx, float beta) {
  const ResizeAxis rows_axis = how.axis(dx.shape, dy.shape, 2),
                   columns_axis = how.axis(dx.shape, dy.shape, 3);
  const Readers<A> down(rows_axis), across(columns_axis);
  const bool by_width = along_width(dx);
  const std::int64_t reads = 1 + rows_axis.taps() * columns_axis.taps() * dy.shape[2] *
                                     dy.shape[3] /
                                     std::max<std::int64_t>(1, dx.shape[2] * dx.shape[3]);
  for_image_rows(dx.shape, by_width, reads, [&](const ImageRow& at) {
    alignas(64) A sum[kSpan];
    alignas(64) A buffer[kSpan];
    const Range rows = down.outputs(at.h);
    const A* const row_weight = down.weights(at.h);
    const auto load = [&](std::int64_t i, std::int64_t j, int axis, std::int64_t n) {
      const void* src = advance(dy.data, dy.dtype, offset_of(dy.strides, at.n, at.c, i, j));
      return load_row<A>(src, dy.dtype, dy.strides[axis], n, buffer);
    };
    const auto store = [&](std::int64_t w, int axis) {
      void* const dst = advance(dx.data, dx.dtype, offset_of(dx.strides, at.n, at.c, at.h, w));
      store_gradient(sum, dst, dx.dtype, dx.strides[axis], at.size, beta, buffer);
    };
    if (by_width) {
      // Rows are summed first. Then each position reads its part of one row.
      alignas(64) A line[kSpan];
      std::fill_n(sum, at.size, A(0));
      const Range all = across.outputs_of({at.w, at.w + at.size});
      for (std::int64_t j = all.begin; j < all.end; j += kSpan) {
        const std::int64_t n = std::min(kSpan, all.end - j);
        std::fill_n(line, n, A(0));
        for (std::int64_t i = rows.begin; i < rows.end; ++i) {
          const A* const d = load(i, j, 3, n);
          const A factor = row_weight[i - rows.begin];
          for (std::int64_t e = 0; e < n; ++e) line[e] += factor * d[e];
        }
        for (std::int64_t k = 0; k < at.size; ++k) sum[k] += across.sum(at.w + k, {j, j + n}, line);
      }
      return store(at.w, 3);
    }
    for (std::int64_t w = 0; w < dx.shape[3]; ++w) {
      const Range columns = across.outputs(w);
      const A* const weight = across.weights(w);
      std::fill_n(sum, at.size, A(0));
      for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        for (std::int64_t j = columns.begin; j < columns.end; ++j) {
          const A* const d = load(i, j, 1, at.size);
          const A factor = row_weight[i - rows.begin] * weight[j - columns.begin];
          for (std::int64_t e = 0; e < at.size; ++e) sum[e] += factor * d[e];
        }
      }
      store(w, 1);
    }
  });
}

}  // namespace

void resample(const ConstView& x, Resampling how, const View& y, Stream) {
  if (y.numel() == 0) return;  // before the axes' tables are made
  if (x.dtype == DType::f64) return resample_as<double>(x, how, y);
  resample_as<float>(x, how, y);
}

void resample_backward(const ConstView& dy, Resampling how, const View& dx, float beta, Stream) {
  if (dx.numel() == 0) return;
  if (dy.dtype == DType::f64) return resample_backward_as<double>(dy, how, dx, beta);
  resample_backward_as<float>(dy, how, dx, beta);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
