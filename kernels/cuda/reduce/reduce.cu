// Reductions over any axes on CUDA devices, by a plan (reduce_plan.h). If the innermost axis in
// memory is reduced, the threads of a warp or a block share an output. Long outputs are cut into
// segments, which the last block joins. If that axis is kept, threads run along it. Rows are then
// cut into chunks, which a second launch joins. All cuts depend on the shape alone. A thread joins
// its elements in stretches, so that no chain of additions is longer than the square root of the
// number of terms.
#include "kernels/reduce.h"

#include <algorithm>
#include <type_traits>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/strides.cuh"
#include "kernels/cuda/device/tickets.cuh"
#include "kernels/math/fold.h"
#include "kernels/plan/reduce_plan.h"

namespace firn::kernels::cuda {
namespace {

constexpr int kStretch = 64;                // joins before a thread begins a new partial result
constexpr std::int64_t kWarpOutput = 1024;  // elements of an output that one warp folds
constexpr std::int64_t kSegment = 4096;     // fewest elements of an output's segment
constexpr std::int64_t kPartials = 1024;    // most segments or chunks of all outputs
constexpr std::int64_t kChunkRows = 64;     // fewest rows of a chunk
constexpr int kTileRows = kBlock / kWarp;   // rows that a block folds side by side

/// Integers of any dtype, as a type of elements.
struct Integers {};
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, Integers>, std::int64_t, ComputeOf<T>>;
/// Type in which F joins: that of the elements, or wider.
template <class F>
using JoinedIn = decltype(F::identity());

/// The elements of an operand.
template <class T>
struct Source {
  using A = ComputeOf<T>;
  static constexpr int kWidth = Pack<T>::kWidth;
  const T* data;
  Source(const void* p, DType) : data(static_cast<const T*>(p)) {}
  __device__ A load(std::int64_t i) const { return widen(data[i]); }
  /// Loads elements i to i + kWidth - 1. `aligned` is true if their address is a multiple of 16.
  __device__ void load_pack(std::int64_t i, bool aligned, A (&x)[kWidth]) const {
    if (aligned) {
      const Pack<T> pack = lanes_at<Pack<T>>(data + i);
      for (int k = 0; k < kWidth; ++k) x[k] = widen(pack.lane[k]);
    } else {
      for (int k = 0; k < kWidth; ++k) x[k] = widen(data[i + k]);
    }
  }
};
template <>
struct Source<Integers> {
  using A = std::int64_t;
  static constexpr int kWidth = 1;
  const void* data;
  DType dtype;
  Source(const void* p, DType t) : data(p), dtype(t) {}
  __device__ A load(std::int64_t i) const { return load_element<A>(data, dtype, i); }
  __device__ void load_pack(std::int64_t i, bool, A (&x)[1]) const { x[0] = load(i); }
};

/// Stores results: out = beta*out + scale*result, rounded once.
struct Finish {
  void* out;
  DType dtype;
  bool integers;
  double scale;
  float beta;

