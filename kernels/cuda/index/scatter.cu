// Adds at positions held in a tensor, on CUDA devices: the gradients of gather and take_rows. One
// thread adds the terms of an element, in the order of the axis. So no sum depends on how the
// device schedules its blocks. There are two ways to find the terms:
//
//   scan   The thread of each element of grad reads the whole list of indices. One launch;
//          numel(grad) * list reads of the index, which caches serve.
//   sort   The positions are sorted by index (stable: sort.cuh), then a warp takes each distinct
//          index and 32 or 128 columns. 2 launches and 2 more for every 8 bits of the number of
//          places: 6 for an embedding of 50,000 rows, and a memset if beta is 0. The work is
//          proportional to the size of dy; an index that is repeated k times is a chain of k
//          additions, whose loads overlap four at a time.
#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "kernels/cuda/device/axis_table.cuh"
#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/lanes.cuh"
#include "kernels/cuda/index/lists.cuh"
#include "kernels/index.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cuda {
namespace {

/// Largest number of terms that are summed in f32. Longer sums run in f64, because their rounding
/// errors would accumulate.
constexpr std::int64_t kFewTerms = 64;

/// Type in which sums run, as on the CPU.
enum class Sums {
  narrow,    ///< f32
  by_count,  ///< f64 if an element has more than kFewTerms terms
  wide       ///< f64
};

Sums sums_of(const ConstView& dy, const ConstView& index, const View& grad, int axis) {
  if (grad.dtype == f64) return Sums::wide;
  if (dy.shape[axis] <= kFewTerms) return Sums::narrow;
  // Whole slices with one list of indices count the terms of each element; others count the list.
  int last = -1;
  for (int i = 0; i < index.rank(); ++i) {
    if (i == axis || index.shape[i] == 1) continue;
    if (index.strides[i] != 0) return Sums::wide;
    last = i;
  }
  return last >= 0 && dy.strides[last] <= dy.strides[axis] ? Sums::by_count : Sums::wide;
}

// ---- Scan ----

/// The offsets of a thread's element of grad, of its list of indices and of its list of terms, and
/// the index that it collects.
using ScanAxes = StridedAxes<4>;

__global__ void scan_terms(const void* dy, DType from, Index index, void* grad, DType to,
                           std::int64_t n, ScanAxes axes, std::int64_t length,
                           std::int64_t index_step, std::int64_t dy_step, Sums sums, bool adds) {
  const std::int64_t threads = grid_threads();
  for (std::int64_t i = global_thread(); i < n; i += threads) {
    std::int64_t at[4];
    axes.offsets(i, at);
    std::int64_t count = 0;
    double wide = adds ? load_element<double>(grad, to, at[0]) : 0.0;
    float narrow = static_cast<float>(wide);
    for (std::int64_t j = 0; j < length; ++j) {
      const std::int64_t place = at[1] + j * index_step;
      const std::int64_t value = index.value(place);
      if (value == at[3]) {
        const double term = load_element<double>(dy, from, at[2] + j * dy_step);
        wide += term;
        narrow += static_cast<float>(term);
        ++count;
      } else if (at[3] == 0 && !index.allows(value)) {
        index.raise(place, value);
      }
    }
    if (count == 0 && adds) continue;
    if (sums == Sums::wide || (sums == Sums::by_count && count > kFewTerms)) {
      store_element(wide, grad, to, at[0]);
    } else {
      store_element(narrow, grad, to, at[0]);
    }
  }
}

void scan(const char* op, const ConstView& dy, const ConstView& index, const View& grad, int axis,
          bool adds, Stream stream) {
  Shape shape = dy.shape;
  Strides index_lines = index.strides, dy_lines = dy.strides;
  Strides target = Dims::filled(dy.rank(), 0);
  shape[axis] = grad.shape[axis];
  index_lines[axis] = dy_lines[axis] = 0;
  target[axis] = 1;
  const AxisTable<4> axes(shape, {&grad.strides, &index_lines, &dy_lines, &target});
  const std::int64_t n = axes.numel();
  gpu::launch(op, scan_terms, grid_for(n), dim3(kBlock), 0, stream, dy.data, dy.dtype,
              Index(op, index, grad.shape[axis]), grad.data, grad.dtype, n, axes.on_device(),
              dy.shape[axis], index.strides[axis], dy.strides[axis], sums_of(dy, index, grad, axis),
              adds);
}

// ---- Sort ----

/// Elements of any dtypes, one at a time.
struct AnyTerms {
  static constexpr int kWidth = 1;
  const void* dy;
  void* grad;
  DType from, to;

