// Scans on CUDA devices. A block scans a line, tile by tile, or a thread does if lines lie side by
// side in memory. If that leaves the device idle, lines are cut into chunks. A first launch finds
// the state of each, and the second joins the states before its own. All cuts depend on the shape
// and the strides alone.
#include "kernels/scan.h"

#include <algorithm>
#include <type_traits>

#include "firn/runtime/kernel_support.h"
#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/strides.cuh"
#include "kernels/math/fold.h"
#include "kernels/plan/scan_plan.h"

namespace firn::kernels::cuda {
namespace {

constexpr int kRounds = 4;                  // elements of a thread in a tile
constexpr std::int64_t kShortLine = 256;    // lines up to it are scanned by one warp
constexpr std::int64_t kBlocks = 1024;      // fewer leave the device idle
constexpr std::int64_t kLeastChunk = 4096;  // elements of a chunk of a line
constexpr std::int64_t kThreads = 65536;    // fewer columns leave the device idle
constexpr std::int64_t kLeastRows = 128;    // fewest rows of a chunk of columns
constexpr std::int64_t kMostChunks = 32;    // most chunks of columns
constexpr std::int64_t kRowBlock = 64;      // rows that a thread joins before a new partial result
constexpr std::int64_t kLeastColumns = 8;   // fewer lines side by side are scanned one by one

enum ScanView { kOut, kA, kB, kPosition };

struct Operands {
  const void *a, *b;
  void* out;
  std::int64_t* positions;
  DType a_dtype, b_dtype, out_dtype;
  bool two, reverse;
  float beta;
  std::int64_t length, chunk, chunks, width, groups;
  std::int64_t step[kScanViews], column[kScanViews];
  StridedAxes<kScanViews> axes;  ///< over the groups

  __device__ std::int64_t place(std::int64_t i) const { return reverse ? length - 1 - i : i; }
  __device__ std::int64_t end(std::int64_t begin) const {
    return begin + chunk < length ? begin + chunk : length;
  }
};

/// A scan of one or two operands, computed in C.
template <class C, template <class> class Scan>
struct ValueScan : Scan<math::Arithmetic<C>> {
  using V = math::Arithmetic<C>;
  using F = Scan<V>;
  using State = typename F::State;

  __device__ static State lift(const Operands& o, std::int64_t a, std::int64_t b, std::int64_t) {
    const V x(load_element<C>(o.a, o.a_dtype, a));
    return F::lift(x, o.two ? V(load_element<C>(o.b, o.b_dtype, b)) : x);
  }
  __device__ static void put(const Operands& o, State s, std::int64_t at, std::int64_t) {
    C value = math::plain(F::value(s));
    if constexpr (std::is_floating_point_v<C>) {
      if (o.beta != 0) value += static_cast<C>(o.beta) * load_element<C>(o.out, o.out_dtype, at);
    }
    store_element(value, o.out, o.out_dtype, at);
  }
};

template <class C, template <class> class Fold>
struct ExtremumScan
    : math::ExtremeScan<std::is_same_v<Fold<C>, math::MaxFold<C>>, C, std::int64_t> {
  using State = math::Extreme<C, std::int64_t>;

  __device__ static State identity() { return {Fold<C>::identity(), -1}; }
  __device__ static State lift(const Operands& o, std::int64_t a, std::int64_t, std::int64_t i) {
    return {load_element<C>(o.a, o.a_dtype, a), i};
  }
  __device__ static void put(const Operands& o, State s, std::int64_t at, std::int64_t position) {
    store_element(s.value, o.out, o.out_dtype, at);
    o.positions[position] = s.position;
  }
};

struct FromLane {
  int lane;
  template <class T>
  __device__ T operator()(T v) const {
    return __shfl_sync(kAllLanes, v, lane);
  }
  __device__ math::Wrapping operator()(math::Wrapping v) const {
    return math::Wrapping((*this)(v.n));
  }
};
struct FromBelow {
  unsigned by;
  template <class T>
  __device__ T operator()(T v) const {
    return __shfl_up_sync(kAllLanes, v, by);
  }
  __device__ math::Wrapping operator()(math::Wrapping v) const {
    return math::Wrapping((*this)(v.n));
  }
};

/// Joins each lane's state with those of the lanes below it. All 32 lanes must call it.
template <class S>
__device__ typename S::State warp_scan(typename S::State s) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int by = 1; by < kWarp; by *= 2) {
    const typename S::State below = s.map(FromBelow{static_cast<unsigned>(by)});
    if (lane >= by) s = S::join(below, s);
  }
  return s;
}

