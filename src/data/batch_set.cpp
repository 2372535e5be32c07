#include "data/batch_set.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "data/scramble.h"
#include "firn/ops/ops.h"

namespace firn::data {
namespace {

std::int64_t pixels_of(const Tensor& images) {
  std::int64_t pixels = 1;
  for (int i = 1; i < images.rank(); ++i) pixels *= images.shape()[i];
  return pixels;
}

bool is_probability(double p) { return p >= 0 && p <= 1; }

void check_augmentation(const char* op, const Tensor& images, const Augmentation& a) {
  FIRN_CHECK(is_probability(a.flip) && is_probability(a.erase), op, "",
             "flip and erase are probabilities in [0, 1], not {} and {}", a.flip, a.erase);
  FIRN_CHECK(a.crop_padding >= 0, op, "", "crop_padding must be 0 or more, not {}", a.crop_padding);
  FIRN_CHECK(a.erase_area_min > 0 && a.erase_area_min <= a.erase_area_max && a.erase_area_max <= 1,
             op, "", "erased areas must be a range in (0, 1], not from {} to {}", a.erase_area_min,
             a.erase_area_max);
  FIRN_CHECK(a.erase_aspect_min > 0 && a.erase_aspect_min <= a.erase_aspect_max &&
                 std::isfinite(static_cast<float>(a.erase_aspect_max)),
             op, "",
             "aspects of erased rectangles must be a range of positive numbers, not {} to {}",
             a.erase_aspect_min, a.erase_aspect_max);
  if (!a.on()) return;
  FIRN_CHECK(images.rank() == 3 || images.rank() == 4, op, "reshape the images",
             "images to be augmented must be [n, height, width] or [n, channels, height, width], "
             "not {}",
             describe(images));
  FIRN_CHECK(pixels_of(images) <= std::numeric_limits<int>::max(), op, "",
             "images to be augmented are too large: {}", describe(images));
  const std::int64_t height = images.size(-2), width = images.size(-1);
  FIRN_CHECK(a.crop_padding < std::min(height, width), op, "",
             "crop_padding {} can put images of {} x {} pixels out of sight", a.crop_padding,
             height, width);
}

}  // namespace

void check_set(const char* op, const LabelledImages& set, const BatchOptions& options) {
  FIRN_CHECK(set.images.defined() && set.labels.defined(), op, "", "images or labels undefined");
  FIRN_CHECK(set.images.dtype() == u8 && set.images.rank() >= 1 && set.images.device().is_cpu(), op,
             "", "images must be u8 [n, ...] on the CPU, not {}", describe(set.images));
  const DType l = set.labels.dtype();
  FIRN_CHECK(
      (l == u8 || l == i32 || l == i64) && set.labels.rank() == 1 && set.labels.device().is_cpu(),
      op, "", "labels must be u8, i32 or i64 [n] on the CPU, not {}", describe(set.labels));
  FIRN_CHECK(set.labels.size(0) == set.images.size(0), op, "",
             "numbers of images and labels differ: {} and {}", set.images.size(0),
             set.labels.size(0));
  FIRN_CHECK(options.batch_size >= 1, op, "", "batch_size must be at least 1, not {}",
             options.batch_size);
  FIRN_CHECK(std::isfinite(options.mean) && std::isfinite(options.stddev) && options.stddev > 0, op,
             "", "mean must be finite and stddev positive, not {} and {}", options.mean,
             options.stddev);
  FIRN_CHECK(is_floating(options.dtype), op, "", "x must be of a floating dtype, not {}",
             options.dtype);
  FIRN_CHECK(set.images.size(0) == 0 || pixels_of(set.images) > 0, op, "", "images are empty: {}",
             describe(set.images));
  check_augmentation(op, set.images, options.augment);
}

Tensor epoch_order(const char* op, std::int64_t n, const BatchOptions& options,
                   std::int64_t number) {
  FIRN_CHECK(number >= 0, op, "epochs count from 0", "epoch {}", number);
  const OwnerScope owner(Owner::data);
  const DeviceScope host(Device::cpu());
  if (!options.shuffle) return arange(n, 0, 1, i64);
  // Each epoch has its own 2^32 blocks of the stream, so any epoch can be made without the others.
  Generator generator;
  generator.set({scramble(options.seed), static_cast<std::uint64_t>(number) << 32});
  return randperm(n, generator);
}

math::Augment augment_of(const Tensor& images, const BatchOptions& options) {
  const Augmentation& a = options.augment;
  if (!a.on()) return {};
  const std::int64_t planes = images.rank() == 4 ? images.size(1) : 1;
  return {.planes = static_cast<int>(planes),
          .height = static_cast<int>(images.size(-2)),
          .width = static_cast<int>(images.size(-1)),
          .padding = static_cast<int>(a.crop_padding),
          .flip = math::chance(a.flip),
          .erase = math::chance(a.erase),
          .least_area = static_cast<float>(a.erase_area_min),
          .most_area = static_cast<float>(a.erase_area_max),
          .least_aspect = static_cast<float>(a.erase_aspect_min),
          .most_aspect = static_cast<float>(a.erase_aspect_max),
          .seed = scramble(options.seed)};
}

Shape batch_shape(const Tensor& images, std::int64_t n, bool flatten) {
  if (flatten) return {n, pixels_of(images)};
  Shape shape = images.shape();
  shape[0] = n;
  return shape;
}

}  // namespace firn::data
