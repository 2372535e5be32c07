// Code that the kernels of attention share. A block of 256 threads works on tiles of kTile queries
// by kTile keys. Thread (ty, tx) has rows ty, ty+16, ... and columns tx, tx+16, ... of a tile.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/fault.cuh"
#include "kernels/math/philox.h"
#include "kernels/math/rows.h"
#include "kernels/math/sequence/attention.h"
#include "kernels/sequence/attention.h"

namespace firn::kernels::cuda {

inline constexpr int kSide = 16;  ///< threads of a block along each axis of a tile
inline constexpr int kStep = 16;  ///< steps of a sum in shared memory at a time
template <class C>
inline constexpr int kTileOf = sizeof(C) == 8 ? 32 : 64;

__device__ inline int thread_row() { return static_cast<int>(threadIdx.x) / kSide; }
__device__ inline int thread_column() { return static_cast<int>(threadIdx.x) % kSide; }

/// Rows of one head of a tensor [batch, heads, rows, depth] whose last axis has stride 1.
template <class T>
struct HeadRows {
  const T* data;
  std::int64_t stride, rows, depth;
};
template <class T>
struct HeadsIn {
  const T* data;
  std::int64_t batch, head, row, rows, depth;

  explicit HeadsIn(const ConstView& v)
      : data(v.as<T>()),
        batch(v.strides[0]),
        head(v.strides[1]),
        row(v.strides[2]),
        rows(v.shape[2]),
        depth(v.shape[3]) {}
  __device__ HeadRows<T> at(std::int64_t b, std::int64_t h) const {
    return {data + b * batch + h * head, row, rows, depth};
  }
};
/// An output [batch, heads, rows, depth] with any strides: beta * old + new.
struct HeadsOut {
  void* data;
  DType dtype;
  std::int64_t strides[4];
  float beta;

  HeadsOut(const View& v, float old) : data(v.data), dtype(v.dtype), strides{}, beta(old) {
    for (int i = 0; i < 4 && data; ++i) strides[i] = v.strides[i];
  }
  template <class C>
  __device__ void store(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column,
                        C value) const {
    const std::int64_t at =
        b * strides[0] + h * strides[1] + row * strides[2] + column * strides[3];
    if (beta != 0) value = static_cast<C>(beta) * load_element<C>(data, dtype, at) + value;
    store_element(value, data, dtype, at);
  }
};

/// Sizes and options of a call, as a kernel reads them.
template <class C>
struct AttentionProblem {
  math::AttentionBand band;
  std::int64_t heads, group;  ///< query heads, and number of them that read one key head
  C scale;
  const void* lengths;
  bool wide_lengths;  ///< true for i64, false for i32
  std::int64_t lengths_stride;
  FaultSite fault;
  const std::uint8_t* mask;
  std::int64_t mask_strides[4];
  const void* bias;
  bool wide_bias;  ///< true for type C, false for the operands' type
  std::int64_t bias_strides[4];
  RandomKey key;
  std::int64_t row_blocks;  ///< Philox blocks of a row
  std::uint32_t threshold;
  C share;  ///< factor of a kept probability
  bool drops;

  AttentionProblem(const ConstView& q, const ConstView& k, const AttentionArgs& args, Stream stream)
      : band{q.shape[2], k.shape[2], args.causal, args.window},
        heads(q.shape[1]),
        group(k.shape[1] == 0 ? 0 : q.shape[1] / k.shape[1]),
        scale(static_cast<C>(args.scale)),
        lengths(args.lengths.data),
        wide_lengths(args.lengths.dtype == DType::i64),
        lengths_stride(lengths ? args.lengths.strides[0] : 0),
        fault(fault_site("attention", "length", stream.device)),
        mask(args.mask.as<std::uint8_t>()),
        mask_strides{},
        bias(args.bias.data),
        wide_bias(args.bias.dtype == dtype_of<C>),
        bias_strides{},
        key(args.key),
        row_blocks(math::attention_row_words(k.shape[2]) / 4),
        threshold(math::dropout_threshold(args.dropout)),
        share(static_cast<C>(1 / (1 - args.dropout))),
        drops(args.dropout > 0) {
    for (int i = 0; i < 4 && mask; ++i) mask_strides[i] = args.mask.strides[i];
    for (int i = 0; i < 4 && bias; ++i) bias_strides[i] = args.bias.strides[i];
  }

