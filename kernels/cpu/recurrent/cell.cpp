// Cells of recurrent networks on the CPU. They take a piece of one row's units at a time, in
// registers.
#include "kernels/sequence/recurrent.h"

#include <algorithm>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/tile.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kPiece = 256;  // units whose operands fit in the L1 cache

/// The operands of one piece, as numbers of C.
template <class C>
class Piece {
 public:
  static constexpr std::int64_t kMost = 24;  // operands

  Piece(std::int64_t row, std::int64_t first, std::int64_t count)
      : row_(row), first_(first), count_(count) {}

  std::int64_t count() const { return count_; }
  /// Returns units of block `block` of n columns; null if v has no data.
  const C* read(const ConstView& v, std::int64_t block = 0, std::int64_t n = 0) {
    if (!v.data) return nullptr;
    return load_row<C>(advance(v.data, v.dtype, at(v, block, n)), v.dtype, 1, count_, next());
  }
  /// Returns the place to write such units before finish(), which does not store them if v has no
  /// data.
  C* write(const View& v, std::int64_t block = 0, std::int64_t n = 0) {
    if (!v.data) return next();
    void* const to = advance(v.data, v.dtype, at(v, block, n));
    C* const target = row_target<C>(to, v.dtype, 1, next());
    written_[writes_++] = {target, to, v.dtype};
    return target;
  }
  void finish() const {
    for (int i = 0; i < writes_; ++i)
      store_row<C>(written_[i].values, written_[i].to, written_[i].dtype, 1, count_);
  }

 private:
  struct Written {
    const C* values;
    void* to;
    DType dtype;
  };
  template <class AnyView>
  std::int64_t at(const AnyView& v, std::int64_t block, std::int64_t n) const {
    return row_ * v.strides[0] + block * n + first_;
  }
  C* next() { return buffers_[used_++]; }

  std::int64_t row_, first_, count_;
  int used_ = 0, writes_ = 0;
  Written written_[kMost];
  alignas(64) C buffers_[kMost][kPiece];
};

/// Calls fn(piece, row) for all pieces of [rows, n].
template <class C, class Fn>
void each_piece(const Shape& shape, Fn&& fn) {
  const std::int64_t rows = shape[0], n = shape[1], pieces = math::ceil_div(n, kPiece);
  parallel_for(rows * pieces, rows * n * 32, [&](std::int64_t i) {
    const std::int64_t row = i / pieces, first = i % pieces * kPiece;
    Piece<C> piece(row, first, std::min(kPiece, n - first));
    fn(piece, row);
    piece.finish();
  });
}

bool has_ended(const ConstView& alive, std::int64_t row) {
  return alive.data && !alive.as<bool>()[row * alive.strides[0]];
}

template <class C>
using V = tiles::Tile<C>;
template <class C>
V<C> load(const C* p, std::int64_t k, std::int64_t count) {
  if (!p) return V<C>(0);
  return count - k >= V<C>::size ? V<C>::load(p + k) : V<C>::load(p + k, count - k);
}
template <class C>
void store(V<C> x, C* p, std::int64_t k, std::int64_t count) {
  count - k >= V<C>::size ? x.store(p + k) : x.store(p + k, count - k);
}

template <class Cell, class C>
void forward(const View& h, const CellForward& in) {
  const std::int64_t n = h.shape[1];
  each_piece<C>(h.shape, [&](Piece<C>& piece, std::int64_t row) {
    const C *const h_before = piece.read(in.h_before), *const c_before = piece.read(in.c_before);
    C* const h_out = piece.write(h);
    C* const c_out = Cell::kHasC ? piece.write(in.c) : nullptr;
    const std::int64_t count = piece.count();
    C* saved[Cell::kSaved + 1];
    for (int s = 0; s < Cell::kSaved; ++s) saved[s] = piece.write(in.saved, s, n);
    if (has_ended(in.alive, row)) {
      h_before ? std::copy_n(h_before, count, h_out) : std::fill_n(h_out, count, C(0));
      if (Cell::kHasC) std::copy_n(c_before, count, c_out);
      for (int s = 0; s < Cell::kSaved; ++s) std::fill_n(saved[s], count, C(0));
      return;
    }
    const C *x[Cell::kGates], *recurrent[Cell::kGates];
    for (int g = 0; g < Cell::kGates; ++g) {
      x[g] = piece.read(in.x, g, n);
      recurrent[g] = piece.read(in.recurrent, g, n);
    }
    for (std::int64_t k = 0; k < count; k += V<C>::size) {
      typename Cell::template Step<V<C>> step;
      for (int g = 0; g < Cell::kGates; ++g) {
        step.x[g] = load(x[g], k, count);
        step.recurrent[g] = load(recurrent[g], k, count);
      }
      step.h = load(h_before, k, count);
      step.c = load(c_before, k, count);
      Cell::forward(step);
      store(step.h, h_out, k, count);
      if constexpr (Cell::kHasC) store(step.c, c_out, k, count);
      for (int s = 0; s < Cell::kSaved; ++s) store(step.saved[s], saved[s], k, count);
    }
  });
}

