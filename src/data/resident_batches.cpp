#include "firn/data/resident_batches.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "data/batch_set.h"
#include "firn/kernel_support.h"
#include "firn/memory.h"
#include "firn/ops/ops.h"
#include "firn/stream.h"
#include "kernels/batch.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "ResidentBatches";

}  // namespace

/// A captured graph reads these tensors, so they stay in place: begin_epoch() writes into `order`
/// and `cursor`.
struct ResidentBatches::State {
  BatchOptions options;
  Tensor images;  ///< u8 [n, ...], row-major, on the device like all that follow
  Tensor labels;  ///< u8, i32 or i64 [n]
  Tensor order;   ///< i64 [n]
  Tensor cursor;  ///< i64 [3], see kernels/batch.h
  std::int64_t samples = 0;
  std::int64_t epoch = -1;  ///< before the first begin_epoch() or seek()
  std::int64_t remaining = 0;

  void require(std::int64_t count) const {
    FIRN_CHECK(count >= 1 && count <= remaining, kOp, "begin_epoch() goes to the start of an epoch",
               "{} samples asked for, {} left in the epoch", count, remaining);
  }
  /// Updates the host's position for a batch, also at every replay of a graph that takes one.
  void take(std::int64_t count) {
    require(count);
    remaining -= count;
  }
};

ResidentBatches::ResidentBatches(const LabelledImages& set, const BatchOptions& options) try {
  check_set(kOp, set, options);
  const OwnerScope owner(Owner::data);
  const std::int64_t n = set.size();
  state_ = std::make_shared<State>(
      State{.options = options,
            .images = to_device(contiguous(set.images), options.device),
            .labels = to_device(contiguous(set.labels), options.device),
            .order = to_device(epoch_order(kOp, n, options, 0), options.device),
            .cursor = zeros({3}, i64, options.device),
            .samples = options.drop_last ? n - n % options.batch_size : n});
}
FIRN_OUT_OF_MEMORY("ResidentBatches")

ResidentBatches::State& ResidentBatches::state() const {
  FIRN_CHECK(state_, kOp, "use the object that it was moved to", "these batches were moved away");
  return *state_;
}

std::int64_t ResidentBatches::size() const {
  const std::int64_t n = samples(), b = options().batch_size;
  return n / b + (n % b != 0 ? 1 : 0);
}
std::int64_t ResidentBatches::samples() const { return state().samples; }
const BatchOptions& ResidentBatches::options() const { return state().options; }
std::int64_t ResidentBatches::remaining() const { return state().remaining; }
std::int64_t ResidentBatches::next_size() const {
  return std::min(options().batch_size, remaining());
}

std::int64_t ResidentBatches::set_size() const { return state().labels.numel(); }

void ResidentBatches::begin_epoch(std::int64_t number) { seek({number, 0}); }
void ResidentBatches::seek(LoaderPosition position) { prepare_seek(position)(); }

std::string ResidentBatches::order_description() const {
  const BatchOptions& o = options();
  // Another order than a Loader's of the same seed.
  return fmt::format("{} resident samples, seed {}{}", set_size(), o.seed,
                     o.shuffle ? ", shuffled" : "");
}

LoaderPosition ResidentBatches::position() const {
  const State& s = state();
  if (s.epoch < 0) return {};
  return {s.epoch, s.samples - s.remaining};
}

std::function<void()> ResidentBatches::prepare_seek(LoaderPosition to) const {
  const State& s = state();
  runtime::refuse_capture(kOp, s.options.device, "an epoch's order is copied to the device");
  FIRN_CHECK(to.sample >= 0 && to.sample <= set_size(), kOp, "",
             "sample {} of an epoch of {} samples", to.sample, set_size());
  Tensor order = epoch_order(kOp, s.labels.numel(), s.options, to.epoch);
  return [state = state_, order = std::move(order), to] {
    State& own = *state;
    const Device device = own.options.device;
    if (own.options.shuffle)
      copy_bytes(own.order.mutable_view().data, device, order.view().data, order.device(),
                 order.bytes());
    const std::int64_t cursor[3] = {to.sample, 0, own.options.augment.on() ? to.epoch : 0};
    copy_bytes(own.cursor.mutable_view().data, device, cursor, Device::cpu(), sizeof cursor);
    own.epoch = to.epoch;
    own.remaining = std::max<std::int64_t>(own.samples - to.sample, 0);
  };
}

Batch ResidentBatches::next() { return next(next_size()); }

Batch ResidentBatches::next(std::int64_t count) {
  State& s = state();
  s.require(count);  // before memory is allocated
  const Device device = s.options.device;
  const OwnerScope owner(Owner::data);
  Batch batch{empty(batch_shape(s.images, count, s.options.flatten), s.options.dtype, device),
              empty({count}, i64, device)};
  s.take(count);
  kernels::take_batch(s.images.view(), s.labels.view(), s.order.view(), s.cursor.mutable_view(),
                      s.options.mean, s.options.stddev, augment_of(s.images, s.options),
                      batch.x.mutable_view(), batch.y.mutable_view(), current_stream(device));
  runtime::on_replay(device, [state = state_, count] { state->take(count); });
  return batch;
}

}  // namespace firn::data
