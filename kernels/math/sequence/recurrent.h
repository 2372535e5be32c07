// Cells of recurrent networks: one step of one unit. V is a number or a tile. The order of the
// gates, and the bias that a reset gate scales, are PyTorch's.
#pragma once

#include "kernels/math/activation.h"

namespace firn::math {

/// Inputs and results of a cell in the forward pass.
template <class V, int kGates, int kSaved>
struct CellStep {
  V x[kGates];          ///< products with the input, one for each gate
  V recurrent[kGates];  ///< products with the state before
  V h, c;               ///< the state before, then after
  V saved[kSaved > 0 ? kSaved : 1];
};
/// Inputs and results of a cell in the backward pass.
template <class V, int kGates, int kSaved>
struct CellGradient {
  V saved[kSaved > 0 ? kSaved : 1];
  V h, h_before, c, c_before;
  V dh, dc;  ///< gradients of the state after; then dc before, and dh without the gates' part
  V dx[kGates], drecurrent[kGates];
};

/// h = act(x + r h') (Elman 1990).
template <class Activation>
struct SimpleCell {
  static constexpr int kGates = 1, kSaved = 0;
  static constexpr bool kHasC = false;      ///< the state has a second part
  static constexpr bool kTwoGates = false;  ///< drecurrent differs from dx
  template <class V>
  using Step = CellStep<V, kGates, kSaved>;
  template <class V>
  using Gradient = CellGradient<V, kGates, kSaved>;

  template <class V>
  FIRN_HD static void forward(Step<V>& s) {
    s.h = Activation::f(s.x[0] + s.recurrent[0], Args{});
  }
  template <class V>
  FIRN_HD static void backward(Gradient<V>& g) {
    g.dx[0] = Activation::df(g.dh, g.h, Args{});
    g.dh = V(0);
  }
};

/// Gates r, z and n; h = (1 - z) n + z h' (Cho et al. 2014).
struct GruCell {
  static constexpr int kGates = 3, kSaved = 4;
  static constexpr bool kHasC = false, kTwoGates = true;
  template <class V>
  using Step = CellStep<V, kGates, kSaved>;
  template <class V>
  using Gradient = CellGradient<V, kGates, kSaved>;

  template <class V>
  FIRN_HD static void forward(Step<V>& s) {
    const V r = logistic(s.x[0] + s.recurrent[0]), z = logistic(s.x[1] + s.recurrent[1]);
    const V n = tanh(s.x[2] + r * s.recurrent[2]);
    s.saved[0] = r;
    s.saved[1] = z;
    s.saved[2] = n;
    s.saved[3] = s.recurrent[2];
    s.h = n + z * (s.h - n);
  }
  template <class V>
  FIRN_HD static void backward(Gradient<V>& g) {
    const V r = g.saved[0], z = g.saved[1], n = g.saved[2];
    const V dn = g.dh * (V(1) - z) * ((V(1) - n) * (V(1) + n));
    g.dx[0] = g.drecurrent[0] = dn * g.saved[3] * (r * (V(1) - r));
    g.dx[1] = g.drecurrent[1] = g.dh * (g.h_before - n) * (z * (V(1) - z));
    g.dx[2] = dn;
    g.drecurrent[2] = dn * r;
    g.dh = g.dh * z;
  }
};

/// Gates i, f, g and o; c = f c' + i g, h = o tanh(c) (Hochreiter & Schmidhuber 1997, Gers et al.
/// 2000).
struct LstmCell {
  static constexpr int kGates = 4, kSaved = 4;
  static constexpr bool kHasC = true, kTwoGates = false;
  template <class V>
  using Step = CellStep<V, kGates, kSaved>;
  template <class V>
  using Gradient = CellGradient<V, kGates, kSaved>;

  template <class V>
  FIRN_HD static void forward(Step<V>& s) {
    const V i = logistic(s.x[0] + s.recurrent[0]), f = logistic(s.x[1] + s.recurrent[1]);
    const V g = tanh(s.x[2] + s.recurrent[2]), o = logistic(s.x[3] + s.recurrent[3]);
    s.saved[0] = i;
    s.saved[1] = f;
    s.saved[2] = g;
    s.saved[3] = o;
    s.c = f * s.c + i * g;
    s.h = o * tanh(s.c);
  }
  template <class V>
  FIRN_HD static void backward(Gradient<V>& d) {
    const V i = d.saved[0], f = d.saved[1], g = d.saved[2], o = d.saved[3];
    const V t = tanh(d.c);
    const V dc = d.dc + d.dh * o * ((V(1) - t) * (V(1) + t));
    d.dx[0] = dc * g * (i * (V(1) - i));
    d.dx[1] = dc * d.c_before * (f * (V(1) - f));
    d.dx[2] = dc * i * ((V(1) - g) * (V(1) + g));
    d.dx[3] = d.dh * t * (o * (V(1) - o));
    d.dc = dc * f;
    d.dh = V(0);
  }
};

/// Every cell: its name in RecurrentCell (firn/ops/recurrent_cell.h), and its struct.
#define FIRN_RECURRENT_CELLS(X)             \
  X(rnn_tanh, math::SimpleCell<math::Tanh>) \
  X(rnn_relu, math::SimpleCell<math::Relu>) \
  X(gru, math::GruCell)                     \
  X(lstm, math::LstmCell)

}  // namespace firn::math
