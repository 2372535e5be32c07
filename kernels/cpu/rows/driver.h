// The CPU's driver of row computations (formulas: kernels/math/rows.h). A matrix [rows, n] is cut
// into blocks of whole rows by its shape alone. Within a row, a pass folds elements into a monoid
// and a map writes an output. Rows are converted to C (float or double).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "firn/view.h"
#include "kernels/cpu/device/blocks.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/cpu/device/streaming.h"
#include "kernels/cpu/device/tile.h"
#include "kernels/math/rows.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Blocks of rows. Each has about 16 Ki elements, and there are at most kMaxRowBlocks of them.
inline constexpr std::int64_t kMaxRowBlocks = 64;
struct RowBlocks {
  std::int64_t rows, per_block, count;

  RowBlocks(std::int64_t row_count, std::int64_t n) : rows(row_count) {
    per_block = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(n, 1));
    per_block = std::max(per_block, math::ceil_div(rows, kMaxRowBlocks));
    count = math::ceil_div(rows, per_block);
  }
  std::int64_t begin(std::int64_t block) const { return block * per_block; }
  std::int64_t end(std::int64_t block) const { return std::min(rows, (block + 1) * per_block); }
};

/// Returns the number of rows to take at once: one, or up to kRow elements of rows without gaps.
/// Those of up to Tile<C>::size elements are whole tiles if they are turned.
template <class C>
std::int64_t rows_together(std::int64_t n, std::int64_t stride) {
  constexpr std::int64_t kLanes = Tile<C>::size;
  if (stride != n || n <= 0 || n >= kRow) return 1;
  return n <= kLanes ? kRow / n / kLanes * kLanes : kRow / n;
}

/// The rows of an input [rows, n], as C.
template <class C>
class RowReader {
 public:
  explicit RowReader(const ConstView& v)
      : data_(v.data), dtype_(v.dtype), n_(v.shape[1]), stride_(v.strides[0]) {}
  /// Returns row i and the next ones: in place if they hold C, else converted into the buffer.
  const C* row(std::int64_t i, C* buffer, std::int64_t rows = 1) const {
    return load_row(advance(data_, dtype_, i * stride_), dtype_, 1, rows * n_, buffer);
  }
  std::int64_t together() const { return rows_together<C>(n_, stride_); }
  /// Returns element j of row i.
  C at(std::int64_t i, std::int64_t j) const {
    C value;
    return *load_row(advance(data_, dtype_, i * stride_ + j), dtype_, 1, 1, &value);
  }
  /// Distance from a row to the next, in elements, or 0 if rows are converted.
  std::int64_t ahead() const { return converts() ? 0 : stride_; }
  /// True if row() uses the buffer, which then needs size() elements.
  bool converts() const { return dtype_ != dtype_of<C>; }
  std::int64_t size() const { return n_; }

 private:
  const void* data_;
  DType dtype_;
  std::int64_t n_, stride_;
};

/// The rows of an output. open() gives the place to write, which holds the old row if `beta` is not
/// 0; close() stores it.
template <class C>
class RowWriter {
 public:
  RowWriter(const View& v, float beta)
      : data_(v.data),
        dtype_(v.dtype),
        n_(v.shape[1]),
        stride_(v.strides[0]),
        beta_(beta),
        past_(beta == 0 && converts() && n_ >= kRow &&
              outgrows_caches(v.numel() * static_cast<std::int64_t>(size_of(dtype_)))) {}
  C* open(std::int64_t i, C* buffer, std::int64_t rows = 1) const {
    void* row = advance(data_, dtype_, i * stride_);
    C* out = row_target(row, dtype_, 1, buffer);
    if (beta_ != 0 && out != row) load_row<C>(row, dtype_, 1, rows * n_, out);
    return out;
  }
  void close(std::int64_t i, const C* values, std::int64_t rows = 1) const {
    void* const row = advance(data_, dtype_, i * stride_);
    if (!past_) return store_row(values, row, dtype_, 1, rows * n_);
    alignas(64) char narrow[kRow * sizeof(C)];
    for (std::int64_t j = 0; j < n_; j += kRow) {
      const std::int64_t n = std::min(kRow, n_ - j);
      store_row(values + j, narrow, dtype_, 1, n);
      stream_bytes(narrow, advance(row, dtype_, j), n * static_cast<std::int64_t>(size_of(dtype_)));
    }
    end_stream();
  }
  float beta() const { return beta_; }
  std::int64_t together() const { return rows_together<C>(n_, stride_); }
  bool converts() const { return dtype_ != dtype_of<C>; }
  std::int64_t size() const { return n_; }
  /// True if rows that are written once should bypass the caches, in whole tiles.
  bool streams(std::int64_t rows) const {
    constexpr std::int64_t kBytes = sizeof(C);
    const auto whole = [](std::int64_t bytes) { return bytes % tiles::kTileBytes == 0; };
    return beta_ == 0 && !converts() && outgrows_caches(rows * n_ * kBytes) && whole(n_ * kBytes) &&
           whole(stride_ * kBytes) &&
           whole(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data_)));
  }

 private:
  void* data_;
  DType dtype_;
  std::int64_t n_, stride_;
  float beta_;
  bool past_;  ///< true if converted rows bypass the caches
};

