// One layer of a recurrent network over a whole sequence, as one op. nn/layers/recurrent.h has the
// layers.
#pragma once

#include "firn/ops/recurrent_cell.h"
#include "firn/tensor.h"

namespace firn {

struct RecurrentOptions {
  Tensor bias = {};        ///< [gates n]: added to the products with the state
  Tensor projection = {};  ///< lstm only, [p, n]: h = projection (o tanh(c)) (Sak et al. 2014)
  Tensor h = {};           ///< [batch, p]: the state before the first step; undefined: zeros
  Tensor c = {};           ///< lstm only, [batch, n]; undefined: zeros
  /// [batch], i64 or i32: steps of each sequence, 0 to `steps`. The others are padding. Undefined:
  /// all. On a CUDA device a number out of range counts as the nearest one.
  Tensor lengths = {};
  bool reverse = false;  ///< runs from the last step to the first
};

/// Results of recurrent() and its layers.
struct RecurrentResult {
  Tensor output;  ///< [steps, batch, p]: h of each step; 0 if the sequence has ended
  Tensor h;       ///< [batch, p]: the state after the last step
  Tensor c;       ///< lstm: [batch, n]; else undefined
};

/// The steps of one layer in one direction. gates [steps, batch, gates n] holds the products of all
/// inputs, with their bias: linear(x, weight, bias). weight [gates n, p] multiplies the state; p is
/// n unless there is a projection. The order of gates is that of RecurrentCell, as in PyTorch.
///
/// The state c, sums and activations are f32 (f64 for f64 operands). h and the values that the
/// backward pass reads are rounded to gates' dtype once. Under autocast the op runs in the guard's
/// dtype. Weight gradients are one product over all steps. If lengths are given, results and
/// gradients of a sequence equal those of a call with it alone, and padding gets the gradient 0.
///
/// Throws Error if shapes or devices do not fit together, or dtypes, except those of h and c.
RecurrentResult recurrent(RecurrentCell cell, const Tensor& gates, const Tensor& weight,
                          const RecurrentOptions& options = {});

}  // namespace firn
