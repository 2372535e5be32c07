// The set behind an ImageDataset, and what ResidentBatches share with it.
#pragma once

#include <memory>

#include "data/tensor_source.h"
#include "firn/data/images.h"
#include "kernels/math/image/augment.h"

namespace firn::data {

class ImageSource : public DatasetSource {
 public:
  /// Throws Error unless the options make sense, for images of `set` if it is made of tensors.
  ImageSource(std::shared_ptr<const DatasetSource> set, const ImageOptions& options);

  std::int64_t size() const override { return set_->size(); }
  Sample get(std::int64_t index) const override { return take(index, {}); }
  Sample take(std::int64_t index, const DrawContext& context) const override;
  Sample collect(std::span<const std::int64_t> indices, const DrawContext& context) const override;

  const ImageOptions& options() const noexcept { return options_; }
  /// The samples below as they are, images as bytes.
  Sample bytes(std::span<const std::int64_t> indices, const DrawContext& context) const;
  /// The fields below if they are tensors, else null.
  const std::vector<Tensor>* tensors() const noexcept;

  /// The augmentation of these u8 images [n, ...] in an epoch's draws.
  math::Augment augment(const Tensor& images, const DrawContext& context) const;
  /// The shape of the pixels of `n` such images.
  Shape batch_shape(const Tensor& images, std::int64_t n) const;

 private:
  void check_images(const Tensor& images) const;

  std::shared_ptr<const DatasetSource> set_;
  const TensorSource* tensors_;  ///< set_, if it is one: its images are read where they are
  ImageOptions options_;
};

}  // namespace firn::data