  template <class A>
  __device__ void load_grad(std::int64_t i, A (&out)[1]) const {
    out[0] = load_element<A>(grad, to, i);
  }
  template <class A>
  __device__ void load_dy(std::int64_t i, A (&out)[1]) const {
    out[0] = load_element<A>(dy, from, i);
  }
  template <class A>
  __device__ void store_grad(const A (&values)[1], std::int64_t i) const {
    store_element(values[0], grad, to, i);
  }
};

/// Elements of dtypes S and G, four at a time; offsets count fours.
template <class S, class G>
struct FourTerms {
  static constexpr int kWidth = 4;
  const Quad<S>* dy;
  Quad<G>* grad;

  template <class A>
  __device__ void load_grad(std::int64_t i, A (&out)[4]) const {
    const Quad<G> four = lanes_at<Quad<G>>(grad, i);
    for (int j = 0; j < 4; ++j) out[j] = widen(four.lane[j]);
  }
  template <class A>
  __device__ void load_dy(std::int64_t i, A (&out)[4]) const {
    const Quad<S> four = lanes_at<Quad<S>>(dy, i);
    for (int j = 0; j < 4; ++j) out[j] = widen(four.lane[j]);
  }
  template <class A>
  __device__ void store_grad(const A (&values)[4], std::int64_t i) const {
    Quad<G> four;
    for (int j = 0; j < 4; ++j) narrow(values[j], four.lane[j]);
    lanes_at<Quad<G>>(grad, i) = four;
  }
};

/// grad[to] += dy[from + ...] over the entries from `first` on that have the same key, in their
/// order, in sums of type A. All lanes of a warp call it; lanes that are not `active` only help.
template <class A, class Terms, class K>
__device__ void add_segment(const Terms& terms, const K* keys, const K* positions, std::int64_t n,
                            std::int64_t first, std::int64_t first_of_line, std::int64_t from,
                            std::int64_t dy_step, std::int64_t to, bool active, bool adds) {
  const K key = keys[first];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  A sum[Terms::kWidth] = {};
  if (active && adds) terms.load_grad(to, sum);
  for (int count = kWarp; count == kWarp; first += kWarp) {
    const std::int64_t e = first + lane;
    const bool mine = e < n && keys[e] == key;
    const K position = mine ? positions[e] : K(0);
    count = __popc(__ballot_sync(kAllLanes, mine));
#pragma unroll 4
    for (int k = 0; k < count; ++k) {
      const auto j = static_cast<std::int64_t>(__shfl_sync(kAllLanes, position, k)) - first_of_line;
      if (active) {
        A term[Terms::kWidth];
        terms.load_dy(from + j * dy_step, term);
        for (int c = 0; c < Terms::kWidth; ++c) sum[c] += term[c];
      }
    }
  }
  if (active) terms.store_grad(sum, to);
}

/// A warp takes the entry that is the first of its key, and kWarp times kWidth columns.
template <class Terms, class K>
__global__ void add_sorted(Terms terms, Lists lists, StridedAxes<2> columns, std::int64_t width,
                           const K* keys, const K* positions, Sums sums, bool adds) {
  const std::int64_t n = lists.lines * lists.length;
  const std::int64_t tiles = math::ceil_div(width, kWarp), step = grid_threads() / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t w = global_thread() / kWarp; w < n * tiles; w += step) {
    const std::int64_t e = w / tiles, column = (w - e * tiles) * kWarp + lane;
    const K key = keys[e];
    if (static_cast<std::int64_t>(key) == lists.lines * lists.places) continue;
    if (e > 0 && keys[e - 1] == key) continue;
    const std::int64_t line = static_cast<std::int64_t>(key) / lists.places;
    const std::int64_t place = static_cast<std::int64_t>(key) - line * lists.places;
    const bool active = column < width;
    std::int64_t of_line[3], of_column[2];
    lists.axes.offsets(line, of_line);
    columns.offsets(active ? column : 0, of_column);
    const std::int64_t to = of_line[0] + of_column[0] + place * lists.grad_step;
    const std::int64_t from = of_line[2] + of_column[1];
    const bool many = e + kFewTerms < n && keys[e + kFewTerms] == key;
    if (sums == Sums::wide || (sums == Sums::by_count && many)) {
      add_segment<double>(terms, keys, positions, n, e, line * lists.length, from, lists.dy_step,
                          to, active, adds);
    } else {
      add_segment<float>(terms, keys, positions, n, e, line * lists.length, from, lists.dy_step, to,
                         active, adds);
    }
  }
}

