// The parts of a convolution that threads compute apart: blocks of the batch and, if a batch of
// volumes is small, ranges along depth as well. They depend on shapes alone, so that the bits do
// not depend on the number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "firn/view.h"
#include "kernels/cpu/conv/onednn.h"
#include "kernels/plan/conv_sizes.h"

namespace firn::kernels::cpu {

/// Positions [begin, end) of an axis.
struct ConvRange {
  std::int64_t begin, end;
  std::int64_t count() const noexcept { return end - begin; }
  bool operator==(const ConvRange&) const = default;
};

struct ConvBlock {
  ConvRange images;
  ConvRange in, out;  ///< ranges along the depth of x and of y
  std::size_t shape;  ///< its sizes are ConvBlocks::shapes()[shape]
};

/// Cuts a convolution into blocks. For the gradient of the input, taps along depth must reach over
/// the stride.
class ConvBlocks {
 public:
  /// Makes blocks of nearly equal size, some 4 MFLOP each if there is that much. Their number is a
  /// multiple of 8, to balance threads, and about `most` at most.
  ConvBlocks(ConvPass pass, const ConvSizes& z, std::int64_t most = 64) : pass_(pass), z_(z) {
    constexpr std::int64_t kWork = std::int64_t{1} << 21, kMultiple = 8;
    const std::int64_t work = z.n * z.image_work() / kWork;
    const std::int64_t even = work <= 1 ? 1 : math::ceil_div(work, kMultiple) * kMultiple;
    const std::int64_t wanted = std::clamp<std::int64_t>(even, 1, most);
    if (z.volumes && z.n > 0 && wanted > z.n && cut_depth(math::ceil_div(wanted, z.n))) return;
    batches_ = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, z.n));
    pieces_ = 1;
    shape_count_ = 0;
    for (const std::int64_t images : {z.n / batches_, math::ceil_div(z.n, batches_)})
      if (shape_count_ == 0 || images != shapes_[0].n)
        shapes_[shape_count_++] = z.with_images(images);
  }

  std::int64_t count() const noexcept { return batches_ * pieces_; }
  ConvBlock operator[](std::int64_t i) const {
    if (pieces_ > 1) {
      const std::int64_t image = i / pieces_;
      ConvBlock b = piece(i % pieces_);
      b.images = {image, image + 1};
      b.shape = shape_of(b);
      return b;
    }
    const ConvRange images{i * z_.n / batches_, (i + 1) * z_.n / batches_};
    return {images, {0, z_.d}, {0, z_.o}, images.count() == shapes_[0].n ? 0u : 1u};
  }
  /// Returns the different sizes of the blocks.
  std::span<const ConvSizes> shapes() const noexcept { return {shapes_.data(), shape_count_}; }
  /// Largest numbers of elements of x and of y in a block.
  std::int64_t inputs() const noexcept {
    return most([](const ConvSizes& z) { return z.n * z.image_inputs(); });
  }
  std::int64_t outputs() const noexcept {
    return most([](const ConvSizes& z) { return z.n * z.image_outputs(); });
  }

 private:
  static constexpr std::size_t kShapes = OnednnConv::kShapes;

  /// Returns piece i along depth. Pieces of the gradient of the input divide x, by whole strides;
  /// others divide y.
  ConvBlock piece(std::int64_t i) const {
    const ConvDepth& g = z_.geometry.depth;
    ConvBlock b{};
    if (pass_ == ConvPass::data) {
      const std::int64_t strides = math::ceil_div(z_.d, g.stride);
      const auto cut = [&](std::int64_t at) {
        return std::min(z_.d, at * strides / pieces_ * g.stride);
      };
      b.in = {cut(i), cut(i + 1)};
      const std::int64_t before = b.in.begin - z_.depth_reach() + 1 + g.before;
      b.out = {before > 0 ? math::ceil_div(before, g.stride) : 0,
               std::min(z_.o, (b.in.end - 1 + g.before) / g.stride + 1)};
    } else {
      b.out = {i * z_.o / pieces_, (i + 1) * z_.o / pieces_};
      b.in = {std::max<std::int64_t>(0, b.out.begin * g.stride - g.before),
              std::min(z_.d, (b.out.end - 1) * g.stride - g.before + z_.depth_reach())};
    }
    return b;
  }
  ConvSizes sizes_of(const ConvBlock& b) const {
    ConvSizes z = z_.with_images(1);
    ConvDepth& g = z.geometry.depth;
    z.d = b.in.count();
    z.o = b.out.count();
    g.before += b.in.begin - b.out.begin * g.stride;
    return z;
  }
  std::size_t shape_of(const ConvBlock& b) const {
    const ConvSizes z = sizes_of(b);
    std::size_t i = 0;
    while (i < shape_count_ && !(shapes_[i].d == z.d && shapes_[i].o == z.o &&
                                 shapes_[i].geometry.depth.before == z.geometry.depth.before))
      ++i;
    return i;
  }

  /// Cuts each volume into at most `most` pieces along depth, such that each reads something and
  /// kShapes shapes are enough. Returns false if volumes stay whole.
  bool cut_depth(std::int64_t most) {
    batches_ = z_.n;
    for (pieces_ = std::min(most, pass_ == ConvPass::data ? z_.d : z_.o); pieces_ > 1; pieces_ /= 2)
      if (fits()) return true;
    return false;
  }
  bool fits() {
    shape_count_ = 0;
    for (std::int64_t i = 0; i < pieces_; ++i) {
      const ConvBlock b = piece(i);
      const std::size_t at = shape_of(b);
      if (b.in.begin >= b.in.end || b.out.begin >= b.out.end || at == kShapes) return false;
      if (at == shape_count_) shapes_[shape_count_++] = sizes_of(b);
    }
    return true;
  }

  std::int64_t most(std::int64_t (*elements)(const ConvSizes&)) const noexcept {
    std::int64_t out = 0;
    for (const ConvSizes& z : shapes()) out = std::max(out, elements(z));
    return out;
  }

  ConvPass pass_;
  ConvSizes z_;
  std::int64_t batches_, pieces_ = 1;  ///< pieces of the batch, and of a volume
  std::array<ConvSizes, kShapes> shapes_{};
  std::size_t shape_count_ = 0;
};

}  // namespace firn::kernels::cpu
