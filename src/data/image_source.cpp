#include "data/image_source.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "data/collate.h"
#include "data/scramble.h"
#include "firn/ops/ops.h"
#include "firn/runtime/stream.h"
#include "kernels/batch.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "ImageDataset";

std::int64_t pixels_of(const Tensor& images) {
  std::int64_t pixels = 1;
  for (int i = 1; i < images.rank(); ++i) pixels *= images.shape()[i];
  return pixels;
}

bool is_probability(double p) { return p >= 0 && p <= 1; }

void check_options(const ImageOptions& options) {
  FIRN_CHECK(std::isfinite(options.mean) && std::isfinite(options.stddev) && options.stddev > 0,
             kOp, "0 and 1 leave the pixels as they are",
             "mean must be finite and stddev positive, not {} and {}", options.mean,
             options.stddev);
  FIRN_CHECK(is_floating(options.dtype), kOp, "f32 is the default",
             "x must be of a floating dtype, not {}", options.dtype);
  const Augmentation& a = options.augment;
  FIRN_CHECK(is_probability(a.flip) && is_probability(a.erase), kOp, "0 leaves them out",
             "flip and erase are probabilities in [0, 1], not {} and {}", a.flip, a.erase);
  FIRN_CHECK(a.crop_padding >= 0, kOp, "0 leaves the crop out",
             "crop_padding must be 0 or more, not {}", a.crop_padding);
  FIRN_CHECK(a.erase_area_min > 0 && a.erase_area_min <= a.erase_area_max && a.erase_area_max <= 1,
             kOp, "shares of the image, as 0.02 to 0.33",
             "erased areas must be a range in (0, 1], not from {} to {}", a.erase_area_min,
             a.erase_area_max);
  FIRN_CHECK(a.erase_aspect_min > 0 && a.erase_aspect_min <= a.erase_aspect_max &&
                 std::isfinite(static_cast<float>(a.erase_aspect_max)),
             kOp, "width over height, as 0.3 to 3.3",
             "aspects of erased rectangles must be a range of positive numbers, not {} to {}",
             a.erase_aspect_min, a.erase_aspect_max);
}

std::shared_ptr<const DatasetSource> labelled(const LabelledImages& set) {
  FIRN_CHECK(set.images.defined() && set.labels.defined(), kOp, "give both",
             "images or labels undefined");
  const DType l = set.labels.dtype();
  FIRN_CHECK(
      (l == u8 || l == i32 || l == i64) && set.labels.rank() == 1 && set.labels.device().is_cpu(),
      kOp, "cast them and move them to the CPU",
      "labels must be u8, i32 or i64 [n] on the CPU, not {}", describe(set.labels));
  FIRN_CHECK(set.images.rank() >= 1 && set.labels.size(0) == set.images.size(0), kOp,
             "a label for each image", "numbers of images and labels differ: {} and {}",
             describe(set.images), describe(set.labels));
  const Surroundings plain;
  return std::make_shared<const TensorSource>(
      std::vector<Tensor>{set.images, set.labels.detach().to(i64)});
}

}  // namespace

ImageSource::ImageSource(std::shared_ptr<const DatasetSource> set, const ImageOptions& options)
    : set_(std::move(set)),
      tensors_(dynamic_cast<const TensorSource*>(set_.get())),
      options_(options) {
  check_options(options_);
  if (tensors_) check_images(tensors_->fields()[0]);
}

void ImageSource::check_images(const Tensor& images) const {
  FIRN_CHECK(images.dtype() == u8 && images.rank() >= 1 && images.device().is_cpu(), kOp,
             "field 0 of a sample is its image", "images must be u8 [n, ...] on the CPU, not {}",
             describe(images));
  FIRN_CHECK(images.size(0) == 0 || pixels_of(images) > 0, kOp, "an image has 1 pixel or more",
             "images are empty: {}", describe(images));
  const Augmentation& a = options_.augment;
  if (!a.on()) return;
  FIRN_CHECK(images.rank() == 3 || images.rank() == 4, kOp, "reshape the images",
             "images to be augmented must be [n, height, width] or [n, channels, height, width], "
             "not {}",
             describe(images));
  FIRN_CHECK(pixels_of(images) <= std::numeric_limits<int>::max(), kOp,
             "resize_image() makes them smaller", "images to be augmented are too large: {}",
             describe(images));
  const std::int64_t height = images.size(-2), width = images.size(-1);
  FIRN_CHECK(a.crop_padding < std::min(height, width), kOp, "pad less than the image is wide",
             "crop_padding {} can put images of {} x {} pixels out of sight", a.crop_padding,
             height, width);
}

