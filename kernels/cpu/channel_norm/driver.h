// Cuts a tensor [n, c, l] for normalisation by channel on the CPU. The cut into tasks depends on
// shape and format alone. Tasks are cut into slabs: small matrices that fit in the cache. If
// channels are adjacent in memory, the columns of a slab are channels ("across"); else its columns
// are positions and its rows are channels. Elements are converted to C (float or double).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/cpu/rows/driver.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// The part of sample `i` in channels [channel, channel + channels) and positions [position, ...).
struct Slab {
  std::int64_t i, channel, channels, position, positions;
  std::int64_t before;  ///< elements of each of these channels that the task has visited
};

struct ChannelTask {
  std::int64_t unit, channel, channels;  ///< tasks of one unit differ in their channels
  std::int64_t first, last;              ///< samples
  std::int64_t position, positions;      ///< positions in every sample

  std::int64_t count() const { return (last - first) * positions; }  ///< elements of a channel
};

class ChannelCut {
 public:
  /// The layout of x decides the order. `others` are views of the same shape that are read or
  /// written along with x. If `per_sample`, samples stay separate.
  ChannelCut(const ConstView& x, bool per_sample, std::initializer_list<const ConstView*> others)
      : n(x.shape[0]), c(x.shape[1]), l(x.shape[2]) {
    across = c > 1 && (l == 1 || x.strides[1] < x.strides[2]);
    if (across && !per_sample) {
      // Samples and positions merge into one axis if the strides of every view allow it.
      bool one = true;
      const auto check = [&](const ConstView& v) {
        one = one && (l == 1 || n == 1 || v.strides[0] == l * v.strides[2]);
      };
      check(x);
      for (const ConstView* v : others)
        if (v->data) check(*v);
      if (one) {
        step_is_sample_ = l == 1;
        l *= n;
        n = std::min<std::int64_t>(n, 1);
      }
    }
    tile = across ? std::min(c, kMaxTile) : c;
    length_ = std::clamp<std::int64_t>(across ? kTask / std::max<std::int64_t>(tile, 1) : kTask, 1,
                                       std::max<std::int64_t>(l, 1));
    if (!across) tile = std::clamp<std::int64_t>(kTask / length_, 1, std::max<std::int64_t>(c, 1));
    segments_ = math::ceil_div(l, length_);
    together_ = 1;
    if (!per_sample && segments_ == 1)
      together_ = std::clamp<std::int64_t>(kTask / std::max<std::int64_t>(tile * l, 1), 1,
                                           std::max<std::int64_t>(n, 1));
    tiles_ = c == 0 ? 0 : math::ceil_div(c, tile);
    units = math::ceil_div(n, together_) * segments_;
  }

  std::int64_t n, c, l;  ///< sizes after samples and positions have merged, if they could
  bool across;
  std::int64_t tile;   ///< most channels of a task
  std::int64_t units;  ///< tasks of each channel; those of a sample follow one another

  std::int64_t tasks() const { return units * tiles_; }
  ChannelTask task(std::int64_t t) const {
    ChannelTask out = unit(t / tiles_);
    out.channel = t % tiles_ * tile;
    out.channels = std::min(tile, c - out.channel);
    return out;
  }
  /// Returns all channels of a unit.
  ChannelTask unit(std::int64_t u) const {
    ChannelTask out{u, 0, c, u / segments_ * together_, 0, u % segments_ * length_, 0};
    out.last = std::min(n, out.first + together_);
    out.positions = std::min(length_, l - out.position);
    return out;
  }

  /// Calls fn(slab) for slabs of at most kSlab elements that cover the task.
  template <class Fn>
  void slabs(const ChannelTask& t, Fn&& fn) const {
    const std::int64_t p_step = across ? std::clamp<std::int64_t>(kSlab / t.channels, 1, kMaxRows)
                                       : std::min(t.positions, kSlab);
    const std::int64_t c_step = across ? t.channels : std::max<std::int64_t>(1, kSlab / p_step);
    for (std::int64_t i = t.first; i < t.last; ++i) {
      for (std::int64_t k = 0; k < t.channels; k += c_step) {
        for (std::int64_t p = 0; p < t.positions; p += p_step) {
          fn(Slab{i, t.channel + k, std::min(c_step, t.channels - k), t.position + p,
                  std::min(p_step, t.positions - p), (i - t.first) * t.positions + p});
        }
      }
    }
  }

  static constexpr std::int64_t kSlab = 4096;
  /// Most rows of a slab across channels, because each column is summed one row after the other.
  static constexpr std::int64_t kMaxRows = 128;

 private:
  template <class C>
  friend class ChannelPlane;
  static constexpr std::int64_t kTask = 32768;   // elements
  static constexpr std::int64_t kMaxTile = 128;  // channels, if they are columns

  std::int64_t length_, segments_;  // positions of a unit, units of a sample
  std::int64_t together_;           // samples of a unit
  std::int64_t tiles_;              // tasks of a unit
  bool step_is_sample_ = false;     // true if positions are samples (l was 1)
};

/// A slab's elements as C, or the place to write them: element (row, column) is at data[row * pitch
/// + column].
template <class C, class Pointer = const C*>
struct SlabData {
  Pointer data;
  std::int64_t pitch, rows, columns;
  Pointer row(std::int64_t r) const { return data + r * pitch; }
};

