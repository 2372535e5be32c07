// Batches are gathered on the CPU: bytes of the chosen rows become f32 in one pass.
#include "firn/data/batches.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"
#include "firn/memory.h"
#include "firn/ops.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "Batches";

/// splitmix64's finalizer (Steele, Lea & Flood 2014): keeps the order's stream apart from the one
/// that initialises weights from the same seed.
std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Tensor labels_as_i64(const Tensor& labels) {
  const std::vector<std::int64_t> values = labels.to_vector<std::int64_t>();
  return tensor(values, labels.shape());
}

}  // namespace

struct Batches::Source {
  Tensor images;        ///< u8 [n, ...], row-major
  Tensor labels;        ///< i64 [n]
  std::int64_t pixels;  ///< bytes of one image
};

Batches::Batches(LabelledImages set, const BatchOptions& options) : options_(options) {
  FIRN_CHECK(set.images.defined() && set.labels.defined(), kOp, "", "images or labels undefined");
  FIRN_CHECK(set.images.dtype() == u8 && set.images.rank() >= 1 && set.images.device().is_cpu(),
             kOp, "", "images must be u8 [n, ...] on the CPU, not {}", describe(set.images));
  const DType l = set.labels.dtype();
  FIRN_CHECK((l == u8 || l == i32 || l == i64) && set.labels.rank() == 1, kOp, "",
             "labels must be u8, i32 or i64 [n], not {}", describe(set.labels));
  FIRN_CHECK(set.labels.size(0) == set.images.size(0), kOp, "",
             "numbers of images and labels differ: {} and {}", set.images.size(0),
             set.labels.size(0));
  FIRN_CHECK(options.batch_size >= 1, kOp, "", "batch_size must be at least 1, not {}",
             options.batch_size);
  FIRN_CHECK(std::isfinite(options.mean) && std::isfinite(options.stddev) && options.stddev > 0,
             kOp, "", "mean must be finite and stddev positive, not {} and {}", options.mean,
             options.stddev);
  const OwnerScope owner(Owner::data);
  Tensor images = contiguous(set.images);
  const std::int64_t n = images.size(0);
  std::int64_t pixels = 1;
  for (int i = 1; i < images.rank(); ++i) pixels *= images.shape()[i];
  FIRN_CHECK(n == 0 || pixels > 0, kOp, "", "images are empty: {}", describe(images));
  source_ =
      std::make_shared<const Source>(Source{std::move(images), labels_as_i64(set.labels), pixels});
}

std::int64_t Batches::size() const noexcept {
  const std::int64_t n = source_->labels.numel();
  const std::int64_t b = options_.batch_size;
  return n / b + (!options_.drop_last && n % b != 0 ? 1 : 0);
}

std::int64_t Batches::samples() const noexcept {
  const std::int64_t n = source_->labels.numel();
  return options_.drop_last ? n - n % options_.batch_size : n;
}

Batches::Epoch Batches::epoch(std::int64_t number) const {
  FIRN_CHECK(number >= 0, kOp, "epochs count from 0", "epoch {}", number);
  Epoch e;
  e.source_ = source_;
  e.options_ = options_;
  e.size_ = size();
  if (options_.shuffle) {
    const OwnerScope owner(Owner::data);
    // Each epoch has 2^32 blocks of the stream to itself, so any epoch can be made without the
    // others.
    Generator generator;
    generator.set({scramble(options_.seed), static_cast<std::uint64_t>(number) << 32});
    e.order_ = randperm(source_->labels.numel(), generator);
  }
  return e;
}

Batch Batches::Epoch::operator[](std::int64_t index) const {
  FIRN_CHECK(index >= 0 && index < size_, kOp, "", "batch {} of an epoch of {}", index, size_);
  const std::int64_t first = index * options_.batch_size;
  const std::int64_t n = std::min(options_.batch_size, source_->labels.numel() - first);
  const std::int64_t pixels = source_->pixels;
  Shape shape{n, pixels};
  if (!options_.flatten) {
    shape = source_->images.shape();
    shape[0] = n;
  }
  const OwnerScope owner(Owner::data);
  Batch batch{empty(shape, f32), empty({n}, i64)};
  const auto* images = source_->images.data<std::uint8_t>();
  const auto* labels = source_->labels.data<std::int64_t>();
  const std::int64_t* order = order_.defined() ? order_.data<std::int64_t>() : nullptr;
  auto* x = batch.x.data<float>();
  auto* y = batch.y.data<std::int64_t>();
  const float mean = options_.mean;
  const float stddev = options_.stddev;
  const bool plain = mean == 0 && stddev == 1;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t row = order != nullptr ? order[first + i] : first + i;
    const std::uint8_t* from = images + row * pixels;
    float* to = x + i * pixels;
    if (plain) {
      for (std::int64_t j = 0; j < pixels; ++j) to[j] = static_cast<float>(from[j]) / 255.0f;
    } else {
      for (std::int64_t j = 0; j < pixels; ++j)
        to[j] = (static_cast<float>(from[j]) / 255.0f - mean) / stddev;
    }
    y[i] = labels[row];
  }
  if (!options_.device.is_cpu()) return {batch.x.to(options_.device), batch.y.to(options_.device)};
  return batch;
}

Batches::Iterator Batches::Epoch::begin() const { return Iterator(*this); }

Batches::Iterator::Iterator(const Epoch& epoch) : epoch_(epoch) {
  if (epoch_.size() > 0) batch_ = epoch_[0];
}

Batches::Iterator& Batches::Iterator::operator++() {
  batch_ = {};  // its memory serves the next batch, unless somebody kept a handle
  if (++index_ < epoch_.size()) batch_ = epoch_[index_];
  return *this;
}

}  // namespace firn::data
