// Data sets of images: bytes that become a model's input, augmented anew in each epoch.
#pragma once

#include <cstdint>
#include <memory>

#include "firn/data/dataset.h"
#include "firn/dtype.h"
#include "firn/tensor.h"

namespace firn::data {

class ImageSource;

/// Images and the class of each.
struct LabelledImages {
  Tensor images;  ///< u8 [n, height, width] or [n, channels, height, width]
  Tensor labels;  ///< u8, i32 or i64 [n]

  std::int64_t size() const { return labels.numel(); }  ///< n
};

/// Random changes to each image whenever it is taken, in the order of the members. The default
/// changes nothing. The draws depend only on seed, epoch and the image's number in its set, and are
/// equal on every device. Images are [height, width] or [channels, height, width]; all channels of
/// an image change alike.
struct Augmentation {
  /// Padding of the random crop, in pixels. The image gets this many zeros (black) on every side;
  /// then a window of the original size is cut out at a random place. Less than height and width.
  std::int64_t crop_padding = 0;
  double flip = 0;  ///< probability of the mirror image, left to right
  /// Probability that a random rectangle becomes 0, the mean of normalised pixels (random erasing,
  /// with the ranges of Zhong et al. 2017). A rectangle that does not fit is drawn again, up to ten
  /// times.
  double erase = 0;
  double erase_area_min = 0.02, erase_area_max = 0.4;  ///< as a share of the image, in (0, 1]
  double erase_aspect_min = 0.3, erase_aspect_max = 1 / 0.3;  ///< height : width, positive

  /// True if any change is switched on.
  constexpr bool on() const noexcept { return crop_padding != 0 || flip != 0 || erase != 0; }
};

/// How the bytes of an image become numbers.
struct ImageOptions {
  float mean = 0;             ///< x = (pixel/255 - mean) / stddev, for all channels
  float stddev = 1;           ///< see mean; above 0
  bool flatten = false;       ///< x is [pixels] instead of the image's own shape
  Augmentation augment = {};  ///< for training, not for evaluation
  DType dtype = f32;          ///< floating dtype of x; computed in f32 (f64 for f64)
};

/// Turns field 0 of a set's samples, an image of bytes, into normalised numbers. The other fields
/// do not change:
///
///   const data::ImageDataset set(images, {.mean = 0.286f, .stddev = 0.353f});
///   data::Loader loader(set, {.batch = 64, .shuffle = true, .seed = 1, .workers = 2});
///
/// An image is [height, width] or [channels, height, width]; without augmentation it may have any
/// shape. ResidentBatches makes equal batches on the device.
class ImageDataset : public Dataset {
 public:
  /// Samples are {x, label i64 []}. Throws Error unless images are u8 [n, ...] and labels u8, i32
  /// or i64 [n], on the CPU, and the options are in range.
  explicit ImageDataset(const LabelledImages& set, const ImageOptions& options = {});
  /// Takes any set, such as files that are decoded when they are taken. Throws Error unless the
  /// options are in range. If field 0 of a sample is not a u8 image, taking the sample throws
  /// Error.
  explicit ImageDataset(const Dataset& set, const ImageOptions& options = {});

  /// Options that the set was made with.
  const ImageOptions& options() const;

 private:
  friend class ResidentBatches;
  explicit ImageDataset(std::shared_ptr<const ImageSource> source);
  std::shared_ptr<const ImageSource> images_;
};

}  // namespace firn::data