  __device__ std::int64_t given_length(std::int64_t b) const {
    const std::int64_t at = b * lengths_stride;
    return wide_lengths ? static_cast<const std::int64_t*>(lengths)[at]
                        : static_cast<const std::int32_t*>(lengths)[at];
  }
  __device__ std::int64_t length(std::int64_t b) const {
    if (!lengths) return band.keys;
    const std::int64_t n = given_length(b);
    return n < 0 ? 0 : n > band.keys ? band.keys : n;
  }
  __device__ bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                       std::int64_t length) const {
    if (i >= band.queries || j >= band.keys || !band.sees(i, j, length)) return false;
    return !mask || mask[b * mask_strides[0] + h * mask_strides[1] + i * mask_strides[2] +
                         j * mask_strides[3]] != 0;
  }
  /// Returns the score of a pair that is seen, from the product of operands of type T. Kernels with
  /// a bias (kBias) are separate, so that the others keep no register for it.
  template <bool kBias, class T>
  __device__ C score(C product, std::int64_t b, std::int64_t h, std::int64_t i,
                     std::int64_t j) const {
    if constexpr (kBias) {
      const std::int64_t at =
          b * bias_strides[0] + h * bias_strides[1] + i * bias_strides[2] + j * bias_strides[3];
      return scale * product + (wide_bias ? static_cast<const C*>(bias)[at]
                                          : static_cast<C>(widen(static_cast<const T*>(bias)[at])));
    } else {
      return scale * product;
    }
  }
  /// True if every pair of a tile is seen; false if there is a mask.
  __device__ bool sees_all(std::int64_t i, std::int64_t j, std::int64_t tile,
                           std::int64_t length) const {
    return !mask && i + tile <= band.queries && j + tile <= length &&
           band.first_key(i + tile - 1) <= j && band.end_key(i, length) >= j + tile;
  }
  /// True if the band lets a pair of a tile through.
  __device__ bool sees_some(std::int64_t i, std::int64_t j, std::int64_t tile,
                            std::int64_t length) const {
    const std::int64_t last = math::min(i + tile, band.queries) - 1;
    return i <= last && band.first_key(i) < j + tile && band.end_key(last, length) > j;
  }
  __device__ bool keeps(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::uint64_t seed = key.base ? key.base[0] : key.seed;
    const std::uint64_t offset = key.base ? key.base[1] + key.offset : key.offset;
    const std::int64_t at = ((b * heads + h) * band.queries + i) * row_blocks + j / 4;
    return math::word_of(math::philox(offset + static_cast<std::uint64_t>(at), seed), j) >=
           threshold;
  }
};

/// A block's shared memory.
template <class C, int kTile>
struct AttentionShared {
  C left[kTile][kStep + 1];
  C right[kTile][kStep + 1];
  C weights[kTile][kTile + 1];       ///< weights of a tile; rows are queries
  unsigned char seen[kTile][kTile];  ///< true for pairs that are seen
};

/// A thread's part of a tile [kTile, kTile]. Loops over it are unrolled, since an array with
/// indices that the compiler does not know lies in local memory.
template <class C, int kTile>
struct TilePart {
  static constexpr int kPer = kTile / kSide;
  C x[kPer][kPer];

  __device__ static int row(int a) { return thread_row() + kSide * a; }
  __device__ static int column(int b) { return thread_column() + kSide * b; }
  __device__ void clear() {
    for (int a = 0; a < kPer; ++a)
      for (int b = 0; b < kPer; ++b) x[a][b] = C(0);
  }
};

/// Loads rows [first, first + kTile) and columns [column, column + kStep) into shared memory, with
/// zeros beyond the matrix.
template <class C, int kTile, class T>
__device__ void load_rows(const HeadRows<T>& from, std::int64_t first, std::int64_t column,
                          C (&to)[kTile][kStep + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kStep; i += kSide * kSide) {
    const int r = i / kStep, c = i % kStep;
    const bool inside = first + r < from.rows && column + c < from.depth;
    to[r][c] =
        inside ? static_cast<C>(widen(from.data[(first + r) * from.stride + column + c])) : C(0);
  }
}

/// part = left right^T: element (r, c) is the product of rows i + r and j + c.
template <class C, int kTile, class T>
__device__ void multiply_rows(const HeadRows<T>& left, std::int64_t i, const HeadRows<T>& right,
                              std::int64_t j, AttentionShared<C, kTile>& shared,
                              TilePart<C, kTile>& part) {
  using Part = TilePart<C, kTile>;
  part.clear();
  for (std::int64_t e = 0; e < left.depth; e += kStep) {
    __syncthreads();  // the threads have read what the memory held before
    load_rows<C, kTile>(left, i, e, shared.left);
    load_rows<C, kTile>(right, j, e, shared.right);
    __syncthreads();
    for (int s = 0; s < kStep; ++s) {
      C l[Part::kPer], r[Part::kPer];
      for (int a = 0; a < Part::kPer; ++a) l[a] = shared.left[Part::row(a)][s];
      for (int b = 0; b < Part::kPer; ++b) r[b] = shared.right[Part::column(b)][s];
      for (int a = 0; a < Part::kPer; ++a)
        for (int b = 0; b < Part::kPer; ++b) part.x[a][b] += l[a] * r[b];
    }
  }
}