/// One block scans each chunk of each line. With kTotals, it only finds the state of a chunk.
template <class S, bool kTotals>
static __global__ void scan_lines(Operands o, typename S::State* totals) {
  using State = typename S::State;
  State* const scratch = gpu::dynamic_shared<State>();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  for (std::int64_t unit = blockIdx.x; unit < o.groups * o.chunks; unit += gridDim.x) {
    const std::int64_t group = unit / o.chunks, c = unit % o.chunks;
    const std::int64_t begin = c * o.chunk, end = o.end(begin);
    std::int64_t at[kScanViews];
    o.axes.offsets(group, at);
    State ahead = S::identity();
    if constexpr (!kTotals) {
      for (std::int64_t k = 0; k < c; k += kWarp) {
        const int n = static_cast<int>(c - k < kWarp ? c - k : kWarp);
        const State s = warp_scan<S>(lane < n ? totals[unit - c + k + lane] : S::identity());
        ahead = S::join(ahead, s.map(FromLane{n - 1}));
      }
    }
    State outer = S::identity();
    for (std::int64_t tile = begin; tile < end;
         tile += static_cast<std::int64_t>(blockDim.x) * kRounds) {
      const std::int64_t first = tile + static_cast<std::int64_t>(warp) * kWarp * kRounds + lane;
      State states[kRounds];
      State inner = S::identity();
      for (int r = 0; r < kRounds; ++r) {
        const std::int64_t i = first + r * kWarp, p = o.place(i);
        const State own = i < end ? S::lift(o, at[kA] + p * o.step[kA], at[kB] + p * o.step[kB], i)
                                  : S::identity();
        states[r] = S::join(inner, warp_scan<S>(own));
        inner = states[r].map(FromLane{kWarp - 1});
      }
      __syncthreads();  // the previous tile may still be read
      if (lane == 0) scratch[warp] = inner;
      __syncthreads();
      State before = S::identity(), all = S::identity();
      for (int w = 0; w < warps; ++w) {
        if (w == warp) before = all;
        all = S::join(all, scratch[w]);
      }
      if constexpr (!kTotals) {
        for (int r = 0; r < kRounds; ++r) {
          const std::int64_t i = first + r * kWarp, p = o.place(i);
          if (i >= end) break;
          const State s = S::join(ahead, S::join(outer, S::join(before, states[r])));
          S::put(o, s, at[kOut] + p * o.step[kOut], at[kPosition] + p * o.step[kPosition]);
        }
      }
      outer = S::join(outer, all);
    }
    if (kTotals && threadIdx.x == 0) totals[unit] = outer;
  }
}

/// One thread scans each chunk of each line; adjacent threads take lines side by side.
template <class S, bool kTotals>
static __global__ void scan_columns(Operands o, typename S::State* totals) {
  using State = typename S::State;
  for (std::int64_t t = global_thread(); t < o.groups * o.chunks * o.width; t += grid_threads()) {
    const std::int64_t unit = t / o.width, column = t % o.width;
    const std::int64_t group = unit / o.chunks, c = unit % o.chunks;
    const std::int64_t begin = c * o.chunk, end = o.end(begin);
    std::int64_t at[kScanViews];
    o.axes.offsets(group, at);
    for (int v = 0; v < kScanViews; ++v) at[v] += column * o.column[v];
    State ahead = S::identity();
    if constexpr (!kTotals) {
      for (std::int64_t k = c; k > 0; --k) ahead = S::join(ahead, totals[t - k * o.width]);
    }
    State outer = S::identity();
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t stop = row + kRowBlock < end ? row + kRowBlock : end;
      State inner = S::identity();
      for (; row < stop; ++row) {
        const std::int64_t p = o.place(row);
        inner = S::join(inner, S::lift(o, at[kA] + p * o.step[kA], at[kB] + p * o.step[kB], row));
        if constexpr (!kTotals)
          S::put(o, S::join(ahead, S::join(outer, inner)), at[kOut] + p * o.step[kOut],
                 at[kPosition] + p * o.step[kPosition]);
      }
      outer = S::join(outer, inner);
    }
    if constexpr (kTotals) totals[t] = outer;
  }
}

