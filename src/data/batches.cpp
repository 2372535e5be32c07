// Batches are gathered on the CPU and then moved to options.device.
#include "firn/data/batches.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "data/batch_set.h"
#include "firn/memory.h"
#include "firn/ops/ops.h"
#include "firn/stream.h"
#include "kernels/batch.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "Batches";

}  // namespace

struct Batches::Source {
  Tensor images;  ///< u8 [n, ...], row-major
  Tensor labels;  ///< u8, i32 or i64 [n], row-major
};

Batches::Batches(LabelledImages set, const BatchOptions& options) try : options_(options) {
  check_set(kOp, set, options);
  const OwnerScope owner(Owner::data);
  source_ = std::make_shared<const Source>(Source{contiguous(set.images), contiguous(set.labels)});
}
FIRN_OUT_OF_MEMORY("Batches")

const Batches::Source& Batches::source() const {
  FIRN_CHECK(source_, kOp, "use the object that it was moved to", "these batches were moved away");
  return *source_;
}

std::int64_t Batches::size() const {
  const std::int64_t n = source().labels.numel();
  const std::int64_t b = options_.batch_size;
  return n / b + (!options_.drop_last && n % b != 0 ? 1 : 0);
}

std::int64_t Batches::samples() const {
  const std::int64_t n = source().labels.numel();
  return options_.drop_last ? n - n % options_.batch_size : n;
}

Batches::Epoch Batches::epoch(std::int64_t number) const {
  const std::int64_t samples = source().labels.numel();
  Epoch e;
  e.source_ = source_;
  e.options_ = options_;
  e.number_ = number;
  e.size_ = size();
  e.order_ = epoch_order(kOp, samples, options_, number);
  return e;
}

Batch Batches::Epoch::operator[](std::int64_t index) const {
  FIRN_CHECK(source_, kOp, "use the object that it was moved to", "this epoch was moved away");
  FIRN_CHECK(index >= 0 && index < size_, kOp, "", "batch {} of an epoch of {}", index, size_);
  std::int64_t cursor[3] = {index * options_.batch_size, 0, number_};
  const std::int64_t n = std::min(options_.batch_size, source_->labels.numel() - cursor[0]);
  const OwnerScope owner(Owner::data);
  const Device cpu = Device::cpu();
  const Shape shape = batch_shape(source_->images, n, options_.flatten);
  const Batch batch{empty(shape, options_.dtype, cpu), empty({n}, i64, cpu)};
  kernels::take_batch(source_->images.view(), source_->labels.view(), order_.view(),
                      View{cursor, i64, cpu, {3}, {1}}, options_.mean, options_.stddev,
                      augment_of(source_->images, options_), batch.x.mutable_view(),
                      batch.y.mutable_view(), current_stream(cpu));
  return {batch.x.to(options_.device), batch.y.to(options_.device)};
}

Batches::Iterator Batches::Epoch::begin() const { return Iterator(*this); }

Batches::Iterator::Iterator(const Epoch& epoch) : epoch_(epoch) {
  if (epoch_.size() > 0) batch_ = epoch_[0];
}

Batches::Iterator& Batches::Iterator::operator++() {
  batch_ = {};  // the next batch reuses the memory, unless the user kept a handle
  if (++index_ < epoch_.size()) batch_ = epoch_[index_];
  return *this;
}

}  // namespace firn::data
