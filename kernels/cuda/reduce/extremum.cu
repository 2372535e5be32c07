// The position of a largest or smallest element, and the gradient of these elements, on CUDA
// devices.
#include <type_traits>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/strides.cuh"
#include "kernels/math/fold.h"
#include "kernels/reduce.h"

namespace firn::kernels::cuda {
namespace {

// ---- argmax and argmin. F is MaxFold<C> or MinFold<C> ----

/// The extremum so far and its position; position is -1 if there is none yet.
template <class C>
struct Best {
  C value{};
  std::int64_t position = -1;

  template <class F>
  __device__ Best map(F f) const {
    return {f(value), f(position)};
  }
};
template <class F>
struct Better {
  template <class C>
  __device__ Best<C> operator()(Best<C> a, Best<C> b) const {
    if (b.position < 0) return a;
    if (a.position < 0 || math::beats_in<F>(b.value, a.value)) return b;
    return math::beats_in<F>(a.value, b.value) || a.position < b.position ? a : b;
  }
};

/// One output's elements along the axis.
struct AxisRun {
  const void* x;
  DType dtype;
  std::int64_t size, stride;

  template <class F, class C>
  __device__ Best<C> best(std::int64_t offset, std::int64_t begin, std::int64_t step) const {
    Best<C> best;
    for (std::int64_t i = begin; i < size; i += step)
      best = Better<F>()(best, Best<C>{load_element<C>(x, dtype, offset + i * stride), i});
    return best;
  }
};

/// One thread computes each output, if adjacent outputs read adjacent elements.
template <class F, class C>
static __global__ void columns_kernel(AxisRun run, StridedAxes<2> outputs, std::int64_t count,
                                      std::int64_t* out) {
  for (std::int64_t o = global_thread(); o < count; o += grid_threads()) {
    std::int64_t at[2];
    outputs.offsets(o, at);
    out[at[0]] = run.best<F, C>(at[1], 0, 1).position;
  }
}

/// One block computes each output.
template <class F, class C>
static __global__ void runs_kernel(AxisRun run, StridedAxes<2> outputs, std::int64_t count,
                                   std::int64_t* out) {
  Best<C>* const scratch = gpu::dynamic_shared<Best<C>>();
  for (std::int64_t o = blockIdx.x; o < count; o += gridDim.x) {
    std::int64_t at[2];
    outputs.offsets(o, at);
    const Best<C> best =
        block_fold(run.best<F, C>(at[1], threadIdx.x, blockDim.x), Best<C>(), scratch, Better<F>());
    if (threadIdx.x == 0) out[at[0]] = best.position;
  }
}

// ---- Gradient of max and min ----

/// The inputs of the two kernels: x and y, of x's shape (y repeated along the reduced axes).
struct Extremum {
  const void *x, *y, *dy;
  DType x_dtype, y_dtype, dy_dtype;
};

/// Counts the elements of x that equal their extremum. Views: dx, x, y, the counts.
template <class C>
static __global__ void count_ties_kernel(Extremum e, StridedAxes<4> axes, std::int64_t n,
                                         unsigned long long* counts) {
  for (std::int64_t i = global_thread(); i < n; i += grid_threads()) {
    std::int64_t at[4];
    axes.offsets(i, at);
    const C x = load_element<C>(e.x, e.x_dtype, at[1]), y = load_element<C>(e.y, e.y_dtype, at[2]);
    if (math::is_tie(x, y)) atomicAdd(&counts[at[3]], 1ull);
  }
}

/// dx = beta*dx + the element's share of dy. dy_axes gives offsets in dy, seen as a view of x's
/// shape.
template <class C>
static __global__ void share_kernel(Extremum e, StridedAxes<4> axes, StridedAxes<1> dy_axes,
                                    std::int64_t n, const unsigned long long* counts, void* dx,
                                    DType dx_dtype, float beta) {
  for (std::int64_t i = global_thread(); i < n; i += grid_threads()) {
    std::int64_t at[4];
    axes.offsets(i, at);
    const C x = load_element<C>(e.x, e.x_dtype, at[1]), y = load_element<C>(e.y, e.y_dtype, at[2]);
    C sum = 0;
    if (math::is_tie(x, y)) {
      sum = load_element<C>(e.dy, e.dy_dtype, dy_axes.offset(i)) / static_cast<C>(counts[at[3]]);
    }
    if (beta != 0) sum += static_cast<C>(beta) * load_element<C>(dx, dx_dtype, at[0]);
    store_element(sum, dx, dx_dtype, at[0]);
  }
}

template <class C>
void extremum_backward_as(const ConstView& dy, const ConstView& x, const ConstView& y,
                          const View& dx, float beta, Stream stream) {
  const char* const op = "extremum_backward";
  const auto bytes = static_cast<std::size_t>(y.numel()) * sizeof(unsigned long long);
  const runtime::Workspace memory(bytes, stream);
  auto* const counts = memory.as<unsigned long long>();
  if (runtime::dry_run()) return;
  gpu::check_cuda(cudaMemsetAsync(counts, 0, bytes, gpu::native(stream)), op, "cudaMemsetAsync");

  // The axes in the order of dx's memory; y, dy and the counts have stride 0 along reduced axes.
  const ConstView ys = broadcast_to(y, x.shape), dys = broadcast_to(dy, x.shape);
  const ConstView count_view{counts, DType::i64, x.device, y.shape, contiguous_strides(y.shape)};
  const ConstView totals = broadcast_to(count_view, x.shape);
  StridedAxes<4> axes;
  StridedAxes<1> dy_axes;
  int order[kMaxRank];
  for (int d = 0; d < x.rank(); ++d) {
    int at = d;
    for (; at > 0 && dx.strides[order[at - 1]] < dx.strides[d]; --at) order[at] = order[at - 1];
    order[at] = d;
  }
  for (int i = 0; i < x.rank(); ++i) {
    const int d = order[i];
    if (x.shape[d] == 1) continue;
    axes.push_back(x.shape[d], {dx.strides[d], x.strides[d], ys.strides[d], totals.strides[d]});
    dy_axes.push_back(x.shape[d], {dys.strides[d]});
  }
  axes.finish();
  dy_axes.finish();

  const Extremum e{x.data, y.data, dy.data, x.dtype, y.dtype, dy.dtype};
  const std::int64_t n = x.numel();
  gpu::launch(op, count_ties_kernel<C>, grid_for(n), dim3(kBlock), 0, stream, e, axes, n, counts);
  gpu::launch(op, share_kernel<C>, grid_for(n), dim3(kBlock), 0, stream, e, axes, dy_axes, n,
              counts, dx.data, dx.dtype, beta);
}

template <template <class> class Fold>
void arg_extremum(const char* op, const ConstView& x, const View& out, int axis, Stream stream) {
  const std::int64_t count = out.numel();
  if (count == 0) return;
  // Outputs follow x's axes, so that adjacent threads read adjacent elements of a row-major x.
  StridedAxes<2> outputs;
  std::int64_t nearest = 0;  // the smallest stride of x between outputs
  for (int d = 0; d < x.rank(); ++d) {
    if (d == axis || x.shape[d] == 1) continue;
    outputs.push_back(x.shape[d], {out.strides[d], x.strides[d]});
    nearest = nearest == 0 ? x.strides[d] : std::min(nearest, x.strides[d]);
  }
  outputs.finish();
  const AxisRun run{x.data, x.dtype, x.shape[axis], x.strides[axis]};
  const bool columns = run.size < kWarp || (nearest < run.stride && count >= kBlock);
  const auto launch = [&]<class C>(C) {
    if (columns) {
      gpu::launch(op, columns_kernel<Fold<C>, C>, grid_for(count), dim3(kBlock), 0, stream, run,
                  outputs, count, out.as<std::int64_t>());
    } else {
      const auto blocks = static_cast<unsigned>(std::min(count, std::int64_t{1} << 20));
      const unsigned threads = run.size <= 8 * kWarp ? kWarp : kBlock;
      gpu::launch(op, runs_kernel<Fold<C>, C>, dim3(blocks), dim3(threads), kWarp * sizeof(Best<C>),
                  stream, run, outputs, count, out.as<std::int64_t>());
    }
  };
  switch (compute_dtype(x.dtype)) {
    case DType::f32:
      return launch(float());
    case DType::f64:
      return launch(double());
    default:
      return launch(std::int64_t());
  }
}

}  // namespace

void argmax(const ConstView& x, const View& out, int axis, Stream stream) {
  arg_extremum<math::MaxFold>("argmax", x, out, axis, stream);
}
void argmin(const ConstView& x, const View& out, int axis, Stream stream) {
  arg_extremum<math::MinFold>("argmin", x, out, axis, stream);
}

void extremum_backward(const ConstView& dy, const ConstView& x, const ConstView& y, const View& dx,
                       float beta, Stream stream) {
  if (dx.numel() == 0) return;
  if (compute_dtype(x.dtype) == DType::f64) {
    extremum_backward_as<double>(dy, x, y, dx, beta, stream);
  } else {
    extremum_backward_as<float>(dy, x, y, dx, beta, stream);
  }
}

}  // namespace firn::kernels::cuda