  template <class A>
  __device__ void operator()(std::int64_t offset, A result) const {
    if (scale == 1 && beta == 0) return store_element(result, out, dtype, offset);
    if constexpr (std::is_same_v<A, std::int64_t>) {
      if (integers) return scaled<std::int64_t>(offset, result);
    }
    scaled<double>(offset, static_cast<double>(result));
  }
  template <class C>
  __device__ void scaled(std::int64_t offset, C result) const {
    using V = math::Arithmetic<C>;
    V sum = V(scale) * V(result);
    if (beta != 0)
      sum = sum + V(static_cast<double>(beta)) * V(load_element<C>(out, dtype, offset));
    store_element(math::plain(sum), out, dtype, offset);
  }
};

// ---- The innermost axis is reduced ----

struct Runs {
  StridedAxes<2> kept;     // strides of x and of the output
  StridedAxes<1> reduced;  // outermost first, with the innermost axis
  std::int64_t outputs, reduction;
  std::int64_t segment, segments;  // elements of a segment, segments of an output
  bool dense;                      // true if an output's elements are contiguous
  bool aligned;                    // true if they also begin at multiples of 16 bytes
};

/// Returns the fold of the elements [begin, end) of the output that starts at `offset`, of which
/// this thread takes every `threads`-th pack. `begin` is a multiple of a pack's width.
template <class F, class T, class A = JoinedIn<F>>
__device__ A fold_part(const Source<T>& x, const Runs& runs, std::int64_t offset,
                       std::int64_t begin, std::int64_t end, int thread, int threads) {
  constexpr int kWidth = Source<T>::kWidth;
  A sum = F::identity();
  if (runs.dense) {
    const std::int64_t full = end - (end - begin) % kWidth;
    const std::int64_t step = std::int64_t{threads} * kWidth;
    for (std::int64_t i = begin + std::int64_t{thread} * kWidth; i < full;) {
      const std::int64_t stop = i + kStretch * step < full ? i + kStretch * step : full;
      A part = F::identity();
#pragma unroll 4
      for (; i < stop; i += step) {
        typename Source<T>::A pack[kWidth];
        x.load_pack(offset + i, runs.aligned, pack);
        A v[kWidth];
        for (int k = 0; k < kWidth; ++k) v[k] = F::f(pack[k]);
        for (int half = kWidth / 2; half > 0; half /= 2)
          for (int k = 0; k < half; ++k) v[k] = F::Join::join(v[k], v[k + half]);
        part = F::Join::join(part, v[0]);
      }
      sum = F::Join::join(sum, part);
    }
    if (full + thread < end) sum = F::join(sum, F::f(x.load(offset + full + thread)));
    return sum;
  }
  for (std::int64_t i = begin + thread; i < end;) {
    const std::int64_t step = kStretch * std::int64_t{threads};
    const std::int64_t stop = i + step < end ? i + step : end;
    A part = F::identity();
    for (; i < stop; i += threads)
      part = F::join(part, F::f(x.load(offset + runs.reduced.offset(i))));
    sum = F::Join::join(sum, part);
  }
  return sum;
}

template <class F>
struct JoinOf {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return F::Join::join(a, b);
  }
};

/// One warp computes each output.
template <class F, class T>
static __global__ void warp_runs_kernel(Source<T> x, Runs runs, Finish finish) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t o = global_thread() / kWarp; o < runs.outputs; o += grid_threads() / kWarp) {
    std::int64_t offsets[2];
    runs.kept.offsets(o, offsets);
    JoinedIn<F> sum = fold_part<F>(x, runs, offsets[0], 0, runs.reduction, lane, kWarp);
    sum = warp_fold(sum, JoinOf<F>{});
    if (lane == 0) finish(offsets[1], sum);
  }
}

/// One block computes each segment of each output; the last block joins the segments.
template <class F, class T>
static __global__ void block_runs_kernel(Source<T> x, Runs runs, Finish finish,
                                         JoinedIn<F>* partial, unsigned slot) {
  using A = JoinedIn<F>;
  A* const scratch = gpu::dynamic_shared<A>();
  const std::int64_t o = blockIdx.x / runs.segments, s = blockIdx.x % runs.segments;
  const std::int64_t begin = s * runs.segment;
  const std::int64_t end =
      begin + runs.segment < runs.reduction ? begin + runs.segment : runs.reduction;
  std::int64_t offsets[2];
  runs.kept.offsets(o, offsets);
  A sum = fold_part<F>(x, runs, offsets[0], begin, end, static_cast<int>(threadIdx.x), kBlock);
  sum = block_fold(sum, F::identity(), scratch, JoinOf<F>{});
  if (runs.segments == 1) {
    if (threadIdx.x == 0) finish(offsets[1], sum);
    return;
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
  if (!is_last_block(&tickets[slot])) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t i = threadIdx.x / kWarp; i < runs.outputs; i += kBlock / kWarp) {
    A all = F::identity();
    for (std::int64_t k = lane; k < runs.segments; k += kWarp)
      all = F::Join::join(all, partial[i * runs.segments + k]);
    all = warp_fold(all, JoinOf<F>{});
    runs.kept.offsets(i, offsets);
    if (lane == 0) finish(offsets[1], all);
  }
}

template <class F, class T>
void reduce_runs(const char* op, const ConstView& x, Runs runs, const Finish& finish,
                 Stream stream) {
  using A = JoinedIn<F>;
  const Source<T> source(x.data, x.dtype);
  if (runs.outputs >= kPartials ? runs.reduction <= kWarpOutput
                                : runs.reduction <= kWarpOutput / 4) {
    return gpu::launch(op, warp_runs_kernel<F, T>, grid_for(runs.outputs * kWarp), dim3(kBlock), 0,
                       stream, source, runs, finish);
  }
  const std::int64_t most = math::ceil_div(kPartials, runs.outputs);
  const std::int64_t wanted = std::clamp<std::int64_t>(runs.reduction / kSegment, 1, most);
  runs.segment = math::ceil_div(math::ceil_div(runs.reduction, wanted), 16) * 16;
  runs.segments = math::ceil_div(runs.reduction, runs.segment);
  const std::int64_t blocks = runs.outputs * runs.segments;
  const bool cut = runs.segments > 1;
  const runtime::Workspace partial(cut ? static_cast<std::size_t>(blocks) * sizeof(A) : 0, stream);
  gpu::launch(op, block_runs_kernel<F, T>, dim3(static_cast<unsigned>(blocks)), dim3(kBlock),
              kWarp * sizeof(A), stream, source, runs, finish, partial.as<A>(),
              cut ? ticket_slot(stream) : 0u);
}

