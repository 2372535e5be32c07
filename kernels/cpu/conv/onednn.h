// Convolutions through oneDNN: channels-last f32 or bf16, one thread per block of images or
// volumes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/plan/conv_sizes.h"

namespace firn::kernels::cpu {

/// One of the three products for blocks of some shapes, of f32 or bf16 images. Sums are f32.
/// Weights have the dtype of the images, and their gradients are f32. Both are in oneDNN's own
/// format of `weights_size` numbers.
class OnednnConv {
 public:
  /// Largest number of different shapes of blocks.
  static constexpr std::size_t kShapes = 8;

  /// Returns the product for such shapes, which is created once and cached. Shapes differ in the
  /// number of images and along depth alone. Returns null if oneDNN is not built in, refuses, or
  /// has nothing faster than im2col. Throws OutOfMemory.
  static std::shared_ptr<const OnednnConv> find(ConvPass pass, DType dtype,
                                                std::span<const ConvSizes> shapes, bool bias);
  virtual ~OnednnConv() = default;

  virtual std::int64_t weights_size() const = 0;
  /// Returns the scratch memory of run(), as slot_bytes() counts it.
  virtual std::int64_t scratch_bytes() const = 0;
  /// Convert weights [k, t, r, s, c/groups] into that format, and back. In a dry run they allocate
  /// only.
  virtual void pack(const void* plain, void* packed) const = 0;
  virtual void unpack(const void* packed, void* plain) const = 0;
  /// Computes a block of shapes[shape]. forward: reads x, weights and bias (f32), writes y. data:
  /// reads y (dy) and weights, writes x (dx). weight: reads x and y (dy), writes weights. It
  /// runs in a chunk that has scratch memory.
  virtual void run(std::size_t shape, const void* x, const void* weights, const float* bias,
                   const void* y) const = 0;
};

}  // namespace firn::kernels::cpu
