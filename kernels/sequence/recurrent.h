// Contract of the cells of recurrent networks: one step of a batch of sequences. The products are
// the caller's. Every view is [batch, n] with stride 1 on its last axis; `T` is one floating dtype,
// and `C` its compute dtype.
#pragma once

#include "firn/ops/recurrent_cell.h"
#include "kernels/dispatch.h"
#include "kernels/math/sequence/recurrent.h"

namespace firn::kernels {

/// Gates of a cell, and the values that its backward pass needs beside the states.
struct CellSizes {
  int gates, saved;
  bool has_c, two_gates;
};
inline CellSizes cell_sizes(RecurrentCell cell) {
  switch (cell) {
#define FIRN_CASE(name, Cell) \
  case RecurrentCell::name:   \
    return {Cell::kGates, Cell::kSaved, Cell::kHasC, Cell::kTwoGates};
    FIRN_RECURRENT_CELLS(FIRN_CASE)
#undef FIRN_CASE
  }
  return {};
}

/// A sequence that has ended keeps its state, and no gradient enters its gates.
struct CellForward {
  ConstView x;          ///< [batch, gates n], T: products with the input
  ConstView recurrent;  ///< [batch, gates n], C: products with the state before
  ConstView h_before;   ///< [batch, n], T; without data: zeros
  ConstView c_before;   ///< [batch, n], C; without data if the cell has none
  ConstView alive;      ///< [batch], bool: whose sequence has not ended; without data: all
  View saved;           ///< [batch, saved n], T; without data if nothing is saved
  View c;               ///< [batch, n], C
};
struct CellBackward {
  ConstView saved, h_before, c_before, c, alive;  ///< as above
  ConstView h;                                    ///< [batch, n], T
  /// [batch, n], T: added to dh; without data: nothing is.
  ConstView dy;
  View dc;          ///< [batch, n], C: of the state after, then of the one before
  View dx;          ///< [batch, gates n], T
  View drecurrent;  ///< likewise, if the cell has two_gates; else they are dx
};

namespace detail {
inline double bytes_of(const CellForward& f) noexcept {
  double sum = 0;
  for (const ConstView& v : {f.x, f.recurrent, f.h_before, f.c_before, f.alive}) sum += bytes_of(v);
  return sum + bytes_of(f.saved) + bytes_of(f.c);
}
inline double bytes_of(const CellBackward& b) noexcept {
  double sum = 0;
  for (const ConstView& v : {b.saved, b.h_before, b.c_before, b.c, b.alive, b.h, b.dy})
    sum += bytes_of(v);
  for (const View& v : {b.dc, b.dx, b.drecurrent}) sum += bytes_of(v);
  return sum;
}
}  // namespace detail

namespace cpu {

/// h [batch, n], T: the state after the step.
void recurrent_forward(RecurrentCell cell, const View& h, const CellForward& in, Stream stream);
/// dh [batch, n], C: the gradient of the state after the step; then that of the state before, but
/// for what its product adds to it.
void recurrent_backward(RecurrentCell cell, const View& dh, const CellBackward& in, Stream stream);
/// For a projected state [batch, n], whose gradient is dh (C) + dy (T): of a sequence that has not
/// ended it goes to `out` (T), and dh becomes 0. Of the others it stays in dh, and `out` is 0.
void recurrent_take_gradient(const View& dh, const ConstView& dy, const ConstView& alive,
                             const View& out, Stream stream);

}  // namespace cpu

FIRN_KERNEL(recurrent_forward)
FIRN_KERNEL(recurrent_backward)
FIRN_KERNEL(recurrent_take_gradient)

}  // namespace firn::kernels