template <class S>
void run(const char* op, Operands o, Stream stream) {
  using State = typename S::State;
  const bool columns = o.width > 1;
  if (columns) {
    o.chunks =
        std::clamp<std::int64_t>(kThreads / (o.groups * o.width), 1,
                                 std::clamp<std::int64_t>(o.length / kLeastRows, 1, kMostChunks));
    o.chunk = math::ceil_div(o.length, o.chunks);
  } else {
    o.chunks = std::clamp<std::int64_t>(kBlocks / o.groups, 1,
                                        std::max<std::int64_t>(1, o.length / kLeastChunk));
    constexpr std::int64_t kTile = kBlock * kRounds;
    o.chunk = math::ceil_div(math::ceil_div(o.length, o.chunks), kTile) * kTile;
  }
  o.chunks = math::ceil_div(o.length, o.chunk);
  const std::int64_t states = o.groups * o.chunks * (columns ? o.width : 1);
  const bool cut = o.chunks > 1;
  const runtime::Workspace totals(cut ? static_cast<std::size_t>(states) * sizeof(State) : 0,
                                  stream);
  if (columns) {
    const dim3 grid = grid_for(states), block(kBlock);
    if (cut) gpu::launch(op, scan_columns<S, true>, grid, block, 0, stream, o, totals.as<State>());
    gpu::launch(op, scan_columns<S, false>, grid, block, 0, stream, o, totals.as<State>());
    return;
  }
  const dim3 block(o.length <= kShortLine ? kWarp : kBlock);
  const dim3 grid = grid_for(states * kBlock);
  const std::size_t shared = kBlock / kWarp * sizeof(State);
  if (cut) gpu::launch(op, scan_lines<S, true>, grid, block, shared, stream, o, totals.as<State>());
  gpu::launch(op, scan_lines<S, false>, grid, block, shared, stream, o, totals.as<State>());
}

Operands operands(const ConstView& a, const ConstView& b, const View& out, const View* positions,
                  int axis, bool reverse, float beta) {
  const ScanViews views{
      {&out.strides, &a.strides, &b.strides, positions ? &positions->strides : &out.strides}};
  const ScanPlan plan(out.shape, axis, views, kLeastColumns);
  Operands o{};
  o.a = a.data;
  o.b = b.data;
  o.out = out.data;
  o.positions = positions ? positions->as<std::int64_t>() : nullptr;
  o.a_dtype = a.dtype;
  o.b_dtype = b.dtype;
  o.out_dtype = out.dtype;
  o.two = &a != &b;
  o.reverse = reverse;
  o.beta = beta;
  o.length = plan.length;
  o.width = plan.width;
  o.groups = plan.groups;
  for (int v = 0; v < kScanViews; ++v) {
    o.step[v] = plan.step[v];
    o.column[v] = plan.column[v];
  }
  o.axes = StridedAxes<kScanViews>(plan.walk(views));
  return o;
}

template <template <class> class Scan, bool kIntegers>
void scan_as(const char* op, const Operands& o, Stream stream) {
  switch (compute_dtype(o.a_dtype)) {
    case DType::f32:
      return run<ValueScan<float, Scan>>(op, o, stream);
    case DType::f64:
      return run<ValueScan<double, Scan>>(op, o, stream);
    default:
      if constexpr (kIntegers) run<ValueScan<std::int64_t, Scan>>(op, o, stream);
  }
}

template <template <class> class Fold>
void extremum_as(const char* op, const Operands& o, Stream stream) {
  switch (compute_dtype(o.a_dtype)) {
    case DType::f32:
      return run<ExtremumScan<float, Fold>>(op, o, stream);
    case DType::f64:
      return run<ExtremumScan<double, Fold>>(op, o, stream);
    default:
      run<ExtremumScan<std::int64_t, Fold>>(op, o, stream);
  }
}

}  // namespace

void scan(ScanOp op, const ConstView& x, const View& out, int axis, bool reverse, float beta,
          Stream stream) {
  if (out.numel() == 0) return;
  const Operands o = operands(x, x, out, nullptr, axis, reverse, beta);
  switch (op) {
#define FIRN_SCAN(name, Scan, integers) \
  case ScanOp::name:                    \
    return scan_as<math::Scan, integers>("scan " #name, o, stream);
    FIRN_SCANS(FIRN_SCAN)
#undef FIRN_SCAN
  }
}

void scan_extremum(bool largest, const ConstView& x, const View& values, const View& positions,
                   int axis, Stream stream) {
  if (values.numel() == 0) return;
  const Operands o = operands(x, x, values, &positions, axis, false, 0);
  largest ? extremum_as<math::MaxFold>("scan max", o, stream)
          : extremum_as<math::MinFold>("scan min", o, stream);
}

void scan_linear(const ConstView& a, const ConstView& b, const View& out, int axis, Stream stream) {
  if (out.numel() == 0) return;
  scan_as<math::LinearScan, false>("scan_linear", operands(a, b, out, nullptr, axis, true, 0),
                                   stream);
}

}  // namespace firn::kernels::cuda
