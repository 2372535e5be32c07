// Convolutions through oneDNN: channels-last f32, one thread per block of images.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "kernels/cpu/conv/block.h"

namespace firn::kernels::cpu {

enum class ConvPass : std::uint8_t { forward, data, weight };

/// One of the three products for blocks of one or two sizes. Weights are in oneDNN's own format, of
/// `weights_size` numbers.
class OnednnConv {
 public:
  /// Created once for each shape and cached. `images` are the sizes of the blocks. Null if oneDNN
  /// is not built in, refuses, or has nothing faster than im2col. Throws OutOfMemory.
  static std::shared_ptr<const OnednnConv> find(ConvPass pass, const ConvSizes& z,
                                                const std::array<std::int64_t, 2>& images,
                                                bool bias);
  virtual ~OnednnConv() = default;

  virtual std::int64_t weights_size() const = 0;
  /// Convert weights [k, r, s, c/groups] into that format, and back.
  virtual void pack(const float* plain, float* packed) const = 0;
  virtual void unpack(const float* packed, float* plain) const = 0;
  /// forward: reads x, weights and bias, writes y. data: reads y (dy) and weights, writes x (dx).
  /// weight: reads x and y (dy), writes weights.
  virtual void run(std::int64_t images, const float* x, const float* weights, const float* bias,
                   const float* y) const = 0;
};

}  // namespace firn::kernels::cpu