const std::vector<Tensor>* ImageSource::tensors() const noexcept {
  return tensors_ ? &tensors_->fields() : nullptr;
}

Sample ImageSource::bytes(std::span<const std::int64_t> indices, const DrawContext& context) const {
  Sample batch = set_->collect(indices, context.inner());
  FIRN_CHECK(!batch.empty() && batch[0].defined() && batch[0].rank() >= 1 &&
                 batch[0].size(0) == static_cast<std::int64_t>(indices.size()),
             kOp, "field 0 of its samples is the image",
             "the set below returned no image for each of {} samples", indices.size());
  check_images(batch[0]);
  batch[0] = contiguous(batch[0]);
  return batch;
}

Sample ImageSource::take(std::int64_t index, const DrawContext& context) const {
  Sample sample = collect({&index, 1}, context);
  for (Tensor& field : sample) field = field.select(0, 0);
  return sample;
}

Sample ImageSource::collect(std::span<const std::int64_t> indices,
                            const DrawContext& context) const {
  const Device cpu = Device::cpu();
  const auto n = static_cast<std::int64_t>(indices.size());
  const auto view_of = [&](const std::int64_t* numbers) {
    return ConstView{numbers, i64, cpu, {n}, {1}};
  };
  Sample batch;
  Tensor images;
  std::vector<std::int64_t> counted;
  const std::int64_t* rows = indices.data();
  if (tensors_) {
    images = tensors_->fields()[0];
    batch.resize(tensors_->fields().size());
    for (std::size_t f = 1; f < batch.size(); ++f) batch[f] = tensors_->rows(f, indices);
  } else {
    batch = bytes(indices, context);
    images = batch[0];
    counted.resize(indices.size());
    std::iota(counted.begin(), counted.end(), 0);
    rows = counted.data();
  }
  batch[0] = empty(batch_shape(images, n), options_.dtype, cpu);
  std::int64_t cursor[3] = {0, 0, context.epoch};
  kernels::take_batch(images.view(), ConstView{}, view_of(rows), view_of(indices.data()),
                      View{cursor, i64, cpu, {3}, {1}}, options_.mean, options_.stddev,
                      augment(images, context), batch[0].mutable_view(), View{},
                      current_stream(cpu));
  return batch;
}

math::Augment ImageSource::augment(const Tensor& images, const DrawContext& context) const {
  const Augmentation& a = options_.augment;
  if (!a.on()) return {};
  return {.planes = static_cast<int>(images.rank() == 4 ? images.size(1) : 1),
          .height = static_cast<int>(images.size(-2)),
          .width = static_cast<int>(images.size(-1)),
          .padding = static_cast<int>(a.crop_padding),
          .flip = math::chance(a.flip),
          .erase = math::chance(a.erase),
          .least_area = static_cast<float>(a.erase_area_min),
          .most_area = static_cast<float>(a.erase_area_max),
          .least_aspect = static_cast<float>(a.erase_aspect_min),
          .most_aspect = static_cast<float>(a.erase_aspect_max),
          .seed = seed_for(context.seed, Purpose::augment)};
}

Shape ImageSource::batch_shape(const Tensor& images, std::int64_t n) const {
  if (options_.flatten) return {n, pixels_of(images)};
  Shape shape = images.shape();
  shape[0] = n;
  return shape;
}

ImageDataset::ImageDataset(std::shared_ptr<const ImageSource> source)
    : Dataset(source), images_(std::move(source)) {}

ImageDataset::ImageDataset(const LabelledImages& set, const ImageOptions& options) try
    : ImageDataset(std::make_shared<const ImageSource>(labelled(set), options)) {}
FIRN_OUT_OF_MEMORY("ImageDataset")

ImageDataset::ImageDataset(const Dataset& set, const ImageOptions& options) try
    : ImageDataset(std::make_shared<const ImageSource>(set.source(), options)) {}
FIRN_OUT_OF_MEMORY("ImageDataset")

const ImageOptions& ImageDataset::options() const {
  source();  // throws if this was moved from
  return images_->options();
}

}  // namespace firn::data
