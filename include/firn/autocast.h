// Autocast: inside the guard, ops of this thread choose the dtype that they run in.
//
//   {
//     const Autocast guard(f16);
//     loss = nn::cross_entropy(net(x), y);  // f32 parameters, 16-bit matrix products
//   }
//   optimizer.backward(loss);
//
// The forward pass and the loss belong inside, backward and the step need not: backward() ignores
// the guard. What each op does stands beside the op; by family:
//
//   the guard's dtype   matmul, linear, mlp, conv1d, conv2d, conv_transpose2d
//   f32                 exp, log, pow, rsqrt, square, reciprocal, softplus, softmax, log_softmax,
//                       layer_norm, rms_norm, sum, mean, var, norm, all losses
//   the widest dtype    add, sub, mul, div, minimum, maximum, comparisons, where, cat, stack
//   the dtype given     all else: relu and other activations, max, min, dropout, norms by channel
//                       (which may have f32 parameters), embedding and other indexing, views, pad;
//                       every in-place form keeps what it writes
//
// f16 beside bf16 makes f32. Tensors of f64 and of integers are left alone, so that a gradient
// check means the same inside and outside; operands that still differ throw, as without a guard. An
// operand that has the dtype already is not touched: a model held in f16 is not cast again.
//
// Casts are recorded, so gradients come back in each tensor's own dtype. The f32 operands of a
// matrix product get theirs directly: the product that makes the gradient of an f32 weight reads
// 16-bit operands and adds f32 sums to the f32 gradient, without rounding in between. No cast is
// kept for the next use: what a weight is cast to lives as long as the graph that saved it.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "firn/dtype.h"

namespace firn {

/// While alive, ops of this thread run as above with `dtype`, which is f16, bf16 or f32; throws
/// Error for any other. With f32 matrix products run in f32 whatever comes: for a part of a model
/// that needs the range, inside a guard of 16 bits. Guards nest; the end of one, also by an
/// exception, restores the one around it.
class Autocast {
 public:
  explicit Autocast(DType dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  std::optional<DType> previous_;
};

/// While alive, ops of this thread run in the dtypes that come, and operands that differ throw.
class NoAutocast {
 public:
  NoAutocast() noexcept;
  ~NoAutocast();
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  std::optional<DType> previous_;
};

/// The dtype of the innermost guard of this thread; nothing where autocast is off, as it is inside
/// of backward().
std::optional<DType> autocast_dtype() noexcept;

/// One op, as it ran.
struct TracedOp {
  std::string op;
  std::vector<DType> operands;  ///< those that can take a gradient: no indices, no conditions
  DType output;

  bool operator==(const TracedOp&) const = default;
};
/// Prints "linear f16 f16 f16 -> f16".
std::string to_string(const TracedOp& op);

/// While alive, lists every op of this thread outside of backward(), casts among them, in the order
/// of execution. Traces nest: each lists what runs while it lives.
class DtypeTrace {
 public:
  DtypeTrace();
  ~DtypeTrace();
  DtypeTrace(const DtypeTrace&) = delete;
  DtypeTrace& operator=(const DtypeTrace&) = delete;

  const std::vector<TracedOp>& ops() const noexcept;
  /// One line per op.
  std::string text() const;

 private:
  class Recorder;
  std::unique_ptr<Recorder> recorder_;
};
/// Prints text().
std::ostream& operator<<(std::ostream& out, const DtypeTrace& trace);

}  // namespace firn