template <class Cell, class C>
void backward(const View& dh, const CellBackward& in) {
  const std::int64_t n = dh.shape[1];
  each_piece<C>(dh.shape, [&](Piece<C>& piece, std::int64_t row) {
    const std::int64_t count = piece.count();
    const C* const dy = piece.read(in.dy);
    C* const dh_both = piece.write(dh);
    C *dx[Cell::kGates], *drecurrent[Cell::kGates];
    for (int g = 0; g < Cell::kGates; ++g) {
      dx[g] = piece.write(in.dx, g, n);
      if (Cell::kTwoGates) drecurrent[g] = piece.write(in.drecurrent, g, n);
    }
    if (has_ended(in.alive, row)) {
      if (dy)
        for (std::int64_t k = 0; k < count; ++k) dh_both[k] += dy[k];
      for (int g = 0; g < Cell::kGates; ++g) {
        std::fill_n(dx[g], count, C(0));
        if (Cell::kTwoGates) std::fill_n(drecurrent[g], count, C(0));
      }
      return;
    }
    const C* saved[Cell::kSaved + 1];
    for (int s = 0; s < Cell::kSaved; ++s) saved[s] = piece.read(in.saved, s, n);
    const C *const h = piece.read(in.h), *const h_before = piece.read(in.h_before);
    const C* const c = Cell::kHasC ? piece.read(in.c) : nullptr;
    const C* const c_before = Cell::kHasC ? piece.read(in.c_before) : nullptr;
    C* const dc = Cell::kHasC ? piece.write(in.dc) : nullptr;
    for (std::int64_t k = 0; k < count; k += V<C>::size) {
      typename Cell::template Gradient<V<C>> g;
      for (int s = 0; s < Cell::kSaved; ++s) g.saved[s] = load(saved[s], k, count);
      g.h = load(h, k, count);
      g.h_before = load(h_before, k, count);
      g.c = load(c, k, count);
      g.c_before = load(c_before, k, count);
      g.dh = load<C>(dh_both, k, count) + load(dy, k, count);
      g.dc = load<C>(dc, k, count);
      Cell::backward(g);
      store(g.dh, dh_both, k, count);
      if constexpr (Cell::kHasC) store(g.dc, dc, k, count);
      for (int i = 0; i < Cell::kGates; ++i) {
        store(g.dx[i], dx[i], k, count);
        if constexpr (Cell::kTwoGates) store(g.drecurrent[i], drecurrent[i], k, count);
      }
    }
  });
}

template <class C>
void take_gradient(const View& dh, const ConstView& dy, const ConstView& alive, const View& out) {
  each_piece<C>(dh.shape, [&](Piece<C>& piece, std::int64_t row) {
    const C* const more = piece.read(dy);
    C *const kept = piece.write(dh), *const taken = piece.write(out);
    const bool ended = has_ended(alive, row);
    for (std::int64_t k = 0; k < piece.count(); ++k) {
      const C sum = kept[k] + more[k];
      taken[k] = ended ? C(0) : sum;
      kept[k] = ended ? sum : C(0);
    }
  });
}

}  // namespace

void recurrent_forward(RecurrentCell cell, const View& h, const CellForward& in, Stream) {
  switch (cell) {
#define FIRN_CASE(name, Cell) \
  case RecurrentCell::name:   \
    return h.dtype == DType::f64 ? forward<Cell, double>(h, in) : forward<Cell, float>(h, in);
    FIRN_RECURRENT_CELLS(FIRN_CASE)
#undef FIRN_CASE
  }
}

void recurrent_backward(RecurrentCell cell, const View& dh, const CellBackward& in, Stream) {
  switch (cell) {
#define FIRN_CASE(name, Cell) \
  case RecurrentCell::name:   \
    return dh.dtype == DType::f64 ? backward<Cell, double>(dh, in) : backward<Cell, float>(dh, in);
    FIRN_RECURRENT_CELLS(FIRN_CASE)
#undef FIRN_CASE
  }
}

void recurrent_take_gradient(const View& dh, const ConstView& dy, const ConstView& alive,
                             const View& out, Stream) {
  dh.dtype == DType::f64 ? take_gradient<double>(dh, dy, alive, out)
                         : take_gradient<float>(dh, dy, alive, out);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
