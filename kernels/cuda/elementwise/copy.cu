// Copies with conversion, fills and number sequences on CUDA devices. Copies within one dtype move
// bits; a cast goes through the source's compute type, from which every dtype is one rounding away.
#include "kernels/copy.h"

#include <cuda_fp8.h>

#include <cmath>

#include "kernels/cuda/device/axis_table.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/lanes.cuh"
#include "kernels/cuda/elementwise/fill_pattern.cuh"
#include "kernels/math/macros.h"

namespace firn::kernels::cuda {
namespace {

/// Reads an element of the source and writes one of the destination as bits.
template <class T>
struct Bits {
  using Value = T;
  const T* src;
  T* dst;
  __device__ T load(std::int64_t i) const { return src[i]; }
  __device__ void store(T value, std::int64_t i) const { dst[i] = value; }
};

// ---- Elements of every dtype: first those without arithmetic, then all others ----

__device__ inline float from_float8(std::uint8_t bits, __nv_fp8_interpretation_t kind) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, kind)));
}
template <class C>
__device__ C load_any(const void* p, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::i8:
      return static_cast<C>(static_cast<const std::int8_t*>(p)[i]);
    case DType::i16:
      return static_cast<C>(static_cast<const std::int16_t*>(p)[i]);
    case DType::u16:
      return static_cast<C>(static_cast<const std::uint16_t*>(p)[i]);
    case DType::u32:
      return static_cast<C>(static_cast<const std::uint32_t*>(p)[i]);
    case DType::f8_e4m3:
      return static_cast<C>(from_float8(static_cast<const std::uint8_t*>(p)[i], __NV_E4M3));
    case DType::f8_e5m2:
      return static_cast<C>(from_float8(static_cast<const std::uint8_t*>(p)[i], __NV_E5M2));
    default:
      return load_element<C>(p, dtype, i);
  }
}
/// Rounds once, as narrow_to_16() does.
template <class C>
__device__ void store_float8(C value, void* p, __nv_fp8_interpretation_t kind, std::int64_t i) {
  float number;
  if constexpr (std::is_same_v<C, std::int64_t>) {
    number = math::round_to_odd(math::round_to_odd(value));
  } else if constexpr (std::is_same_v<C, double>) {
    number = math::round_to_odd(value);
  } else {
    number = value;
  }
  static_cast<std::uint8_t*>(p)[i] = __nv_cvt_float_to_fp8(number, __NV_NOSAT, kind);
}
template <class C>
__device__ void store_any(C value, void* p, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::i8:
      static_cast<std::int8_t*>(p)[i] = narrow_to_integer<std::int8_t>(value);
      return;
    case DType::i16:
      static_cast<std::int16_t*>(p)[i] = narrow_to_integer<std::int16_t>(value);
      return;
    case DType::u16:
      static_cast<std::uint16_t*>(p)[i] = narrow_to_integer<std::uint16_t>(value);
      return;
    case DType::u32:
      static_cast<std::uint32_t*>(p)[i] = narrow_to_integer<std::uint32_t>(value);
      return;
    case DType::f8_e4m3:
      return store_float8(value, p, __NV_E4M3, i);
    case DType::f8_e5m2:
      return store_float8(value, p, __NV_E5M2, i);
    default:
      return store_element(value, p, dtype, i);
  }
}

/// Reads and writes elements with a conversion, in compute type C.
template <class C>
struct Cast {
  using Value = C;
  const void* src;
  void* dst;
  DType from, to;
  __device__ C load(std::int64_t i) const { return load_any<C>(src, from, i); }
  __device__ void store(C value, std::int64_t i) const { store_any(value, dst, to, i); }
};

// ---- Any strides ----

template <class Move>
__global__ void strided_copy(Move move, std::int64_t n, StridedAxes<2> axes) {
  const std::int64_t step = grid_threads();
  for (std::int64_t i = global_thread(); i < n; i += step) {
    std::int64_t at[2];
    axes.offsets(i, at);
    move.store(move.load(at[1]), at[0]);
  }
}

template <class Move>
void copy_strided(const Move& move, const AxisTable<2>& axes, Stream stream) {
  const std::int64_t n = axes.numel();
  gpu::launch("copy", strided_copy<Move>, grid_for(n), dim3(kBlock), 0, stream, move, n,
              axes.on_device());
}

// ---- Transposes: the views are contiguous along different axes ----

constexpr int kTile = 32;
constexpr int kTileLines = 8;  // lines of a tile that a block moves at once

/// `rows` is the axis along which the source is contiguous, `columns` the destination's.
struct Matrices {
  std::int64_t rows, columns;
  std::int64_t source_column;    ///< stride of the source between columns
  std::int64_t destination_row;  ///< stride of the destination between rows
  std::int64_t count = 1;        ///< product of the other axes' sizes
  StridedAxes<2> others;
};

