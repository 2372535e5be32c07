// The source of an ImageDataset, which ResidentBatches use too.
#pragma once

#include <memory>

#include "data/tensor_source.h"
#include "firn/data/images.h"
#include "kernels/math/image/augment.h"

namespace firn::data {

class ImageSource : public DatasetSource {
 public:
  /// Throws Error unless the options are valid. If `set` is made of tensors, also checks its
  /// images.
  ImageSource(std::shared_ptr<const DatasetSource> set, const ImageOptions& options);

  std::int64_t size() const override { return set_->size(); }
  Sample get(std::int64_t index) const override { return take(index, {}); }
  Sample take(std::int64_t index, const DrawContext& context) const override;
  Sample collect(std::span<const std::int64_t> indices, const DrawContext& context) const override;

  const ImageOptions& options() const noexcept { return options_; }
  /// Returns the samples of the underlying set unchanged, with images as bytes.
  Sample bytes(std::span<const std::int64_t> indices, const DrawContext& context) const;
  /// Returns the fields of the underlying set if they are tensors, else null.
  const std::vector<Tensor>* tensors() const noexcept;

  /// Returns the augmentation of these u8 images [n, ...] with an epoch's draws.
  math::Augment augment(const Tensor& images, const DrawContext& context) const;
  /// Returns the shape of the pixels of `n` such images.
  Shape batch_shape(const Tensor& images, std::int64_t n) const;

 private:
  void check_images(const Tensor& images) const;

  std::shared_ptr<const DatasetSource> set_;
  const TensorSource* tensors_;  ///< set_, if it is a TensorSource: its images are read in place
  ImageOptions options_;
};

}  // namespace firn::data
