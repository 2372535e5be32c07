// Resizing of images. Spans run along the channels, or in row-major images along the width. The
// sources and weights of an axis are computed once per call.
#include "kernels/resample.h"

#include <vector>

#include "firn/half.h"
#include "kernels/cpu/image/image_rows.h"
#include "kernels/math/image/window.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using math::Range;
using math::ResizeAxis;

/// Each output's two sources and the weight of the second. For nearest, both are the same source.
template <class A>
struct Sources {
  std::vector<std::int64_t> low, high;
  std::vector<A> weight;

  Sources(ResizeAxis axis, bool bilinear) {
    for (std::int64_t i = 0; i < axis.out; ++i) {
      const auto between = axis.between(i);
      low.push_back(bilinear ? between.low : axis.nearest(i));
      high.push_back(bilinear ? between.high : low.back());
      weight.push_back(bilinear ? axis.template weight<A>(between) : A(0));
    }
  }
};

/// The outputs that read each source, and with which weights.
template <class A>
class Readers {
 public:
  Readers(ResizeAxis axis, bool bilinear) {
    for (std::int64_t p = 0; p < axis.in; ++p) {
      outputs_.push_back(bilinear ? axis.outputs(p) : axis.nearest_outputs(p));
      begin_.push_back(weights_.size());
      for (std::int64_t i = outputs_.back().begin; i < outputs_.back().end; ++i)
        weights_.push_back(bilinear ? axis.template weight_of<A>(i, p) : A(1));
    }
  }
  Range outputs(std::int64_t p) const { return outputs_[static_cast<std::size_t>(p)]; }
  /// The weights of p in its outputs, in order.
  const A* weights(std::int64_t p) const {
    return weights_.data() + begin_[static_cast<std::size_t>(p)];
  }

 private:
  std::vector<Range> outputs_;
  std::vector<std::size_t> begin_;
  std::vector<A> weights_;
};

/// n elements at `positions`, `stride` apart.
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

template <class A>
void resample_as(const ConstView& x, bool bilinear, const View& y) {
  const Sources<A> down(ResizeAxis{x.shape[2], y.shape[2]}, bilinear);
  const Sources<A> across(ResizeAxis{x.shape[3], y.shape[3]}, bilinear);
  const bool by_width = along_width(y);
  for_image_rows(y.shape, by_width, bilinear ? 4 : 1, [&](const ImageRow& at) {
    alignas(64) A corner[4][kSpan];
    alignas(64) A buffer[kSpan];
    const auto i = static_cast<std::size_t>(at.h);
    const auto source = [&](std::int64_t h, std::int64_t w) {
      return advance(x.data, x.dtype, offset_of(x.strides, at.n, at.c, h, w));
    };
    const auto target = [&](std::int64_t w) {
      return advance(y.data, y.dtype, offset_of(y.strides, at.n, at.c, at.h, w));
    };
    if (by_width) {
      const auto load = [&](std::int64_t h, const std::vector<std::int64_t>& w, int to) {
        load_at(source(h, 0), x.dtype, x.strides[3], w.data() + at.w, at.size, corner[to]);
      };
      load(down.low[i], across.low, 0);
      if (bilinear) {
        load(down.low[i], across.high, 1);
        load(down.high[i], across.low, 2);
        load(down.high[i], across.high, 3);
        for (std::int64_t k = 0; k < at.size; ++k)
          corner[0][k] = math::bilinear(corner[0][k], corner[1][k], corner[2][k], corner[3][k],
                                        down.weight[i], across.weight.data()[at.w + k]);
      }
      return store_row<A>(corner[0], target(at.w), y.dtype, y.strides[3], at.size);
    }
    for (std::int64_t w = 0; w < y.shape[3]; ++w) {
      const auto j = static_cast<std::size_t>(w);
      const auto load = [&](std::int64_t h, std::int64_t from, int to) {
        return load_row<A>(source(h, from), x.dtype, x.strides[1], at.size, corner[to]);
      };
      const A* const a = load(down.low[i], across.low[j], 0);
      void* const dst = target(w);
      if (!bilinear) {
        store_row<A>(a, dst, y.dtype, y.strides[1], at.size);
        continue;
      }
      const A* const b = load(down.low[i], across.high[j], 1);
      const A* const c = load(down.high[i], across.low[j], 2);
      const A* const d = load(down.high[i], across.high[j], 3);
      A* const __restrict out = row_target<A>(dst, y.dtype, y.strides[1], buffer);
      const A below = down.weight[i], right = across.weight[j];
      for (std::int64_t k = 0; k < at.size; ++k)
        out[k] = math::bilinear(a[k], b[k], c[k], d[k], below, right);
      store_row<A>(out, dst, y.dtype, y.strides[1], at.size);
    }
  });
}

template <class A>
void resample_backward_as(const ConstView& dy, bool bilinear, const View& dx, float beta) {
  const Readers<A> down(ResizeAxis{dx.shape[2], dy.shape[2]}, bilinear);
  const Readers<A> across(ResizeAxis{dx.shape[3], dy.shape[3]}, bilinear);
  const bool by_width = along_width(dx);
  const std::int64_t reads = 1 + (bilinear ? 4 : 1) * dy.shape[2] * dy.shape[3] /
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
      for (std::int64_t k = 0; k < at.size; ++k) {
        const Range columns = across.outputs(at.w + k);
        const A* const weight = across.weights(at.w + k);
        A total = 0;
        for (std::int64_t i = rows.begin; i < rows.end; ++i) {
          for (std::int64_t j = columns.begin; j < columns.end; j += kSpan) {
            const std::int64_t n = std::min(kSpan, columns.end - j);
            const A* const d = load(i, j, 3, n);
            for (std::int64_t e = 0; e < n; ++e)
              total += row_weight[i - rows.begin] * weight[j - columns.begin + e] * d[e];
          }
        }
        sum[k] = total;
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

void resample(const ConstView& x, bool bilinear, const View& y, Stream) {
  if (y.numel() == 0) return;  // before the axes' tables are made
  if (x.dtype == DType::f64) return resample_as<double>(x, bilinear, y);
  resample_as<float>(x, bilinear, y);
}

void resample_backward(const ConstView& dy, bool bilinear, const View& dx, float beta, Stream) {
  if (dx.numel() == 0) return;
  if (dy.dtype == DType::f64) return resample_backward_as<double>(dy, bilinear, dx, beta);
  resample_backward_as<float>(dy, bilinear, dx, beta);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