// ---- The innermost axis is kept ----

struct Columns {
  StridedAxes<2> kept;     // outer axes of the output
  StridedAxes<1> reduced;  // the rows
  std::int64_t outputs, rows, width;
  std::int64_t x_stride, out_stride;  // strides along the columns
  std::int64_t row_stride;            // stride of the rows if `reduced` is one axis
  std::int64_t tiles, chunk, chunks;  // tiles of columns, rows of a chunk, and chunks
  bool wide;                          // true if packs of columns are aligned
};

/// One block computes a tile of columns of a chunk of rows, with kTileRows rows side by side. A
/// thread has one column, or one pack of them if kWide. With kOneAxis the rows are one axis, and
/// finding one needs no division.
template <class F, class T, bool kWide, bool kOneAxis>
static __global__ void columns_kernel(Source<T> x, Columns c, Finish finish, JoinedIn<F>* partial) {
  using A = JoinedIn<F>;
  constexpr int kWidth = kWide ? Source<T>::kWidth : 1;
  constexpr int kTile = kWarp * kWidth;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t tile = blockIdx.x % c.tiles, block = blockIdx.x / c.tiles;
  const std::int64_t o = block / c.chunks, chunk = block % c.chunks;
  const std::int64_t begin = chunk * c.chunk;
  const std::int64_t end = begin + c.chunk < c.rows ? begin + c.chunk : c.rows;
  const std::int64_t column = tile * kTile + lane * kWidth;
  std::int64_t offsets[2];
  c.kept.offsets(o, offsets);

  A sum[kWidth];
  for (int k = 0; k < kWidth; ++k) sum[k] = F::identity();
  if (column < c.width) {
    const std::int64_t at = offsets[0] + column * c.x_stride;
    for (std::int64_t r = begin + row; r < end;) {
      const std::int64_t stop = r + kStretch * kTileRows < end ? r + kStretch * kTileRows : end;
      A part[kWidth];
      for (int k = 0; k < kWidth; ++k) part[k] = F::identity();
#pragma unroll 4
      for (; r < stop; r += kTileRows) {
        typename Source<T>::A v[kWidth];
        const std::int64_t i = at + (kOneAxis ? r * c.row_stride : c.reduced.offset(r));
        if constexpr (kWide) {
          x.load_pack(i, true, v);
        } else {
          v[0] = x.load(i);
        }
        for (int k = 0; k < kWidth; ++k) part[k] = F::join(part[k], F::f(v[k]));
      }
      for (int k = 0; k < kWidth; ++k) sum[k] = F::Join::join(sum[k], part[k]);
    }
  }
  A* const sums = gpu::dynamic_shared<A>();  // [kTileRows][kTile]
  for (int k = 0; k < kWidth; ++k) sums[row * kTile + lane * kWidth + k] = sum[k];
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  const std::int64_t j = tile * kTile + mine;
  if (mine >= kTile || j >= c.width) return;
  A all = sums[mine];
  for (int r = 1; r < kTileRows; ++r) all = F::Join::join(all, sums[r * kTile + mine]);
  if (c.chunks == 1) {
    finish(offsets[1] + j * c.out_stride, all);
  } else {
    partial[block * c.width + j] = all;
  }
}

template <class F, class T>
void reduce_columns(const char* op, const ConstView& x, Columns c, const Finish& finish,
                    Stream stream) {
  using A = JoinedIn<F>;
  // There are enough chunks to fill the device, counted in tiles of a warp's width.
  const std::int64_t most = kPartials / (math::ceil_div(c.width, kWarp) * c.outputs);
  c.chunks = std::clamp<std::int64_t>(most, 1, math::ceil_div(c.rows, kChunkRows));
  c.chunk = math::ceil_div(c.rows, c.chunks);
  c.chunks = math::ceil_div(c.rows, c.chunk);
  const int width = c.wide ? Source<T>::kWidth : 1;
  c.tiles = math::ceil_div(c.width, kWarp * width);
  const std::int64_t partials = c.chunks > 1 ? c.outputs * c.chunks * c.width : 0;
  const runtime::Workspace partial(static_cast<std::size_t>(partials) * sizeof(A), stream);
  A* const sums = partial.as<A>();
  const auto kernel = !c.wide                 ? columns_kernel<F, T, false, false>
                      : c.reduced.rank() == 1 ? columns_kernel<F, T, true, true>
                                              : columns_kernel<F, T, true, false>;
  gpu::launch(op, kernel, dim3(static_cast<unsigned>(c.outputs * c.chunks * c.tiles)), dim3(kBlock),
              static_cast<std::size_t>(kBlock * width) * sizeof(A), stream,
              Source<T>(x.data, x.dtype), c, finish, sums);
  if (c.chunks == 1) return;

  Columns second = c;
  // The second launch's operand is [outputs, chunks, width], without gaps.
  std::int64_t strides[kMaxRank], stride = c.chunks * c.width;
  for (int d = c.kept.rank() - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= c.kept.size(d);
  }
  second.kept = {};
  for (int d = 0; d < c.kept.rank(); ++d)
    second.kept.push_back(c.kept.size(d), {strides[d], c.kept.stride(1, d)});
  second.kept.finish();
  second.row_stride = c.width;
  second.rows = second.chunk = c.chunks;
  second.chunks = 1;
  second.x_stride = 1;
  second.wide = false;
  second.tiles = math::ceil_div(c.width, kWarp);
  using S = std::conditional_t<std::is_same_v<A, std::int64_t>, Integers, A>;
  gpu::launch(op, columns_kernel<typename F::Join, S, false, true>,
              dim3(static_cast<unsigned>(c.outputs * second.tiles)), dim3(kBlock),
              kBlock * sizeof(A), stream, Source<S>(sums, dtype_of<A>), second, finish,
              static_cast<A*>(nullptr));
}

