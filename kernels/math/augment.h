// What is done to an image each time it is seen anew: a shifted crop, a mirror, a rectangle erased.
// The draws are a function of seed, epoch and the image's position in it, from the Philox stream.
#pragma once

#include "kernels/math/macros.h"
#include "kernels/math/philox.h"

namespace firn::math {

/// A word w is below this with probability p; at p = 1 every word is.
FIRN_HD inline std::uint64_t chance(double p) {
  return static_cast<std::uint64_t>(p * 0x1p32 + 0.5);
}

/// floor(w n / 2^32): an integer in [0, n) from a random word, biased by less than n / 2^32.
FIRN_HD inline int below(std::uint32_t word, int n) {
  return static_cast<int>((static_cast<std::uint64_t>(word) * static_cast<std::uint64_t>(n)) >> 32);
}

/// What may be done to images of planes x height x width pixels. Without a plane, nothing is.
struct Augment {
  int planes = 0, height = 0, width = 0;
  int padding = 0;          ///< of zeros on every side, before a crop of the image's size
  std::uint64_t flip = 0;   ///< chance() of a mirror image, left to right
  std::uint64_t erase = 0;  ///< chance() of a rectangle erased
  float least_area = 0, most_area = 0;      ///< of the rectangle, as a share of the image
  float least_aspect = 1, most_aspect = 1;  ///< of its height to its width
  std::uint64_t seed = 0;

  FIRN_HD bool on() const { return planes > 0; }
};

/// What is done to one image.
struct Placement {
  int top = 0, left = 0;  ///< of the crop in the image, negative in the padding
  bool flipped = false;
  int first_row = 0, first_column = 0, rows = 0, columns = 0;  ///< of the rectangle erased

  FIRN_HD bool erased(int row, int column) const {
    return row >= first_row && row < first_row + rows && column >= first_column &&
           column < first_column + columns;
  }
  /// Where in its plane a pixel comes from; -1: out of the padding.
  FIRN_HD int source(int row, int column, int height, int width) const {
    const int r = row + top, c = (flipped ? width - 1 - column : column) + left;
    return r < 0 || r >= height || c < 0 || c >= width ? -1 : r * width + c;
  }
};

/// A rectangle is drawn anew until it fits into the image, so often at most; else none is erased.
inline constexpr int kEraseTries = 10;
/// An image's share of the epoch's stream: one block for crop and mirror, one a try.
inline constexpr int kAugmentBlocks = 1 + kEraseTries;

/// The draws for the image at `position` of `epoch`: the blocks from position * kAugmentBlocks on
/// with counter_high = epoch + 1, apart from those of random.h, which have 0. Shifts are uniform
/// over 2 * padding + 1 places each way. The rectangle is that of random erasing (Zhong, Zheng,
/// Kang, Li & Yang 2017): area S and aspect r uniform in their ranges, sqrt(S r) x sqrt(S / r)
/// rounded to whole pixels, and its place uniform among those inside the image.
FIRN_HD inline Placement placement(const Augment& a, std::int64_t epoch, std::int64_t position) {
  Placement p;
  const auto first = static_cast<std::uint64_t>(position) * kAugmentBlocks;
  const auto stream = static_cast<std::uint64_t>(epoch) + 1;
  const PhiloxBlock b = philox(first, a.seed, stream);
  p.top = below(b.word[0], 2 * a.padding + 1) - a.padding;
  p.left = below(b.word[1], 2 * a.padding + 1) - a.padding;
  p.flipped = b.word[2] < a.flip;
  if (!(b.word[3] < a.erase)) return p;
  const float pixels = static_cast<float>(a.height) * static_cast<float>(a.width);
  for (int i = 0; i < kEraseTries; ++i) {
    const PhiloxBlock e = philox(first + 1 + static_cast<std::uint64_t>(i), a.seed, stream);
    // fma by name: the bits must not depend on whether a compiler contracts a*b + c.
    const float area =
        pixels * std::fma(unit_uniform<float>(e.word[0]), a.most_area - a.least_area, a.least_area);
    const float aspect =
        std::fma(unit_uniform<float>(e.word[1]), a.most_aspect - a.least_aspect, a.least_aspect);
    // An aspect near 0 makes a side that no int holds.
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