/// Moves tile by tile through shared memory, so that both sides are read and written line by line.
/// The tile's rows have one element of padding, so that its columns are in different banks.
template <class Move>
__global__ void __launch_bounds__(kTile* kTileLines, 4) transpose_tiles(Move move, Matrices m) {
  __shared__ typename Move::Value tile[kTile][kTile + 1];
  const int lane = static_cast<int>(threadIdx.x), line = static_cast<int>(threadIdx.y);
  for (std::int64_t matrix = blockIdx.z; matrix < m.count; matrix += gridDim.z) {
    std::int64_t begin[2];
    m.others.offsets(matrix, begin);
    const std::int64_t to = begin[0], from = begin[1];
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTile; row < m.rows;
         row += static_cast<std::int64_t>(gridDim.y) * kTile) {
      for (std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kTile; column < m.columns;
           column += static_cast<std::int64_t>(gridDim.x) * kTile) {
        for (int k = line; k < kTile; k += kTileLines) {
          if (row + lane < m.rows && column + k < m.columns) {
            tile[k][lane] = move.load(from + row + lane + (column + k) * m.source_column);
          }
        }
        __syncthreads();
        for (int k = line; k < kTile; k += kTileLines) {
          if (row + k < m.rows && column + lane < m.columns) {
            move.store(tile[lane][k], to + (row + k) * m.destination_row + column + lane);
          }
        }
        __syncthreads();
      }
    }
  }
}

/// Returns the axis along which the source is contiguous, if it is not the last one and tiles pay;
/// else -1.
int transposed_axis(const AxisTable<2>& axes) {
  constexpr std::int64_t kWorthIt = 8;
  const int inner = axes.rank - 1;
  if (axes.strides[0][inner] != 1 || axes.strides[1][inner] == 1 || axes.sizes[inner] < kWorthIt) {
    return -1;
  }
  for (int d = 0; d < inner; ++d) {
    if (axes.strides[1][d] == 1 && axes.sizes[d] >= kWorthIt) return d;
  }
  return -1;
}

template <class Move>
void transpose(const Move& move, const AxisTable<2>& axes, int axis, Stream stream) {
  const int inner = axes.rank - 1;
  Matrices m;
  m.rows = axes.sizes[axis];
  m.columns = axes.sizes[inner];
  m.source_column = axes.strides[1][inner];
  m.destination_row = axes.strides[0][axis];
  for (int d = 0; d < inner; ++d) {
    if (d == axis) continue;
    m.count *= axes.sizes[d];
    m.others.push_back(axes.sizes[d], {axes.strides[0][d], axes.strides[1][d]});
  }
  m.others.finish();
  const auto blocks = [](std::int64_t n) {
    return static_cast<unsigned>(std::min<std::int64_t>(n, 65535));
  };
  const auto tiles = [&](std::int64_t n) { return blocks(math::ceil_div(n, kTile)); };
  gpu::launch("copy", transpose_tiles<Move>, dim3(tiles(m.columns), tiles(m.rows), blocks(m.count)),
              dim3(kTile, kTileLines), 0, stream, move, m);
}

// ---- Contiguous casts between f16, bf16 and f32 ----

template <class S, class D>
__global__ void contiguous_cast(const S* src, D* dst, std::int64_t n) {
  const std::int64_t packs = n / 4, first = global_thread(), step = grid_threads();
  for (std::int64_t p = first; p < packs; p += step) {
    const Quad<S> x = lanes_at<Quad<S>>(src, p);
    Quad<D> y;
    for (int j = 0; j < 4; ++j) narrow(widen(x.lane[j]), y.lane[j]);
    lanes_at<Quad<D>>(dst, p) = y;
  }
  for (std::int64_t i = packs * 4 + first; i < n; i += step) narrow(widen(src[i]), dst[i]);
}

/// Casts n contiguous elements. Returns false, with nothing done, if they are not aligned for
/// quads.
bool cast_contiguous(const ConstView& src, const View& dst, std::int64_t n, Stream stream) {
  bool done = false;
  with_float_class(src.dtype, [&]<class S>(S) {
    with_float_class(dst.dtype, [&]<class D>(D) {
      if constexpr (!std::is_same_v<S, D>) {
        if (!takes_quads<S>(src.data) || !takes_quads<D>(dst.data)) return;
        gpu::launch("copy", contiguous_cast<S, D>, grid_for((n + 3) / 4), dim3(kBlock), 0, stream,
                    src.as<S>(), dst.as<D>(), n);
        done = true;
      }
    });
  });
  return done;
}

// ---- The two kinds of copies ----

template <class Move>
void copy_by(const Move& move, const AxisTable<2>& axes, Stream stream) {
  if (const int axis = transposed_axis(axes); axis >= 0) {
    return transpose(move, axes, axis, stream);
  }
  copy_strided(move, axes, stream);
}

