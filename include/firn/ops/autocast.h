// Autocast: inside the guard, ops of this thread choose the dtype that they run in.
//
//   {
//     const Autocast guard(f16);
//     loss = nn::cross_entropy(net(x), y);  // f32 parameters, 16-bit matrix products
//   }
//   optimizer.backward(loss);
//
// f32 parameters under f16 need a loss scale: set {.loss_scale = optim::LossScale::dynamic()} of
// the optimizer. It sets one on its own for f16 parameters only, and warns here. bf16 needs none.
//
// Put the forward pass and the loss inside the guard. backward() ignores the guard, so it and the
// step may be outside. The backward function of custom() runs under the guard that custom() was
// called in. The rule of each family of ops:
//
//   the guard's dtype   matmul, linear, mlp, attention, recurrent, conv1d, conv2d, conv3d and
//                       their transposed ones, the products of linear_cross_entropy, einsum,
//                       tensordot, dot, vecdot, bmm, addmm, baddbmm, bilinear
//   f32                 exp, exp2, expm1, log, log2, log10, log1p, tan, asin, acos, sinh, cosh,
//                       pow, rsqrt, square, reciprocal,
//                       softplus, softmax, log_softmax, layer_norm, rms_norm, sum, mean, var, norm,
//                       all losses
//   the widest dtype    add, sub, mul, div, outer, minimum, maximum, atan2, hypot, fmod, remainder,
//                       logaddexp, swiglu, prelu, comparisons, logical_and, logical_or,
//                       logical_xor, where, masked_fill, lerp, addcmul, cat, stack
//   the dtype given     all else: relu and other activations, max, min, dropout, rope, norms by
//                       channel (which may have f32 parameters), embedding and other indexing,
//                       views, pad; every in-place form keeps what it writes
//
// An f16 and a bf16 operand together give f32. A bias of attention() stays f32 if it is f32.
// clamp() by tensors follows the third row. f64 and integer tensors are not cast, so a gradient
// check has the same result inside and outside. Operands that still differ throw, as without a
// guard. An operand that already has the dtype is not cast: a model held in f16 is not cast again.
//
// Casts are recorded, so gradients come back in each tensor's own dtype. For an f32 operand of a
// matrix product no 16-bit gradient is made: the GEMM of its gradient reads 16-bit operands and
// adds f32 sums to the f32 gradient. No cast is cached: the 16-bit copy of a weight lives as long
// as the graph that saved it.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "firn/dtype.h"

namespace firn {

/// While alive, ops of this thread run as described above with `dtype`. Throws Error unless `dtype`
/// is f16, bf16 or f32. With f32, matrix products run in f32 for 16-bit operands too: use it inside
/// a 16-bit guard for a part of a model that needs the range. Guards nest: the destructor restores
/// the mode in which the guard was made. So end guards in the reverse order, in the same thread.
class Autocast {
 public:
  [[nodiscard]] explicit Autocast(DType dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  std::optional<DType> previous_;
};

/// While alive, ops of this thread run in the dtypes of their operands, and operands that differ
/// throw.
class NoAutocast {
 public:
  [[nodiscard]] NoAutocast() noexcept;
  ~NoAutocast();
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  std::optional<DType> previous_;
};

/// Returns the dtype of the innermost guard of this thread; nullopt if autocast is off, as it is
/// inside backward(). In the backward function of custom() it returns the dtype of the call of
/// custom().
std::optional<DType> autocast_dtype() noexcept;

/// An op that was executed.
struct TracedOp {
  std::string op;               ///< its name, such as "matmul"
  std::vector<DType> operands;  ///< operands that can take a gradient: no indices, no conditions
  DType output;                 ///< dtype of its result

  bool operator==(const TracedOp&) const = default;
};
/// Prints "linear f16 f16 f16 -> f16".
std::string to_string(const TracedOp& op);

/// While alive, lists every op that this thread executes outside backward(), including casts, in
/// the order of execution. Each of several traces lists the ops that run during its lifetime.
/// Traces may end in any order and in any thread.
class DtypeTrace {
 public:
  DtypeTrace();
  ~DtypeTrace();
  DtypeTrace(const DtypeTrace&) = delete;
  DtypeTrace& operator=(const DtypeTrace&) = delete;

  /// Returns the ops in the order of their execution.
  const std::vector<TracedOp>& ops() const noexcept;
  /// Returns one line per op.
  std::string text() const;

 private:
  class Recorder;
  std::shared_ptr<Recorder> recorder_;  ///< held by this object alone
};
/// Prints text().
std::ostream& operator<<(std::ostream& out, const DtypeTrace& trace);

}  // namespace firn
