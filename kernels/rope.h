// Contract of rotary positions. Formulas: math/rope.h.
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {

struct RopeArgs {
  std::int64_t offset = 0;  ///< of row 0, without positions
  double theta = 10000;
  bool interleaved = false;  ///< pairs (2i, 2i+1), else (i, i + d/2)
  bool inverse = false;      ///< turn back
};

namespace cpu {

/// y = beta*y + x turned, for [batch, heads, n, d] of any strides and d even. x has a floating
/// dtype, y the same or its compute dtype. positions [batch, n], or [1, n] for every batch entry,
/// i64 or i32, any strides; data == nullptr: row r is at offset + r.
void rope(const ConstView& x, const ConstView& positions, const RopeArgs& args, const View& y,
          float beta, Stream stream);

}  // namespace cpu

FIRN_KERNEL_WITH_WORKSPACE(rope)

}  // namespace firn::kernels