/// Reads and writes a view slab by slab.
template <class C>
class ChannelPlane {
 public:
  ChannelPlane(const ChannelCut& cut, const ConstView& v)
      : data_(const_cast<void*>(v.data)), dtype_(v.dtype), across_(cut.across) {
    const std::int64_t position = cut.step_is_sample_ ? v.strides[0] : v.strides[2];
    sample_ = v.strides[0], channel_ = v.strides[1], position_ = position;
    direct_ = dtype_ == dtype_of<C> && column_stride() == 1;
  }
  ChannelPlane(const ChannelCut& cut, const View& v) : ChannelPlane(cut, ConstView(v)) {}

  /// Buffer elements that read() and open() need.
  std::int64_t room() const { return direct_ ? 0 : ChannelCut::kSlab; }

  SlabData<C> read(const Slab& s, C* buffer) const {
    const SlabData<C, C*> out = place(s, buffer);
    if (!direct_) load(s, out);
    return {out.data, out.pitch, out.rows, out.columns};
  }
  /// Returns the place to write a slab. It holds the current values if `filled`.
  SlabData<C, C*> open(const Slab& s, C* buffer, bool filled) const {
    const SlabData<C, C*> out = place(s, buffer);
    if (!direct_ && filled) load(s, out);
    return out;
  }
  void close(const Slab& s, const SlabData<C, C*>& values) const {
    if (direct_) return;
    if (dense(values)) {
      store_row<C>(values.data, at(s), dtype_, 1, values.rows * values.columns);
      return;
    }
    for (std::int64_t r = 0; r < values.rows; ++r)
      store_row<C>(values.row(r), advance(at(s), dtype_, r * row_stride()), dtype_, column_stride(),
                   values.columns);
  }

 private:
  std::int64_t row_stride() const { return across_ ? position_ : channel_; }
  std::int64_t column_stride() const { return across_ ? channel_ : position_; }
  void* at(const Slab& s) const {
    return advance(data_, dtype_, s.i * sample_ + s.channel * channel_ + s.position * position_);
  }
  SlabData<C, C*> place(const Slab& s, C* buffer) const {
    const std::int64_t rows = across_ ? s.positions : s.channels;
    const std::int64_t columns = across_ ? s.channels : s.positions;
    if (direct_) return {static_cast<C*>(at(s)), row_stride(), rows, columns};
    return {buffer, columns, rows, columns};
  }
  bool dense(const SlabData<C, C*>& s) const {
    return column_stride() == 1 && row_stride() == s.columns;
  }
  void load(const Slab& s, const SlabData<C, C*>& out) const {
    const auto copy = [&](const void* from, std::int64_t stride, std::int64_t n, C* to) {
      const C* values = load_row<C>(from, dtype_, stride, n, to);
      if (values != to) std::copy_n(values, n, to);
    };
    if (dense(out)) return copy(at(s), 1, out.rows * out.columns, out.data);
    for (std::int64_t r = 0; r < out.rows; ++r)
      copy(advance(at(s), dtype_, r * row_stride()), column_stride(), out.columns, out.row(r));
  }

  void* data_;
  DType dtype_;
  bool across_, direct_;
  std::int64_t sample_, channel_, position_;  // strides
};

/// Buffers for a slab of each of several planes, if any needs one. They start at different offsets
/// in a page: else loads would wait for unrelated stores (4K aliasing).
template <class C>
class SlabBuffers {
 public:
  template <class... Planes>
  explicit SlabBuffers(const Planes&... planes) : memory_(size(planes...)) {}
  C* operator[](int i) const { return memory_.data() ? memory_.data() + i * kPiece : nullptr; }

  /// Bytes of a slot that buffers for these planes take.
  template <class... Planes>
  static std::int64_t bytes(const Planes&... planes) {
    return slot_bytes_of<C>(size(planes...));
  }

 private:
  template <class... Planes>
  static std::int64_t size(const Planes&... planes) {
    return (... + planes.room()) == 0 ? 0 : static_cast<std::int64_t>(sizeof...(Planes)) * kPiece;
  }
  static constexpr std::int64_t kPiece = ChannelCut::kSlab + 272;

  RowBuffer<C> memory_;
};

// ---- Sums over the rows of slabs ----

/// Calls fn(n, k) for blocks of columns from k on. n is a std::integral_constant: 4 tiles, then 1,
/// and 0 for a tail shorter than a tile.
template <class C, class Fn>
void each_column_block(std::int64_t columns, Fn&& fn) {
  constexpr int kLanes = Tile<C>::size;
  std::int64_t k = 0;
  for (; k + 4 * kLanes <= columns; k += 4 * kLanes) fn(std::integral_constant<int, 4>(), k);
  for (; k + kLanes <= columns; k += kLanes) fn(std::integral_constant<int, 1>(), k);
  if (k < columns) fn(std::integral_constant<int, 0>(), k);
}

/// Returns tile u of a block of each_column_block; the row has `columns` elements.
template <class C, int kTiles>
Tile<C> load_block(const C* row, std::int64_t k, int u, std::int64_t columns) {
  if constexpr (kTiles == 0) return Tile<C>::load(row + k, columns - k);
  return Tile<C>::load(row + k + u * Tile<C>::size);
}
template <class C, int kTiles>
void store_block(Tile<C> t, C* row, std::int64_t k, int u, std::int64_t columns) {
  if constexpr (kTiles == 0) return t.store(row + k, columns - k);
  t.store(row + k + u * Tile<C>::size);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
