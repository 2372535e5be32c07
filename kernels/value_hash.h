// Contract of the check that recomputed values are the same: firn/checkpoint.h.
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {

namespace cpu {

/// sum[0] += the hash of x (math/value_hash.h), modulo 2^64; sum is i64. Two tensors of one shape
/// and dtype whose values differ have the same hash with a probability of about 2^-32. Backends
/// have different hashes.
void value_hash(const ConstView& x, const View& sum, Stream stream);
/// Checks that two hashes, i64 [1], are equal. The CPU throws Error that names `op`, a string
/// literal. A device records a fault, so its Error comes later.
void require_same_hash(const ConstView& now, const ConstView& before, const char* op,
                       Stream stream);

}  // namespace cpu

FIRN_KERNEL(value_hash)
FIRN_KERNEL(require_same_hash)

inline constexpr const char* kOtherValues =
    "what is computed again has other values than in the forward pass";

}  // namespace firn::kernels
