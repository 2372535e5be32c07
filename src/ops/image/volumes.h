// Operations on volumes [n, c, d, h, w] that treat one axis after the other, made of two operations
// on images: one along height and width, and one along depth.
#pragma once

#include <cstdint>

#include "ops/common.h"

namespace firn::ops {

/// Sizes of volumes [n, c, d, h, w]; without a batch, n is 1.
struct Volumes {
  std::int64_t n, c, d;
  bool batched;
};

inline Volumes as_volumes(const char* op, const Tensor& x) {
  require_floating(op, x);
  FIRN_CHECK(x.rank() == 5 || x.rank() == 4, op, "reshape it",
             "x is [n, c, d, h, w] or without n, got {}", describe(x));
  const bool batched = x.rank() == 5;
  for (int axis = x.rank() - 3; axis < x.rank(); ++axis) {
    FIRN_CHECK(x.size(axis) > 0, op, "only the batch and the channels may be empty",
               "x {} has no positions", describe(x));
    FIRN_CHECK(x.size(axis) <= kMostPositions, op, "take parts of it",
               "the positions along an axis of x {} do not fit in 32 bits", describe(x));
  }
  return {batched ? x.size(0) : 1, x.size(batched ? 1 : 0), x.size(-3), batched};
}

/// Runs `planes` on [n, c d, h, w], then `depths` on images [n c, 1, d, h w], each an operation on
/// images. The caller has checked what these would refuse, so that an Error names `op`.
template <class Planes, class Depths>
Tensor in_two(const char* op, const Tensor& x, const Planes& planes, const Depths& depths) {
  const Volumes v = as_volumes(op, x);
  const Tensor flat = planes(reshape(x, {v.n, v.c * v.d, x.size(-2), x.size(-1)}));
  const std::int64_t p = flat.size(2), q = flat.size(3);
  FIRN_CHECK(p <= kMostPositions / q, op, "take parts of it",
             "the positions of a plane of {} x {} do not fit in 32 bits", p, q);
  const Tensor y = depths(reshape(flat, {v.n * v.c, 1, v.d, p * q}));
  if (!v.batched) return reshape(y, {v.c, y.size(2), p, q});
  return reshape(y, {v.n, v.c, y.size(2), p, q});
}

/// x in the dtype that it is computed in: two means of 16 bits would round twice.
inline Tensor wide(const Tensor& x) { return cast(x, compute_dtype(x.dtype())); }

}  // namespace firn::ops
