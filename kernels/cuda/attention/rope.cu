// Rotary positions on CUDA devices. A thread rotates one pair of a row in all heads.
#include "kernels/sequence/attention.h"

#include "kernels/cuda/device/element.cuh"
#include "kernels/math/sequence/rope.h"

namespace firn::kernels::cuda {
namespace {

/// A tensor [batch, heads, n, d] of any floating dtype, as a kernel reads it.
template <class Data>
struct AnyRows {
  Data data;
  DType dtype;
  std::int64_t strides[4];

  template <class AnyView>
  explicit AnyRows(const AnyView& v) : data(v.data), dtype(v.dtype), strides{} {
    for (int i = 0; i < 4; ++i) strides[i] = v.strides[i];
  }
  __device__ std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t e) const {
    return b * strides[0] + h * strides[1] + r * strides[2] + e * strides[3];
  }
};

struct RopeRows {
  AnyRows<const void*> x;
  AnyRows<void*> y;
  std::int64_t heads, n, pairs;
  const void* positions;  ///< may be null
  DType position_dtype;
  std::int64_t position_batch, position_row;
};

template <class C>
static __global__ void rope_kernel(RopeRows rows, RopeArgs args, std::int64_t count, float beta) {
  const std::int64_t step = args.interleaved ? 2 : 1, other = args.interleaved ? 1 : rows.pairs;
  const std::int64_t stride = grid_threads();
  for (std::int64_t k = global_thread(); k < count; k += stride) {
    const std::int64_t i = k % rows.pairs, r = k / rows.pairs % rows.n, b = k / rows.pairs / rows.n;
    const std::int64_t position =
        rows.positions ? load_element<std::int64_t>(rows.positions, rows.position_dtype,
                                                    b * rows.position_batch + r * rows.position_row)
                       : args.offset + r;
    const double frequency =
        args.frequencies ? args.frequencies[i] : math::rope_frequency(args.theta, i, rows.pairs);
    const double angle = math::rope_angle(position, frequency);
    const C sine = math::sin(static_cast<C>(angle));
    const math::Turn<C> turn{math::cos(static_cast<C>(angle)), args.inverse ? -sine : sine};
    for (std::int64_t h = 0; h < rows.heads; ++h) {
      const auto load = [&](std::int64_t e) {
        return load_element<C>(rows.x.data, rows.x.dtype, rows.x.at(b, h, r, e));
      };
      const auto store = [&](std::int64_t e, C value) {
        const std::int64_t to = rows.y.at(b, h, r, e);
        if (beta != 0)
          value += static_cast<C>(beta) * load_element<C>(rows.y.data, rows.y.dtype, to);
        store_element(value, rows.y.data, rows.y.dtype, to);
      };
      const C first = load(i * step), second = load(i * step + other);
      store(i * step, turn.first(first, second));
      store(i * step + other, turn.second(first, second));
    }
  }
}

}  // namespace

void rope(const ConstView& x, const ConstView& positions, const RopeArgs& args, const View& y,
          float beta, Stream stream) {
  const std::int64_t count = x.shape[0] * x.shape[2] * (x.shape[3] / 2);
  if (x.numel() == 0) return;
  const RopeRows rows{AnyRows<const void*>(x),
                      AnyRows<void*>(y),
                      x.shape[1],
                      x.shape[2],
                      x.shape[3] / 2,
                      positions.data,
                      positions.dtype,
                      positions.data && positions.shape[0] > 1 ? positions.strides[0] : 0,
                      positions.data ? positions.strides[1] : 0};
  gpu::launch("rope", x.dtype == DType::f64 ? rope_kernel<double> : rope_kernel<float>,
              grid_for(count), dim3(kBlock), 0, stream, rows, args, count, beta);
}

}  // namespace firn::kernels::cuda