/// part += weights rows, or weights^T rows if `kTurned`: row (k) of the product belongs to row
/// `first` + k of `rows`, of which kTile columns from `column` on are taken. A pair that is not
/// seen is left out, so a NaN in its row does not matter; with `all` every pair is seen.
template <bool kTurned, class C, int kTile, class T>
__device__ void add_weighted(const HeadRows<T>& rows, std::int64_t first, std::int64_t column,
                             bool all, AttentionShared<C, kTile>& shared,
                             TilePart<C, kTile>& part) {
  using Part = TilePart<C, kTile>;
  auto& values = *reinterpret_cast<C(*)[kStep][kTile + 1]>(&shared.left);
  static_assert(sizeof(values) <= sizeof(shared.left));
  for (int k = 0; k < kTile; k += kStep) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kStep; i += kSide * kSide) {
      const int r = i / kTile, c = i % kTile;
      const bool inside = first + k + r < rows.rows && column + c < rows.depth;
      values[r][c] =
          inside ? static_cast<C>(widen(rows.data[(first + k + r) * rows.stride + column + c]))
                 : C(0);
    }
    __syncthreads();
    for (int s = 0; s < kStep; ++s) {
      for (int a = 0; a < Part::kPer; ++a) {
        const int r = Part::row(a);
        const C w = kTurned ? shared.weights[k + s][r] : shared.weights[r][k + s];
        if (!all && !(kTurned ? shared.seen[k + s][r] : shared.seen[r][k + s])) continue;
        for (int b = 0; b < Part::kPer; ++b) part.x[a][b] += w * values[s][Part::column(b)];
      }
    }
  }
}

/// Writes the part to shared.weights. Other threads may read it after a barrier.
template <class C, int kTile>
__device__ void publish(const TilePart<C, kTile>& part, AttentionShared<C, kTile>& shared) {
  using Part = TilePart<C, kTile>;
  __syncthreads();  // the previous weights have been read
#pragma unroll
  for (int a = 0; a < Part::kPer; ++a)
#pragma unroll
    for (int b = 0; b < Part::kPer; ++b)
      shared.weights[Part::row(a)][Part::column(b)] = part.x[a][b];
}

/// Stores a part whose rows begin at `row` and columns at `column`, times `factor`.
template <class C, int kTile>
__device__ void store_part(const TilePart<C, kTile>& part, AttentionShared<C, kTile>& shared,
                           const HeadsOut& out, std::int64_t b, std::int64_t head, std::int64_t row,
                           std::int64_t rows, std::int64_t column, std::int64_t columns, C factor) {
  using Part = TilePart<C, kTile>;
  if (!out.data) return;
  publish(part, shared);
  // This loop reads shared memory, so it need not be unrolled: a store is a switch over dtypes.
#pragma unroll 1
  for (int i = 0; i < Part::kPer * Part::kPer; ++i) {
    const int r = Part::row(i / Part::kPer), c = Part::column(i % Part::kPer);
    if (row + r < rows && column + c < columns)
      out.store(b, head, row + r, column + c, shared.weights[r][c] * factor);
  }
}

/// The tiles [first, end) of `kTile` positions that hold positions [from, to).
struct TileRange {
  std::int64_t first, end;
};
template <int kTile>
__device__ TileRange tiles_of(std::int64_t from, std::int64_t to) {
  const TileRange range{from / kTile, math::ceil_div(to, kTile)};
  return from < to ? range : TileRange{0, 0};
}

/// A block's part of the grid. Blocks are ordered by tile, then head, then chunk of columns.
struct BlockPlace {
  std::int64_t tile, b, head, column;
};
template <int kTile>
__device__ BlockPlace block_place(std::int64_t tiles, std::int64_t heads, std::int64_t chunks) {
  std::int64_t i = blockIdx.x;
  const std::int64_t chunk = i % chunks;
  i /= chunks;
  const std::int64_t tile = i % tiles;
  i /= tiles;
  return {tile, i / heads, i % heads, chunk * kTile};
}

}  // namespace firn::kernels::cuda
