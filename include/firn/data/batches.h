// Batches of a labelled set of images, in an order that depends on seed and epoch alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>

#include "firn/data/fashion_mnist.h"
#include "firn/device.h"
#include "firn/tensor.h"

namespace firn::data {

/// Random changes to each image whenever it is taken, in the order of the members; the default does
/// nothing. The draws depend only on seed, epoch and the image's position in the epoch, and are the
/// same on every device. Images are [n, height, width] or [n, channels, height, width]; all
/// channels of an image change alike.
struct Augmentation {
  /// Random crop: this many zeros (black pixels) are added on every side of the image, then a part
  /// of the image's own size is cut out at a random place. In pixels, less than height and width.
  std::int64_t crop_padding = 0;
  double flip = 0;  ///< probability of the mirror image, left to right
  /// Probability that a random rectangle becomes 0, the mean of normalised pixels: random erasing,
  /// with the ranges of Zhong et al. 2017. A rectangle that does not fit is drawn again, up to ten
  /// times.
  double erase = 0;
  double erase_area_min = 0.02, erase_area_max = 0.4;  ///< as a share of the image, in (0, 1]
  double erase_aspect_min = 0.3, erase_aspect_max = 1 / 0.3;  ///< height : width, positive

  /// Whether anything is done.
  constexpr bool on() const noexcept { return crop_padding != 0 || flip != 0 || erase != 0; }
};

struct BatchOptions {
  std::int64_t batch_size = 64;
  bool shuffle = true;     ///< a new random order each epoch, else the set's own
  bool drop_last = false;  ///< leave out the last batch if it is short
  bool flatten = true;     ///< x is [n, pixels], else [n, height, width]
  std::uint64_t seed = 0;  ///< of order and augmentation: seed and epoch make the batches
  float mean = 0;          ///< x = (pixel/255 - mean) / stddev
  float stddev = 1;
  Augmentation augment = {};         ///< for training, not for evaluation
  DType dtype = f32;                 ///< of x, floating; computed in f32 (f64 for f64)
  Device device = default_device();  ///< where batches are put
};

struct Batch {
  Tensor x;  ///< [n, pixels] if flattened, else [n, ...] like the images
  Tensor y;  ///< i64 [n]
};

/// Divides a set into batches. Each is converted from bytes on the CPU when it is requested
/// (ResidentBatches converts on the device):
///
///   Batches batches(set.train, {.batch_size = 64, .seed = 1});
///   for (auto& [x, y] : batches.epoch(0)) { ... }
class Batches {
 public:
  /// Throws Error unless images are u8 [n, ...] on the CPU, labels u8, i32 or i64 [n], and the
  /// options make sense.
  explicit Batches(LabelledImages set, const BatchOptions& options = {});

  // After a move from this object each function except options() throws Error.

  /// Batches per epoch.
  std::int64_t size() const;
  /// Samples per epoch: all of the set, less a dropped last batch.
  std::int64_t samples() const;
  const BatchOptions& options() const noexcept { return options_; }

  class Iterator;
  class Epoch;
  /// The batches of one epoch (counted from 0), each sample once. The Epoch may outlive this
  /// object.
  Epoch epoch(std::int64_t number) const;

 private:
  struct Source;
  const Source& source() const;
  std::shared_ptr<const Source> source_;
  BatchOptions options_;
};

/// A range of batches for one pass. Call epoch(n) again for another.
class Batches::Epoch {
 public:
  Iterator begin() const;
  std::default_sentinel_t end() const noexcept { return {}; }
  std::int64_t size() const noexcept { return size_; }
  /// Batch `index` of this epoch, 0 <= index < size(). Throws Error otherwise.
  Batch operator[](std::int64_t index) const;

 private:
  friend class Batches;
  Epoch() = default;
  std::shared_ptr<const Source> source_;
  BatchOptions options_;
  Tensor order_;  ///< i64 [n]
  std::int64_t number_ = 0;
  std::int64_t size_ = 0;
};

/// Input iterator: it holds one batch at a time.
class Batches::Iterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  Batch& operator*() const noexcept { return batch_; }
  Batch* operator->() const noexcept { return &batch_; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const noexcept { return index_ >= epoch_.size(); }

 private:
  friend class Epoch;
  explicit Iterator(const Epoch& epoch);
  Epoch epoch_;
  std::int64_t index_ = 0;
  mutable Batch batch_;
};

}  // namespace firn::data
