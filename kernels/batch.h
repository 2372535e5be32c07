// Contract of the kernel that takes the next batch out of a labelled set held as bytes.
#pragma once

#include "kernels/dispatch.h"
#include "kernels/math/image/augment.h"
#include "kernels/math/image/pixel.h"

namespace firn::kernels {
namespace cpu {

/// Takes pixels and labels of the n samples at order[p], order[p + 1], ..., with p = cursor[0].
/// Pixels are normalised in f32 (f64 for an f64 x) and rounded once to x's dtype. Then p advances
/// by n. `order` is cyclic: after its last position comes its first, and the epoch goes up by one.
///   images [N, ...] u8, labels [N] u8, i32 or i64, order [M] i64 in [0, N), all row-major
///   ids [M] i64: the number for which the image at a position is augmented; may be `order`
///   cursor [3] i64: p, a word that is 0 before and after, and the epoch
///   x [n, ...] floating, n images; y [n] i64; both row-major
/// Without labels (null) nothing is written to y.
/// If `augment` is on, it reads images as [N, planes, height, width]. Each is cropped, mirrored and
/// erased as math::placement() draws for its id and the epoch. Padding is zero before
/// normalisation, erased pixels are zero after it.
void take_batch(const ConstView& images, const ConstView& labels, const ConstView& order,
                const ConstView& ids, const View& cursor, float mean, float stddev,
                const math::Augment& augment, const View& x, const View& y, Stream stream);
}  // namespace cpu

/// Bytes in a profile: the images that are read, x, and the labels, both read and written.
inline double take_batch_bytes(const ConstView& images, const ConstView&, const ConstView&,
                               const ConstView&, const View&, float, float, const math::Augment&,
                               const View& x, const View& y, Stream) {
  return double(x.numel()) * double(size_of(images.dtype)) + detail::bytes_of(x) +
         2 * detail::bytes_of(y);
}
FIRN_KERNEL_THAT_MOVES(take_batch, take_batch_bytes)

}  // namespace firn::kernels
