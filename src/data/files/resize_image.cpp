// Scales images as Pillow does (ImagingResample): weights in fixed point, one axis after the other,
// and 8 bits between the axes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "firn/data/image_files.h"
#include "firn/memory.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "resize_image";
constexpr int kBits = 22;  // bits of a weight: 255 times the sum of weights fits in 32

/// Pixels [first, last) of an axis of `scaled` pixels, to which one of `stored` pixels is scaled.
struct Axis {
  std::int64_t stored = 0, scaled = 0, first = 0, last = 0;
};

/// Weights of each pixel of an axis. Pixel i is the sum over j < count[i] of weights[i * most + j]
/// times the stored pixel begin[i] + j.
struct Weights {
  std::int64_t most = 0;
  std::vector<std::int64_t> begin, count;
  std::vector<std::int32_t> weights;

  explicit Weights(const Axis& axis) {
    const double scale = static_cast<double>(axis.stored) / static_cast<double>(axis.scaled);
    const double support = std::max(scale, 1.0);
    most = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
    weights.assign(static_cast<std::size_t>((axis.last - axis.first) * most), 0);
    std::vector<double> exact(static_cast<std::size_t>(most));
    for (std::int64_t i = axis.first; i < axis.last; ++i) {
      const double centre = (static_cast<double>(i) + 0.5) * scale;
      const auto from =
          std::max(static_cast<std::int64_t>(centre - support + 0.5), std::int64_t{0});
      const auto to = std::min(static_cast<std::int64_t>(centre + support + 0.5), axis.stored);
      double sum = 0;
      for (std::int64_t j = from; j < to; ++j) {
        const double away = std::abs(static_cast<double>(j) - centre + 0.5) / support;
        sum += exact[static_cast<std::size_t>(j - from)] = std::max(1 - away, 0.0);
      }
      std::int32_t* const row = &weights[static_cast<std::size_t>((i - axis.first) * most)];
      for (std::int64_t j = 0; j < to - from; ++j)
        row[j] = static_cast<std::int32_t>(exact[static_cast<std::size_t>(j)] / sum * (1 << kBits) +
                                           0.5);
      begin.push_back(from);
      count.push_back(to - from);
    }
  }
};

std::uint8_t rounded(std::int32_t sum) noexcept {
  return static_cast<std::uint8_t>(std::clamp((sum + (1 << (kBits - 1))) >> kBits, 0, 255));
}

void scale_row(const std::uint8_t* from, std::uint8_t* to, const Weights& w) {
  for (std::size_t i = 0; i < w.begin.size(); ++i) {
    const std::int32_t* const weights = &w.weights[i * static_cast<std::size_t>(w.most)];
    const std::uint8_t* const pixels = from + w.begin[i];
    std::int32_t sum = 0;
    for (std::int64_t j = 0; j < w.count[i]; ++j) sum += weights[j] * pixels[j];
    to[i] = rounded(sum);
  }
}

/// Resamples u8 [c, h, w] to the pixels of the two axes.
Tensor resample(const Tensor& image, const Axis& rows, const Axis& columns) {
  const std::int64_t channels = image.size(0), height = rows.last - rows.first,
                     width = columns.last - columns.first;
  Tensor made = empty({channels, height, width}, u8, Device::cpu());
  const Weights vertical(rows), horizontal(columns);
  const std::int64_t top = vertical.begin.front(),
                     bottom = vertical.begin.back() + vertical.count.back();
  const Tensor scratch = empty({bottom - top, width}, u8, Device::cpu());
  auto* const middle = scratch.data<std::uint8_t>();
  std::vector<std::int32_t> sums(static_cast<std::size_t>(width));
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::uint8_t* const from = image.data<std::uint8_t>() + c * rows.stored * columns.stored;
    std::uint8_t* to = made.data<std::uint8_t>() + c * height * width;
    for (std::int64_t y = top; y < bottom; ++y)
      scale_row(from + y * columns.stored, middle + (y - top) * width, horizontal);
    for (std::int64_t y = 0; y < height; ++y, to += width) {
      const auto at = static_cast<std::size_t>(y);
      std::fill(sums.begin(), sums.end(), 0);
      for (std::int64_t j = 0; j < vertical.count[at]; ++j) {
        const std::int32_t weight =
            vertical.weights[static_cast<std::size_t>(y * vertical.most + j)];
        const std::uint8_t* const row = middle + (vertical.begin[at] - top + j) * width;
        for (std::int64_t x = 0; x < width; ++x)
          sums[static_cast<std::size_t>(x)] += weight * row[x];
      }
      std::transform(sums.begin(), sums.end(), to, rounded);
    }
  }
  return made;
}

/// Returns the middle of an axis of `scaled` pixels. Half a pixel is rounded as Python's round()
/// does.
Axis middle_of(std::int64_t stored, std::int64_t scaled, std::int64_t size) {
  const std::int64_t rest = scaled - size, first = rest / 2 + (rest % 4 == 3 ? 1 : 0);
  return {stored, scaled, first, first + size};
}

}  // namespace

Tensor resize_image(const Tensor& image, std::int64_t height, std::int64_t width,
                    ImageFit fit) try {
  FIRN_CHECK(image.defined() && image.dtype() == u8 && image.rank() == 3 && image.device().is_cpu(),
             kOp, "images are u8 [channels, height, width] on the CPU", "not an image: {}",
             describe(image));
  constexpr std::int64_t kMost = 1 << 24, kMostStored = std::int64_t{1} << 31;
  FIRN_CHECK(height >= 1 && width >= 1 && height < kMost && width < kMost, kOp,
             "give height and width in pixels",
             "the new size is {} x {}; each is at least 1 and below 2^24", height, width);
  const std::int64_t h = image.size(1), w = image.size(2);
  FIRN_CHECK(h >= 1 && w >= 1 && h < kMostStored && w < kMostStored && image.size(0) >= 1, kOp,
             "an image is [c, h, w], with 1 pixel or more", "an image of shape {} cannot be scaled",
             image.shape());
  const OwnerScope owner(Owner::data);
  const Tensor whole = image.contiguous();
  if (fit == ImageFit::stretch)
    return resample(whole, {h, height, 0, height}, {w, width, 0, width});
  FIRN_CHECK(fit == ImageFit::crop, kOp, "use ImageFit::stretch or crop", "{} is no ImageFit",
             static_cast<int>(fit));
  // The axis with the smaller surplus gets its new size, and the other one keeps the proportions.
  if (height * w >= width * h)
    return resample(whole, {h, height, 0, height}, middle_of(w, height * w / h, width));
  return resample(whole, middle_of(h, width * h / w, height), {w, width, 0, width});
}
FIRN_OUT_OF_MEMORY("resize_image")

}  // namespace firn::data
