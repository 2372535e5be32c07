// Contract of the cells of recurrent networks: one step of a batch of sequences. The caller
// computes the products. Every view is [batch, n] with stride 1 on its last axis; `T` is one
// floating dtype, and `C` its compute dtype.
#pragma once

#include "firn/ops/recurrent_cell.h"
#include "kernels/dispatch.h"
#include "kernels/math/sequence/recurrent.h"

namespace firn::kernels {

/// Gates of a cell, and the values that its backward pass needs in addition to the states.
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
  ConstView recurrent;  ///< [batch, gates n], C: products with the previous state
  ConstView h_before;   ///< [batch, n], T; zeros if it has no data
  ConstView c_before;   ///< [batch, n], C; without data if the cell has none
  ConstView alive;      ///< [batch], bool: true until the sequence ends; or no data
  View saved;           ///< [batch, saved n], T; without data if nothing is saved
  View c;               ///< [batch, n], C
};
struct CellBackward {
  ConstView saved, h_before, c_before, c, alive;  ///< as in CellForward
  ConstView h;                                    ///< [batch, n], T
  /// [batch, n], T: added to dh if it has data.
  ConstView dy;
  View dc;          ///< [batch, n], C: gradient of the next state, then of the previous one
  View dx;          ///< [batch, gates n], T
  View drecurrent;  ///< [batch, gates n], T, if the cell has two_gates; else dx serves
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
/// dh [batch, n], C, is the gradient of the state after the step; then that of the state before,
/// without what its product adds to it.
void recurrent_backward(RecurrentCell cell, const View& dh, const CellBackward& in, Stream stream);
/// Splits the gradient dh (C) + dy (T) of a projected state [batch, n]. For a sequence that has not
/// ended it goes to `out` (T), and dh becomes 0. For the others it stays in dh, and `out` is 0.
void recurrent_take_gradient(const View& dh, const ConstView& dy, const ConstView& alive,
                             const View& out, Stream stream);

}  // namespace cpu

FIRN_KERNEL(recurrent_forward)
FIRN_KERNEL(recurrent_backward)
FIRN_KERNEL(recurrent_take_gradient)

}  // namespace firn::kernels