void copy_bits(const ConstView& src, const View& dst, AxisTable<2> axes, Stream stream) {
  const std::size_t bytes = size_of(src.dtype);
  if (axes.contiguous(0) && axes.contiguous(1)) {
    if (runtime::dry_run()) return;
    gpu::check_cuda(cudaSetDevice(stream.device.index), "copy", "cudaSetDevice");
    gpu::check_cuda(
        cudaMemcpyAsync(dst.data, src.data, static_cast<std::size_t>(axes.numel()) * bytes,
                        cudaMemcpyDefault, gpu::native(stream)),
        "copy", "cudaMemcpyAsync");
    return;
  }
  const void* const data[] = {dst.data, src.data};
  const int width = axes.together(bytes, data);
  axes.group(width, data);
  with_bits(bytes * static_cast<std::size_t>(width), [&]<class T>(T) {
    const Bits<T> move{src.as<T>(), dst.as<T>()};
    if constexpr (sizeof(T) <= 8) {
      copy_by(move, axes, stream);
    } else {
      copy_strided(move, axes, stream);  // both are contiguous along the innermost axis
    }
  });
}

template <class C>
void copy_cast(const ConstView& src, const View& dst, const AxisTable<2>& axes, Stream stream) {
  if constexpr (std::is_same_v<C, float>) {
    if (!is_stored_only(src.dtype) && !is_stored_only(dst.dtype) &&
        compute_dtype(dst.dtype) == f32 && axes.contiguous(0) && axes.contiguous(1) &&
        cast_contiguous(src, dst, axes.numel(), stream)) {
      return;
    }
  }
  copy_by(Cast<C>{src.data, dst.data, src.dtype, dst.dtype}, axes, stream);
}

// ---- Fills and sequences ----

template <class T>
__global__ void strided_fill(T* dst, std::int64_t n, StridedAxes<1> axes, T value) {
  const std::int64_t step = grid_threads();
  for (std::int64_t i = global_thread(); i < n; i += step) dst[axes.offset(i)] = value;
}

/// Counts in int64_t if `whole`, else in double.
__global__ void sequence(void* dst, DType dtype, std::int64_t stride, std::int64_t n, bool whole,
                         double start, double step) {
  const std::int64_t first = static_cast<std::int64_t>(whole ? start : 0);
  const std::int64_t by = static_cast<std::int64_t>(whole ? step : 0);
  const std::int64_t threads = grid_threads();
  for (std::int64_t i = global_thread(); i < n; i += threads) {
    if (whole) {
      store_element(first + i * by, dst, dtype, i * stride);
    } else {
      store_element(start + static_cast<double>(i) * step, dst, dtype, i * stride);
    }
  }
}

}  // namespace

void copy(const ConstView& src, const View& dst, Stream stream) {
  if (dst.numel() == 0) return;
  const AxisTable<2> axes(dst.shape, {&dst.strides, &src.strides});
  if (src.dtype == dst.dtype) return copy_bits(src, dst, axes, stream);
  switch (compute_dtype(src.dtype)) {
    case DType::f32:
      return copy_cast<float>(src, dst, axes, stream);
    case DType::f64:
      return copy_cast<double>(src, dst, axes, stream);
    default:
      return copy_cast<std::int64_t>(src, dst, axes, stream);
  }
}

void fill(const View& dst, double value, Stream stream) {
  if (dst.numel() == 0) return;
  const Pattern pattern(value, dst.dtype);
  const std::size_t bytes = size_of(dst.dtype);
  AxisTable<1> axes(dst.shape, {&dst.strides});
  if (axes.contiguous(0) && pattern.zero()) {
    if (runtime::dry_run()) return;
    gpu::check_cuda(cudaSetDevice(stream.device.index), "fill", "cudaSetDevice");
    gpu::check_cuda(cudaMemsetAsync(dst.data, 0, static_cast<std::size_t>(axes.numel()) * bytes,
                                    gpu::native(stream)),
                    "fill", "cudaMemsetAsync");
    return;
  }
  const void* const data[] = {dst.data};
  const int width = axes.together(bytes, data);
  axes.group(width, data);
  const std::int64_t n = axes.numel();
  with_bits(bytes * static_cast<std::size_t>(width), [&]<class T>(T) {
    gpu::launch("fill", strided_fill<T>, grid_for(n), dim3(kBlock), 0, stream, dst.as<T>(), n,
                axes.on_device(), pattern.as<T>());
  });
}

void arange(const View& dst, double start, double step, Stream stream) {
  const std::int64_t n = dst.numel();
  if (n == 0) return;
  const std::int64_t stride = dst.rank() == 0 ? 1 : dst.strides[0];
  const bool whole = !is_floating(dst.dtype) && counts_whole(start, step, n);
  gpu::launch("arange", sequence, grid_for(n), dim3(kBlock), 0, stream, dst.data, dst.dtype, stride,
              n, whole, start, step);
}

}  // namespace firn::kernels::cuda