/// True if all rows of dy and grad can be accessed four columns at a time.
bool takes_fours(const ConstView& dy, const View& grad, int axis, const AxisTable<3>& lines,
                 const AxisTable<2>& columns) {
  const auto aligned = [](const void* p, DType dtype) {
    return reinterpret_cast<std::uintptr_t>(p) % (4 * size_of(dtype)) == 0;
  };
  bool fits = compute_dtype(dy.dtype) == f32 && compute_dtype(grad.dtype) == f32 &&
              aligned(dy.data, dy.dtype) && aligned(grad.data, grad.dtype) &&
              dy.strides[axis] % 4 == 0 && grad.strides[axis] % 4 == 0;
  const int inner = columns.rank - 1;
  fits = fits && columns.sizes[inner] % 4 == 0;
  for (int v = 0; v < 2; ++v) {
    fits = fits && columns.strides[v][inner] == 1;
    for (int d = 0; d < inner; ++d) fits = fits && columns.strides[v][d] % 4 == 0;
  }
  for (int d = 0; d < lines.rank; ++d) {
    if (lines.sizes[d] == 1) continue;
    fits = fits && lines.strides[0][d] % 4 == 0 && lines.strides[2][d] % 4 == 0;
  }
  return fits;
}

template <class K>
void add_by_sort(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
                 int axis, bool adds, Stream stream) {
  const Split split(dy, index, grad, axis);
  AxisTable<3> lines(split.lines, {&split.grad_lines, &split.index_lines, &split.dy_lines});
  AxisTable<2> columns(split.columns, {&split.grad_columns, &split.dy_columns});
  Lists lists(lines, dy, index, grad, axis);
  const SortedLists<K> entries(op, Index(op, index, grad.shape[axis]), lists, stream);
  const std::int64_t n = lists.entries();

  const Sums sums = sums_of(dy, index, grad, axis);
  const auto add = [&]<class Terms>(const Terms& terms) {
    const std::int64_t width = columns.numel();
    const std::int64_t warps = n * math::ceil_div(width, kWarp);
    gpu::launch(op, add_sorted<Terms, K>, grid_for(warps * kWarp), dim3(kBlock), 0, stream, terms,
                lists, columns.on_device(), width, entries.keys(), entries.positions(), sums, adds);
  };
  if (!takes_fours(dy, grad, axis, lines, columns)) {
    return add(AnyTerms{dy.data, grad.data, dy.dtype, grad.dtype});
  }
  columns.group(4, {grad.data, dy.data});
  lines.rescale(4, {true, false, true});
  lists.axes = lines.on_device();
  lists.grad_step /= 4;
  lists.dy_step /= 4;
  with_float_class(dy.dtype, [&]<class S>(S) {
    with_float_class(grad.dtype, [&]<class G>(G) {
      add(FourTerms<S, G>{static_cast<const Quad<S>*>(dy.data), static_cast<Quad<G>*>(grad.data)});
    });
  });
}

}  // namespace

void gather_backward(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
                     int axis, float beta, Stream stream) {
  if (grad.numel() == 0) return;
  if (dy.numel() == 0) {
    if (beta == 0) fill(grad, 0, stream);
    return;
  }
  constexpr std::int64_t kScanWork = std::int64_t{1} << 24;
  constexpr std::int64_t kShortList = 4;
  const std::int64_t length = dy.shape[axis];
  const std::int64_t reached =
      dy.numel() / length * grad.shape[axis];  // elements of grad in the slices that dy covers
  const bool adds = beta != 0;
  if (reached <= kScanWork / length || (!adds && length <= kShortList)) {
    if (!adds && reached != grad.numel()) fill(grad, 0, stream);
    return scan(op, dy, index, grad, axis, adds, stream);
  }
  if (!adds) fill(grad, 0, stream);
  if (fits_32_bits(dy, index, grad, axis)) {
    add_by_sort<std::uint32_t>(op, dy, index, grad, axis, adds, stream);
  } else {
    add_by_sort<std::uint64_t>(op, dy, index, grad, axis, adds, stream);
  }
}

void add_rows(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
              float beta, Stream stream) {
  gather_backward(op, dy, over_columns(index, dy.shape[1]), grad, 0, beta, stream);
}

}  // namespace firn::kernels::cuda
