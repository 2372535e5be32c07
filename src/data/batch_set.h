// What Batches and ResidentBatches share: the checks of a set, and the order of an epoch.
#pragma once

#include "firn/data/batches.h"
#include "kernels/math/augment.h"

namespace firn::data {

/// Throws Error in the name of `op` unless images are u8 [n, ...] on the CPU, labels u8, i32 or i64
/// [n], and the options make sense.
void check_set(const char* op, const LabelledImages& set, const BatchOptions& options);

/// The positions in the set of epoch `number`'s samples, in their order: i64 [n] on the CPU. It
/// depends on seed and number alone.
Tensor epoch_order(const char* op, std::int64_t n, const BatchOptions& options,
                   std::int64_t number);

/// What the kernel is told of options.augment.
math::Augment augment_of(const Tensor& images, const BatchOptions& options);

/// The shape of the pixels of `n` images of a set.
Shape batch_shape(const Tensor& images, std::int64_t n, bool flatten);

}  // namespace firn::data
