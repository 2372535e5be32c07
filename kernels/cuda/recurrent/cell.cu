// Cells of recurrent networks on CUDA devices. A thread computes one unit.
#include "kernels/sequence/recurrent.h"

#include "kernels/cuda/device/element.cuh"

namespace firn::kernels::cuda {
namespace {

/// A view [batch, n] of any dtype, as a kernel sees it.
template <class Data>
struct AnyMatrix {
  Data data;
  DType dtype;
  std::int64_t stride;

  template <class AnyView>
  explicit AnyMatrix(const AnyView& v)
      : data(v.data), dtype(v.dtype), stride(v.data ? v.strides[0] : 0) {}
  template <class Other>
  __device__ AnyMatrix(const AnyMatrix<Other>& m)
      : data(m.data), dtype(m.dtype), stride(m.stride) {}
  /// Returns unit (row, column); 0 without data.
  template <class C>
  __device__ C load(std::int64_t row, std::int64_t column) const {
    return data ? load_element<C>(data, dtype, row * stride + column) : C(0);
  }
  template <class C>
  __device__ void store(C value, std::int64_t row, std::int64_t column) const {
    if (data) store_element(value, data, dtype, row * stride + column);
  }
};
using In = AnyMatrix<const void*>;
using Out = AnyMatrix<void*>;

__device__ bool has_ended(const In& alive, std::int64_t row) {
  return alive.data && !static_cast<const bool*>(alive.data)[row * alive.stride];
}

struct ForwardViews {
  In x, recurrent, h_before, c_before, alive;
  Out saved, h, c;
};

template <class Cell, class C>
static __global__ void forward_kernel(ForwardViews v, std::int64_t count, std::int64_t n) {
  const std::int64_t stride = grid_threads();
  for (std::int64_t k = global_thread(); k < count; k += stride) {
    const std::int64_t row = k / n, j = k % n;
    typename Cell::template Step<C> step;
    step.h = v.h_before.load<C>(row, j);
    step.c = Cell::kHasC ? v.c_before.load<C>(row, j) : C(0);
    for (int s = 0; s < Cell::kSaved; ++s) step.saved[s] = C(0);
    if (!has_ended(v.alive, row)) {
      for (int g = 0; g < Cell::kGates; ++g) {
        step.x[g] = v.x.load<C>(row, g * n + j);
        step.recurrent[g] = v.recurrent.load<C>(row, g * n + j);
      }
      Cell::forward(step);
    }
    for (int s = 0; s < Cell::kSaved; ++s) v.saved.store(step.saved[s], row, s * n + j);
    v.h.store(step.h, row, j);
    if (Cell::kHasC) v.c.store(step.c, row, j);
  }
}

struct BackwardViews {
  In saved, h_before, c_before, c, alive, h, dy;
  Out dh, dc, dx, drecurrent;
};

template <class Cell, class C>
static __global__ void backward_kernel(BackwardViews v, std::int64_t count, std::int64_t n) {
  const std::int64_t stride = grid_threads();
  const In old_dh = v.dh, old_dc = v.dc;
  for (std::int64_t k = global_thread(); k < count; k += stride) {
    const std::int64_t row = k / n, j = k % n;
    typename Cell::template Gradient<C> g;
    g.dh = old_dh.load<C>(row, j) + v.dy.load<C>(row, j);
    g.dc = Cell::kHasC ? old_dc.load<C>(row, j) : C(0);
    if (has_ended(v.alive, row)) {
      for (int i = 0; i < Cell::kGates; ++i) g.dx[i] = g.drecurrent[i] = C(0);
    } else {
      for (int s = 0; s < Cell::kSaved; ++s) g.saved[s] = v.saved.load<C>(row, s * n + j);
      g.h = v.h.load<C>(row, j);
      g.h_before = v.h_before.load<C>(row, j);
      g.c = Cell::kHasC ? v.c.load<C>(row, j) : C(0);
      g.c_before = Cell::kHasC ? v.c_before.load<C>(row, j) : C(0);
      Cell::backward(g);
    }
    v.dh.store(g.dh, row, j);
    if (Cell::kHasC) v.dc.store(g.dc, row, j);
    for (int i = 0; i < Cell::kGates; ++i) {
      v.dx.store(g.dx[i], row, i * n + j);
      if (Cell::kTwoGates) v.drecurrent.store(g.drecurrent[i], row, i * n + j);
    }
  }
}

template <class C>
static __global__ void take_gradient_kernel(Out dh, In dy, In alive, Out out, std::int64_t count,
                                            std::int64_t n) {
  const std::int64_t stride = grid_threads();
  const In old = dh;
  for (std::int64_t k = global_thread(); k < count; k += stride) {
    const std::int64_t row = k / n, j = k % n;
    const C sum = old.load<C>(row, j) + dy.load<C>(row, j);
    const bool ended = has_ended(alive, row);
    out.store(ended ? C(0) : sum, row, j);
    dh.store(ended ? sum : C(0), row, j);
  }
}

}  // namespace

void recurrent_forward(RecurrentCell cell, const View& h, const CellForward& in, Stream stream) {
  const std::int64_t count = h.numel();
  if (count == 0) return;
  const ForwardViews views{In(in.x),     In(in.recurrent), In(in.h_before), In(in.c_before),
                           In(in.alive), Out(in.saved),    Out(h),          Out(in.c)};
  const auto run = [&](auto* kernel) {
    gpu::launch("recurrent_forward", kernel, grid_for(count), dim3(kBlock), 0, stream, views, count,
                h.shape[1]);
  };
  const bool wide = h.dtype == DType::f64;
  switch (cell) {
#define FIRN_CASE(name, Cell) \
  case RecurrentCell::name:   \
    return run(wide ? forward_kernel<Cell, double> : forward_kernel<Cell, float>);
    FIRN_RECURRENT_CELLS(FIRN_CASE)
#undef FIRN_CASE
  }
}

void recurrent_backward(RecurrentCell cell, const View& dh, const CellBackward& in, Stream stream) {
  const std::int64_t count = dh.numel();
  if (count == 0) return;
  const BackwardViews views{In(in.saved), In(in.h_before), In(in.c_before),   In(in.c),
                            In(in.alive), In(in.h),        In(in.dy),         Out(dh),
                            Out(in.dc),   Out(in.dx),      Out(in.drecurrent)};
  const auto run = [&](auto* kernel) {
    gpu::launch("recurrent_backward", kernel, grid_for(count), dim3(kBlock), 0, stream, views,
                count, dh.shape[1]);
  };
  const bool wide = dh.dtype == DType::f64;
  switch (cell) {
#define FIRN_CASE(name, Cell) \
  case RecurrentCell::name:   \
    return run(wide ? backward_kernel<Cell, double> : backward_kernel<Cell, float>);
    FIRN_RECURRENT_CELLS(FIRN_CASE)
#undef FIRN_CASE
  }
}

void recurrent_take_gradient(const View& dh, const ConstView& dy, const ConstView& alive,
                             const View& out, Stream stream) {
  const std::int64_t count = dh.numel();
  if (count == 0) return;
  gpu::launch("recurrent_take_gradient",
              dh.dtype == DType::f64 ? take_gradient_kernel<double> : take_gradient_kernel<float>,
              grid_for(count), dim3(kBlock), 0, stream, Out(dh), In(dy), In(alive), Out(out), count,
              dh.shape[1]);
}

}  // namespace firn::kernels::cuda