// ---- Host ----

template <template <class> class Fold, class T>
void reduce_as(const char* op, const ConstView& x, const View& out, const Finish& finish,
               Stream stream) {
  using F = Fold<math::FoldType<Fold, SumOf<T>>>;
  Runs runs{};
  if (x.numel() == 0) {  // every output is the identity: 0 for a sum
    for (int i = 0; i < out.rank(); ++i) runs.kept.push_back(out.shape[i], {0, out.strides[i]});
    runs.kept.finish();
    runs.outputs = out.numel();
    return reduce_runs<F, T>(op, x, runs, finish, stream);
  }
  const ReducePlan plan = plan_reduction(x, out);
  StridedAxes<2> kept;
  StridedAxes<1> reduced;
  bool aligned = is_aligned(x.data);
  const auto divides = [](std::int64_t stride) { return stride % Source<T>::kWidth == 0; };
  for (int i = 0; i < plan.kept.size(); ++i) {
    const ReduceAxis& a = plan.kept[i];
    kept.push_back(a.size, {a.x, a.out});
    aligned = aligned && divides(a.x);
  }
  for (int i = 0; i < plan.reduced.size(); ++i) {
    const ReduceAxis& a = plan.reduced[i];
    reduced.push_back(a.size, {a.x});
    aligned = aligned && (divides(a.x) || !plan.columns);
  }
  kept.finish();
  if (plan.columns) {
    reduced.finish();
    Columns c{};
    c.kept = kept;
    c.reduced = reduced;
    c.row_stride = plan.reduced.size() == 1 ? plan.reduced[0].x : 0;
    c.outputs = plan.outputs;
    c.rows = plan.reduction;
    c.width = plan.inner.size;
    c.x_stride = plan.inner.x;
    c.out_stride = plan.inner.out;
    c.wide = aligned && plan.inner.x == 1 && divides(c.width) && Source<T>::kWidth > 1 &&
             c.outputs * c.rows * c.width >= (1 << 18);
    return reduce_columns<F, T>(op, x, c, finish, stream);
  }
  reduced.push_back(plan.inner.size, {plan.inner.x});
  reduced.finish();
  runs.kept = kept;
  runs.reduced = reduced;
  runs.outputs = plan.outputs;
  runs.reduction = plan.reduction;
  runs.dense = plan.reduced.size() == 0 && plan.inner.x == 1;
  runs.aligned = aligned;
  reduce_runs<F, T>(op, x, runs, finish, stream);
}

template <template <class> class Fold>
void reduce_with(const char* op, const ConstView& x, const View& out, const Finish& finish,
                 Stream stream) {
  if (out.numel() == 0) return;
  if (!is_floating(x.dtype)) return reduce_as<Fold, Integers>(op, x, out, finish, stream);
  with_floating(x.dtype, [&]<class T>(T) { reduce_as<Fold, T>(op, x, out, finish, stream); });
}

}  // namespace

void reduce(ReduceOp op, const ConstView& x, const View& out, double scale, float beta,
            Stream stream) {
  const Finish finish{out.data, out.dtype, !is_floating(out.dtype), scale, beta};
  switch (op) {
#define FIRN_REDUCE(name, fold) \
  case ReduceOp::name:          \
    return reduce_with<math::fold>(#name, x, out, finish, stream);
    FIRN_REDUCTIONS(FIRN_REDUCE)
#undef FIRN_REDUCE
  }
}

}  // namespace firn::kernels::cuda
