// Shared by Batches and ResidentBatches: the checks of a set, and the order of an epoch.
#pragma once

#include "firn/data/batches.h"
#include "kernels/math/augment.h"

namespace firn::data {

/// Throws Error in the name of `op` unless images are u8 [n, ...] on the CPU, labels u8, i32 or i64
/// [n], and the options make sense.
void check_set(const char* op, const LabelledImages& set, const BatchOptions& options);

/// The order of the samples in epoch `number`, as positions in the set: i64 [n] on the CPU. It
/// depends only on seed and number.
Tensor epoch_order(const char* op, std::int64_t n, const BatchOptions& options,
                   std::int64_t number);

/// options.augment in the form that the kernel takes.
math::Augment augment_of(const Tensor& images, const BatchOptions& options);

/// The shape of the pixels of `n` images of a set.
Shape batch_shape(const Tensor& images, std::int64_t n, bool flatten);

}  // namespace firn::data