/// Uninitialised memory for n numbers, accounted as workspace; none if n is 0.
template <class C>
class RowBuffer {
 public:
  explicit RowBuffer(std::int64_t n) {
    if (n > 0) memory_ = ScratchMemory(n * static_cast<std::int64_t>(sizeof(C)));
  }
  /// Makes a buffer for one row of a RowReader or RowWriter, with memory only if rows are
  /// converted.
  template <class Rows>
  explicit RowBuffer(const Rows& rows, std::int64_t together = 1)
      : RowBuffer(rows.converts() ? together * rows.size() : 0) {}
  C* data() const { return static_cast<C*>(memory_.data()); }

 private:
  ScratchMemory memory_;
};

/// Number of bytes of a slot that a RowBuffer for each of these takes.
template <class C, class... Rows>
std::int64_t row_buffer_bytes_of(std::int64_t together, const Rows&... rows) {
  return (... + slot_bytes_of<C>(rows.converts() ? together * rows.size() : 0));
}
template <class C, class... Rows>
std::int64_t row_buffer_bytes(const Rows&... rows) {
  return row_buffer_bytes_of<C>(1, rows...);
}

/// Returns the monoid sum of all lanes of `states`, in a fixed tree: the upper half of the lanes is
/// added to the lower half, and so on.
template <class C, int half = Tile<C>::size / 2, class States>
auto sum_lanes(const States& states) {
  if constexpr (half == 0) {
    return states.map([](Tile<C> v) { return v[0]; });
  } else {
    return [&]<int... lane>(std::integer_sequence<int, lane...>) {
      return sum_lanes<C, half / 2>(states + states.map([](Tile<C> v) {
        return Tile<C>(__builtin_shufflevector(v.v, v.v, ((lane + half) % Tile<C>::size)...));
      }));
    }
    (std::make_integer_sequence<int, Tile<C>::size>());
  }
}
/// Returns the sums of the first `used` lanes, in the same tree.
template <class C, class States>
auto sum_lanes(const States& states, int used) {
  using Members = std::array<Tile<C>, sizeof(States) / sizeof(Tile<C>)>;
  auto members = std::bit_cast<Members>(states);
  const auto neutral = std::bit_cast<Members>(States{});
  const Mask<C> held = tiles::mask_of<C>((1u << used) - 1);
  for (std::size_t i = 0; i < members.size(); ++i) members[i] = where(held, members[i], neutral[i]);
  return sum_lanes<C>(std::bit_cast<States>(members));
}

/// Returns the monoid sum of pass(in[j]...) over a row, in an order that depends on n alone. It
/// prefetches data `ahead` elements after the row into the L2 cache: otherwise memory would be idle
/// in all passes over a row but the first.
template <class C, class Pass, class... In>
auto reduce_row_fetching(std::int64_t n, std::int64_t ahead, const Pass& pass, const In*... in) {
  using V = Tile<C>;
  using States = decltype(pass(V::load(in)...));
  constexpr int kLanes = V::size, kUnroll = 4;  // independent chains
  const int tail = static_cast<int>(n % kLanes);
  if (n < kLanes) return sum_lanes<C>(pass(V::load(in, tail)...), tail);
  States acc[kUnroll];
  std::int64_t j = 0;
  for (; j + kUnroll * kLanes <= n; j += kUnroll * kLanes)
    for (int u = 0; u < kUnroll; ++u) {
      if (ahead > 0) (__builtin_prefetch(in + j + u * kLanes + ahead, 0, 2), ...);
      acc[u] = acc[u] + pass(V::load(in + j + u * kLanes)...);
    }
  for (; j + kLanes <= n; j += kLanes) acc[0] = acc[0] + pass(V::load(in + j)...);
  const auto whole = sum_lanes<C>((acc[0] + acc[1]) + (acc[2] + acc[3]));
  if (tail == 0) return whole;
  return whole + sum_lanes<C>(pass(V::load(in + j, tail)...), tail);
}

