// Checks on operands, and common names, for all files of ops.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>

#include "autograd/node.h"
#include "autograd/op_attributes.h"
#include "base/check.h"
#include "firn/ops/ops.h"
#include "firn/runtime/spans.h"
#include "firn/runtime/stream.h"
#include "ops/autocast.h"

namespace firn::ops {

using autograd::Backward;
using autograd::record;
using autograd::Saved;

/// Largest size of an axis of an image, padding included. CUDA kernels count positions in 32 bits,
/// and products of two such numbers fit in 64 bits.
inline constexpr std::int64_t kMostPositions = std::numeric_limits<std::int32_t>::max();

/// Returns the stream on which the op's kernels run.
inline Stream stream_of(const Tensor& t) noexcept { return current_stream(t.device()); }

/// Returns the tensors of a list in braces.
inline std::span<const Tensor> span_of(std::initializer_list<Tensor> list) noexcept {
  return {list.begin(), list.size()};
}

/// Throws unless the dtype of x supports arithmetic.
void require_computed(const char* op, const Tensor& x);

/// Notifies profiles that an op has ended that calls neither record() nor unrecorded().
inline void ended(const char* op) noexcept {
  if (runtime::recording_spans()) [[unlikely]]
    runtime::end_operation(op);
}

/// The memory format of an elementwise result: that of the first operand with the result's shape.
template <class... Operands>
MemoryFormat result_format(const Shape& shape, const Operands&... operands) noexcept {
  MemoryFormat format = MemoryFormat::contiguous;
  const auto takes = [&](const Tensor& t) {
    if (t.shape() != shape) return false;
    format = format_of(shape, t.strides());
    return true;
  };
  (takes(operands) || ...);
  return format;
}

/// Throws Error naming `op` and both operands if dtypes or devices differ. An op under autocast
/// calls it with the operands after casts; without `casts` no autocast casts them.
void require_same(const char* op, const Tensor& a, const Tensor& b, bool casts = true);
/// Checks the factors of a product before casts: under autocast, dtypes may differ.
void require_factors(const char* op, const Tensor& a, const Tensor& b);
/// Throws unless `dtype` can hold `number`. Integer dtypes hold the integers of their range, but
/// i64 only those up to 2^53, which double represents exactly. bool holds 0 and 1. Floating dtypes
/// hold all numbers but finite ones that would become infinite.
void require_holds(const char* op, DType dtype, double number);
/// Throws unless a tensor can have `rank` axes; the message shows `parts`, which give the axes.
template <class... Parts>
void require_rank(const char* op, int rank, const Parts&... parts) {
  if (rank <= kMaxRank) [[likely]]
    return;
  std::string from;
  ((from += (from.empty() ? "" : ", ") + describe(parts)), ...);
  FIRN_CHECK(false, op, "merge axes with reshape",
             "the result would have {} axes, more than {}: {}", rank, kMaxRank, from);
}
/// Throws if t is undefined or not of a floating dtype.
void require_floating(const char* op, const Tensor& t);
/// Throws if t is undefined or not i64 or i32 (or u8, if `allow_u8`).
void require_index(const char* op, const Tensor& t, bool allow_u8 = false);

/// Returns true if `from` can be repeated to `to`, which stays as it is.
bool broadcasts_to(const Shape& from, const Shape& to) noexcept;

/// Throws the error that is being handled, in the name of `op` if it is another operation's.
[[noreturn]] void fail_as(const char* op, const Error& error);

/// Returns compute(operands), with 16-bit operands in f32 and the result rounded. An op made of
/// several ops uses it, since each of these would round. Operands have one dtype. Under autocast
/// those several choose their dtypes.
template <class Fn, class... Operands>
Tensor rounded_once(Fn&& compute, const Tensor& first, const Operands&... others) {
  const DType dtype = first.dtype(), wide = compute_dtype(dtype);
  if (!is_floating(dtype) || wide == dtype || autocast_on()) return compute(first, others...);
  return cast(compute(cast(first, wide), cast(others, wide)...), dtype);
}

/// out[..., j, ...] = x[..., index[..., j, ...], ...] along `axis`, recorded as `op`. The operands
/// are checked, except for the values of the index.
Tensor take_along(const char* op, const Tensor& x, int axis, const Tensor& index);

/// Returns the shape of x with these numbers of elements added around each axis. Throws Error
/// naming `op` unless both lists have a count, 0 or more, for every axis.
Shape padded_shape(const char* op, const Tensor& x, const Axes& before, const Axes& after);

/// Sums `contribution`, which has a broadcast shape, over the axes along which input i was
/// repeated, and adds it to that input's gradient.
void accumulate_broadcast(Backward& b, int i, const Tensor& contribution);

}  // namespace firn::ops

/// Ends a function whose body is a try block, for an operation that is made of others: their errors
/// name the operation that was called.
#define FIRN_AS_OP(op)                       \
  catch (const ::firn::Error& error_of_op) { \
    ::firn::ops::fail_as(op, error_of_op);   \
  }
