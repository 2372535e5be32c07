// Data augmentation: each time an image is read, it may be cropped with a shift, mirrored, and have
// a rectangle erased. The draws come from Philox and depend on seed, epoch and the image's number.
#pragma once

#include "kernels/math/macros.h"
#include "kernels/math/philox.h"

namespace firn::math {

/// A random word is below this with probability p; at p = 1 always.
FIRN_HD inline std::uint64_t chance(double p) {
  return static_cast<std::uint64_t>(p * 0x1p32 + 0.5);
}

/// floor(w n / 2^32): an integer in [0, n) from a random word, biased by less than n / 2^32.
FIRN_HD inline int below(std::uint32_t word, int n) {
  return static_cast<int>((static_cast<std::uint64_t>(word) * static_cast<std::uint64_t>(n)) >> 32);
}

/// Augmentation of images of planes x height x width pixels; off if planes is 0.
struct Augment {
  int planes = 0, height = 0, width = 0;
  int padding = 0;                      ///< zeros on every side, before a crop of the image's size
  std::uint64_t flip = 0;               ///< chance() of a mirror image, left to right
  std::uint64_t erase = 0;              ///< chance() of a rectangle erased
  float least_area = 0, most_area = 0;  ///< area of the rectangle, as a share of the image
  float least_aspect = 1, most_aspect = 1;  ///< ratio of its height to its width
  std::uint64_t seed = 0;

  FIRN_HD bool on() const { return planes > 0; }
};

/// The augmentation of one image.
struct Placement {
  int top = 0, left = 0;  ///< place of the crop in the image, negative in the padding
  bool flipped = false;
  int first_row = 0, first_column = 0, rows = 0, columns = 0;  ///< the erased rectangle

  FIRN_HD bool erased(int row, int column) const {
    return row >= first_row && row < first_row + rows && column >= first_column &&
           column < first_column + columns;
  }
  /// Returns the source of a pixel, as an index in its plane; -1 in the padding.
  FIRN_HD int source(int row, int column, int height, int width) const {
    const int r = row + top, c = (flipped ? width - 1 - column : column) + left;
    return r < 0 || r >= height || c < 0 || c >= width ? -1 : r * width + c;
  }
};

/// A rectangle is drawn until it fits into the image, at most this often; then none is erased.
inline constexpr int kEraseTries = 10;
/// Philox blocks of an image in the epoch's stream: one for crop and mirror, one for each try.
inline constexpr int kAugmentBlocks = 1 + kEraseTries;

/// The draws for image `id` in `epoch`. They use the blocks from id * kAugmentBlocks on, with
/// counter_high = epoch + 1; the streams of random.h have 0. Shifts are uniform over 2 * padding +
/// 1 places along each axis. The rectangle is that of random erasing (Zhong, Zheng, Kang, Li & Yang
/// 2017). Its area S and aspect r are uniform in their ranges, and its place is uniform inside the
/// image. Its sides sqrt(S r) x sqrt(S / r) are rounded to whole pixels.
FIRN_HD inline Placement placement(const Augment& a, std::int64_t epoch, std::int64_t id) {
  Placement p;
  const auto first = static_cast<std::uint64_t>(id) * kAugmentBlocks;
  const auto stream = static_cast<std::uint64_t>(epoch) + 1;
  const PhiloxBlock b = philox(first, a.seed, stream);
  p.top = below(b.word[0], 2 * a.padding + 1) - a.padding;
  p.left = below(b.word[1], 2 * a.padding + 1) - a.padding;
  p.flipped = b.word[2] < a.flip;
  if (!(b.word[3] < a.erase)) return p;
  const float pixels = static_cast<float>(a.height) * static_cast<float>(a.width);
  for (int i = 0; i < kEraseTries; ++i) {
    const PhiloxBlock e = philox(first + 1 + static_cast<std::uint64_t>(i), a.seed, stream);
    // Explicit fma: the bits must not depend on whether a compiler contracts a*b + c.
    const float area =
        pixels * std::fma(unit_uniform<float>(e.word[0]), a.most_area - a.least_area, a.least_area);
    const float aspect =
        std::fma(unit_uniform<float>(e.word[1]), a.most_aspect - a.least_aspect, a.least_aspect);
    // An aspect near 0 gives a side that overflows int.
    const float height = sqrt(area * aspect), width = sqrt(area / aspect);
    if (!(height < static_cast<float>(a.height) + 0.5f &&
          width < static_cast<float>(a.width) + 0.5f))
      continue;
    const int rows = static_cast<int>(height + 0.5f), columns = static_cast<int>(width + 0.5f);
    if (rows < 1 || columns < 1 || rows > a.height || columns > a.width) continue;
    p.rows = rows;
    p.columns = columns;
    p.first_row = below(e.word[2], a.height - rows + 1);
    p.first_column = below(e.word[3], a.width - columns + 1);
    break;
  }
  return p;
}

}  // namespace firn::math