template <class C, class Pass, class... In>
auto reduce_row(std::int64_t n, const Pass& pass, const In*... in) {
  return reduce_row_fetching<C>(n, 0, pass, in...);
}

/// Returns the sums of pass(in[j * ld]...) over the n <= Tile<C>::size elements of rows side by
/// side, of which each lane has one. An element is added as reduce_row() adds it.
template <class C, class Pass, class... In>
auto reduce_turned(std::int64_t n, std::int64_t ld, const Pass& pass, const In*... in) {
  using V = Tile<C>;
  using States = decltype(pass(V::load(in)...));
  States acc[V::size];
  for (std::int64_t j = 0; j < n; ++j) {
    acc[j] = pass(V::load(in + j * ld)...);
    if (n == V::size) acc[j] = States{} + acc[j];
  }
  asm volatile("" : "+m"(acc));  // a product is rounded before it is added
  for (int half = V::size / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) acc[j] = acc[j] + acc[j + half];
  return acc[0];
}

/// out[j] = f(in[j]); returns the sum of out over the row, in an order that depends on n alone.
/// It prefetches as reduce_row_fetching() does. `out` may be `in`.
template <class C, class F>
C map_and_sum_row(std::int64_t n, std::int64_t ahead, C* out, const F& f, const C* in) {
  using V = Tile<C>;
  using States = math::Sum<V>;
  constexpr int kLanes = V::size, kUnroll = 4;
  const int tail = static_cast<int>(n % kLanes);
  States acc[kUnroll];
  const auto at = [&](std::int64_t j) {
    if (ahead > 0) __builtin_prefetch(in + j + ahead, 0, 2);
    const V v = f(V::load(in + j));
    v.store(out + j);
    return States{v};
  };
  std::int64_t j = 0;
  for (; j + kUnroll * kLanes <= n; j += kUnroll * kLanes)
    for (int u = 0; u < kUnroll; ++u) acc[u] = acc[u] + at(j + u * kLanes);
  for (; j + kLanes <= n; j += kLanes) acc[0] = acc[0] + at(j);
  const C whole = sum_lanes<C>((acc[0] + acc[1]) + (acc[2] + acc[3])).value;
  if (tail == 0) return whole;
  const V rest = f(V::load(in + j, tail));
  rest.store(out + j, tail);
  return whole + sum_lanes<C>(States{rest}, tail).value;
}

/// out[j] = f(in[j]...) by stores that bypass the caches, if RowWriter::streams().
template <class C, class F, class... In>
void stream_row(std::int64_t n, C* out, const F& f, const In*... in) {
  using V = Tile<C>;
  for (std::int64_t j = 0; j < n; j += V::size) {
    const V v = f(V::load(in + j)...);
    stream_bytes(&v.v, out + j, sizeof(v.v));
  }
  end_stream();
}

/// out[j] = beta*out[j] + f(in[j]...); beta is 0 or 1. `out` may be one of the inputs.
template <class C, class F, class... In>
void map_row(std::int64_t n, C* out, float beta, const F& f, const In*... in) {
  using V = Tile<C>;
  const int tail = static_cast<int>(n % V::size);
  std::int64_t j = 0;
  if (beta == 0) {
    for (; j + V::size <= n; j += V::size) f(V::load(in + j)...).store(out + j);
    if (tail > 0) f(V::load(in + j, tail)...).store(out + j, tail);
  } else {
    for (; j + V::size <= n; j += V::size)
      (V::load(out + j) + f(V::load(in + j)...)).store(out + j);
    if (tail > 0) (V::load(out + j, tail) + f(V::load(in + j, tail)...)).store(out + j, tail);
  }
}

/// Writes a [n] view as C to `buffer`, or `otherwise` n times if the view has no data. Does nothing
/// in a dry run.
template <class C>
void load_vector(const ConstView& v, std::int64_t n, double otherwise, C* buffer) {
  if (runtime::dry_run()) return;
  if (v.data) {
    const C* row = load_row(v.data, v.dtype, v.strides[0], n, buffer);
    if (row != buffer) std::copy_n(row, n, buffer);
  } else {
    std::fill_n(buffer, n, static_cast<C>(otherwise));
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
