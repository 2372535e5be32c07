// Contract of the kernel that takes the next batch out of a labelled set held as bytes.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/math/augment.h"
#include "kernels/math/pixel.h"

namespace firn::kernels {
namespace cpu {

/// The y.numel() samples at order[p], order[p + 1], ..., where p is the value of cursor[0]: their
/// pixels, normalised in f32 (f64 for an f64 x) and rounded once to x's dtype, and their labels.
/// Then p advances by that number. After the last position of `order` comes its first, here and in
/// p, and the epoch is the next.
///   images [N, ...] u8, labels [N] u8, i32 or i64, order [N] i64 in [0, N), all row-major
///   cursor [3] i64: p, a word that is 0 before and after, and the epoch
///   x [n, ...] floating, n images; y [n] i64; both row-major
/// Where `augment` is on, images are [N, planes, height, width] to it; each is cropped, mirrored
/// and erased as math::placement() draws for its position p and the epoch. Pixels of the padding
/// are zeros before they are normalised, erased ones are zeros after.
void take_batch(const ConstView& images, const ConstView& labels, const ConstView& order,
                const View& cursor, float mean, float stddev, const math::Augment& augment,
                const View& x, const View& y, Stream stream);

}  // namespace cpu

FIRN_KERNEL(take_batch)

}  // namespace firn::kernels
