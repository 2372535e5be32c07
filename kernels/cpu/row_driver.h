// The CPU's driver of row computations (formulas: kernels/math/rows.h). A matrix [rows, n] is cut
// into blocks of whole rows by its shape alone; within a row, a pass folds elements into a monoid
// and a map writes an output. Rows are handled as C (float or double), whatever their dtype.
#pragma once

#include <algorithm>
#include <cstdint>

#include "firn/storage.h"
#include "firn/view.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile.h"

namespace firn::kernels::cpu {

/// Blocks of rows: about 16 Ki elements each, at most kMaxRowBlocks of them.
inline constexpr std::int64_t kMaxRowBlocks = 64;
struct RowBlocks {
  std::int64_t rows, per_block, count;

  RowBlocks(std::int64_t row_count, std::int64_t n) : rows(row_count) {
    per_block = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(n, 1));
    per_block = std::max(per_block, (rows + kMaxRowBlocks - 1) / kMaxRowBlocks);
    count = (rows + per_block - 1) / per_block;
  }
  std::int64_t begin(std::int64_t block) const { return block * per_block; }
  std::int64_t end(std::int64_t block) const { return std::min(rows, (block + 1) * per_block); }
};

/// The rows of an input [rows, n], as C.
template <class C>
class RowReader {
 public:
  explicit RowReader(const ConstView& v)
      : data_(v.data), dtype_(v.dtype), n_(v.shape[1]), stride_(v.strides[0]) {}
  /// Row i: where it lies if it holds C, else converted into buffer[0 .. n).
  const C* row(std::int64_t i, C* buffer) const {
    return load_row(advance(data_, dtype_, i * stride_), dtype_, 1, n_, buffer);
  }
  /// Whether row() uses the buffer, and how long that must be.
  bool converts() const { return dtype_ != dtype_of<C>; }
  std::int64_t size() const { return n_; }

 private:
  const void* data_;
  DType dtype_;
  std::int64_t n_, stride_;
};

/// The rows of an output: open() gives where to write, holding the old row if `beta` is not 0;
/// close() stores it.
template <class C>
class RowWriter {
 public:
  RowWriter(const View& v, float beta)
      : data_(v.data), dtype_(v.dtype), n_(v.shape[1]), stride_(v.strides[0]), beta_(beta) {}
  C* open(std::int64_t i, C* buffer) const {
    void* row = advance(data_, dtype_, i * stride_);
    C* out = row_target(row, dtype_, 1, buffer);
    if (beta_ != 0 && out != row) load_row<C>(row, dtype_, 1, n_, out);
    return out;
  }
  void close(std::int64_t i, const C* values) const {
    store_row(values, advance(data_, dtype_, i * stride_), dtype_, 1, n_);
  }
  float beta() const { return beta_; }
  bool converts() const { return dtype_ != dtype_of<C>; }
  std::int64_t size() const { return n_; }

 private:
  void* data_;
  DType dtype_;
  std::int64_t n_, stride_;
  float beta_;
};

/// Uninitialised memory for n numbers, accounted as workspace; none where n is 0.
template <class C>
class RowBuffer {
 public:
  explicit RowBuffer(std::int64_t n) {
    if (n > 0)
      memory_ = Storage::allocate(static_cast<std::size_t>(n) * sizeof(C), Device::cpu(),
                                  Owner::workspace);
  }
  /// For one row of a RowReader or RowWriter: memory only where the rows are converted.
  template <class Rows>
  explicit RowBuffer(const Rows& rows) : RowBuffer(rows.converts() ? rows.size() : 0) {}
  C* data() const { return memory_ ? static_cast<C*>(memory_->data()) : nullptr; }

 private:
  Ref<Storage> memory_;
};

/// The monoid sum of pass(in[j]...) over a row, in an order that depends on n alone.
template <class C, class Pass, class... In>
auto reduce_row(std::int64_t n, const Pass& pass, const In*... in) {
  using V = Tile<C>;
  using States = decltype(pass(V::load(in)...));
  constexpr int kLanes = V::size, kUnroll = 4;  // chains that run side by side
  States acc[kUnroll];
  std::int64_t j = 0;
  for (; j + kUnroll * kLanes <= n; j += kUnroll * kLanes)
    for (int u = 0; u < kUnroll; ++u) acc[u] = acc[u] + pass(V::load(in + j + u * kLanes)...);
  for (; j + kLanes <= n; j += kLanes) acc[0] = acc[0] + pass(V::load(in + j)...);
  const States whole = (acc[0] + acc[1]) + (acc[2] + acc[3]);
  const int tail = static_cast<int>(n - j);
  const States merged = tail > 0 ? whole + pass(V::load(in + j, tail)...) : whole;

  using State = decltype(whole.map([](V v) { return v[0]; }));
  State lanes[kLanes];
  for (int k = 0; k < kLanes; ++k)
    lanes[k] = (k < tail ? merged : whole).map([k](V v) { return v[k]; });
  const int used = n < kLanes ? tail : kLanes;
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half && k + half < used; ++k) lanes[k] = lanes[k] + lanes[k + half];
  return lanes[0];
}

/// out[j] = beta*out[j] + f(in[j]...); beta is 0 or 1. `out` may be one of the inputs.
template <class C, class F, class... In>
void map_row(std::int64_t n, C* out, float beta, const F& f, const In*... in) {
  using V = Tile<C>;
  std::int64_t j = 0;
  if (beta == 0) {
    for (; j + V::size <= n; j += V::size) f(V::load(in + j)...).store(out + j);
    if (j < n) f(V::load(in + j, n - j)...).store(out + j, n - j);
  } else {
    for (; j + V::size <= n; j += V::size)
      (V::load(out + j) + f(V::load(in + j)...)).store(out + j);
    if (j < n) (V::load(out + j, n - j) + f(V::load(in + j, n - j)...)).store(out + j, n - j);
  }
}

/// A [n] view as C in `buffer`, or `otherwise` n times where the view has no data.
template <class C>
void load_vector(const ConstView& v, std::int64_t n, double otherwise, C* buffer) {
  if (v.data) {
    const C* row = load_row(v.data, v.dtype, v.strides[0], n, buffer);
    if (row != buffer) std::copy_n(row, n, buffer);
  } else {
    std::fill_n(buffer, n, static_cast<C>(otherwise));
  }
}

}  // namespace firn::kernels::cpu
