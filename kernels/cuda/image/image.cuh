// Coordinates for threads that take the elements of images [n, c, h, w] in the order of one
// tensor's memory.
#pragma once

#include "firn/view.h"
#include "kernels/cuda/device/strides.cuh"

namespace firn::kernels::cuda {

/// The coordinates of the elements of a tensor of images, in the order of its memory. With each
/// comes the place of its image (the channel of a sample) in kOthers other tensors.
template <int kOthers>
class ImageAxes {
 public:
  struct Place {
    std::int64_t offset;          ///< in the tensor itself
    std::int64_t image[kOthers];  ///< offsets of the same n and c in the others
    std::int64_t h, w;
  };

  /// `others` are the strides of the other tensors.
  ImageAxes(const ConstView& self, const Strides* const (&others)[kOthers]) {
    int order[4];
    for (int d = 0; d < 4; ++d) {  // by stride, largest first
      int at = d;
      for (; at > 0 && self.strides[order[at - 1]] < self.strides[d]; --at)
        order[at] = order[at - 1];
      order[at] = d;
    }
    for (const int d : order) {
      if (self.shape[d] == 1) continue;
      std::int64_t strides[kOthers + 3] = {self.strides[d], d == 2, d == 3};
      for (int i = 0; i < kOthers; ++i) strides[3 + i] = d < 2 ? (*others[i])[d] : 0;
      axes_.push_back(self.shape[d], strides);
    }
    axes_.finish();
  }
  __device__ Place place(std::int64_t i) const {
    std::int64_t at[kOthers + 3];
    axes_.offsets(i, at);
    Place p{at[0], {}, at[1], at[2]};
    for (int k = 0; k < kOthers; ++k) p.image[k] = at[3 + k];
    return p;
  }

 private:
  StridedAxes<kOthers + 3> axes_;
};

/// Element [h, w] of an image that begins at an offset.
struct Plane {
  std::int64_t h_stride, w_stride;
  explicit Plane(const Strides& strides) : h_stride(strides[2]), w_stride(strides[3]) {}
  __device__ std::int64_t at(std::int64_t image, std::int64_t h, std::int64_t w) const {
    return image + h * h_stride + w * w_stride;
  }
};

}  // namespace firn::kernels::cuda
