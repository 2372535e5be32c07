// What every file of ops begins with: checks on operands, and the names it uses all the time.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "autograd/node.h"
#include "base/check.h"
#include "firn/ops.h"
#include "firn/stream.h"
#include "ops/autocast.h"

namespace firn::ops {

using autograd::Backward;
using autograd::record;
using autograd::Saved;

/// Most positions along an axis of an image, with its padding. Kernels on devices count them in 32
/// bits, and products of two such numbers fit in 64.
inline constexpr std::int64_t kMostPositions = std::numeric_limits<std::int32_t>::max();

/// Where the op's kernels run.
inline Stream stream_of(const Tensor& t) noexcept { return current_stream(t.device()); }

/// The memory format of an elementwise result of that shape: that of the first operand which has
/// the whole of it.
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

/// Throws Error naming `op` and both operands if dtypes or devices differ. An op that autocast may
/// run in several dtypes calls it with the operands as cast.
void require_same(const char* op, const Tensor& a, const Tensor& b);
/// The same for the factors of a product, before they are cast: under autocast dtypes may differ.
void require_factors(const char* op, const Tensor& a, const Tensor& b);
/// Throws unless `dtype` can hold `number`: an integer dtype the whole numbers of its range (of i64
/// those up to 2^53, which a double holds without a gap), bool 0 and 1, a floating dtype all but
/// finite numbers that would become infinite.
void require_holds(const char* op, DType dtype, double number);
/// Throws if t is undefined or not of a floating dtype.
void require_floating(const char* op, const Tensor& t);
/// Throws if t is undefined or not i64 or i32 (or u8, if `allow_u8`).
void require_index(const char* op, const Tensor& t, bool allow_u8 = false);

/// Adds `contribution`, which has a broadcast shape, to input i's gradient, summed over the axes
/// along which that input was repeated.
void accumulate_broadcast(Backward& b, int i, const Tensor& contribution);

}  // namespace firn::ops
