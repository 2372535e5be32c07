#include "firn/data/resident_batches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "data/collate.h"
#include "data/image_source.h"
#include "data/loader/order.h"
#include "firn/memory.h"
#include "firn/ops/ops.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/rollback.h"
#include "firn/runtime/spans.h"
#include "firn/runtime/stream.h"
#include "kernels/batch.h"
#include "tensor/impl.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "ResidentBatches";
constexpr std::int64_t kReadAtOnce = 1024;  // samples

LoaderOptions checked(LoaderOptions o) {
  FIRN_CHECK(o.workers == 0 && o.prefetch == 0, kOp, "a kernel makes the batches",
             "workers and prefetch are {} and {}, not 0", o.workers, o.prefetch);
  FIRN_CHECK(o.bad_sample == BadSample::fail && !o.pad && !o.collate, kOp,
             "use a Loader, or leave the samples out with a Subset",
             "BadSample::skip, pad and collate have no meaning here");
  FIRN_CHECK(o.group.size() == 1 && o.chunk == 1, kOp,
             "take whole batches on every rank: run_batch() divides them",
             "a group of {} ranks and a chunk of {} have no meaning here", o.group.size(), o.chunk);
  return checked_options(kOp, std::move(o));
}

void check_labels(const Sample& batch) {
  FIRN_CHECK(batch.size() == 2, kOp, "a Loader takes any samples",
             "samples must be {{image, label}}, but have {} fields", batch.size());
  const Tensor& labels = batch[1];
  const DType l = labels.dtype();
  FIRN_CHECK((l == u8 || l == i32 || l == i64) && labels.rank() == 1, kOp,
             "a sample's label is one integer",
             "labels must be u8, i32 or i64 [], not {} in a batch of samples", describe(labels));
}

}  // namespace

/// State of ResidentBatches. A captured graph reads its tensors, so they keep their memory: seek()
/// writes into `order` and `cursor`.
struct ResidentBatches::State {
  State(std::shared_ptr<const ImageSource> s, LoaderOptions o)
      : set(std::move(s)), options(checked(std::move(o))), positions(kOp, set->size(), options) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::shared_ptr<const ImageSource> set;
  LoaderOptions options;
  Order positions;
  Tensor images;          ///< u8 [n, ...], row-major; this and the next three are on the device
  Tensor labels;          ///< u8, i32 or i64 [n]
  Tensor order;           ///< i64 [n]
  Tensor cursor;          ///< i64 [3], see kernels/batch.h
  LoaderPosition at;      ///< position of the next sample
  LoaderPosition before;  ///< position before the last batch
  std::int64_t end = 0;   ///< number of samples in this epoch

  void read();
  /// Saves the position for RollbackPoints of this thread.
  static void about_to_move(const std::shared_ptr<State>& s) {
    runtime::before_change(Rollback::data, s.get(), [&s]() -> std::function<void()> {
      return [s, at = s->at, end = s->end] {
        s->move_cursor(at);
        s->at = s->before = at;
        s->end = end;
      };
    });
  }
  static void about_to_reorder(const std::shared_ptr<State>& s) {
    runtime::before_change(Rollback::data, &s->order, [&s]() -> std::function<void()> {
      return [s, copy = s->order.clone()] {
        copy_bytes(s->order.mutable_view().data, s->options.device, copy.view().data, copy.device(),
                   copy.bytes());
      };
    });
  }
  Tensor order_of(std::int64_t number) const;
  std::int64_t remaining() const noexcept { return end - at.sample; }
  bool reorders() const noexcept { return options.shuffle || !options.lengths.empty(); }
  void require(std::int64_t count) const {
    FIRN_CHECK(count >= 1, kOp, "1 or more", "{} samples asked for", count);
    FIRN_CHECK(count <= remaining(), kOp, "begin_epoch() goes to the start of an epoch",
               "{} samples asked for, {} left in the epoch", count, remaining());
  }
  void go_to(LoaderPosition to, const Tensor& its_order);
  void move_cursor(LoaderPosition to) const {
    const std::int64_t words[3] = {to.sample, 0, to.epoch};
    copy_bytes(cursor.mutable_view().data, options.device, words, Device::cpu(), sizeof words);
  }
};

void ResidentBatches::State::read() {
  const Device device = options.device;
  const std::int64_t n = set->size();
  if (const auto* tensors = set->tensors(); tensors || n == 0) {
    FIRN_CHECK(tensors, kOp, "give a set with samples", "the set has no samples");
    check_labels(*tensors);
    images = to_device((*tensors)[0], device);
    labels = to_device((*tensors)[1], device);
    return;
  }
  const DrawContext context{options.seed, 0};
  std::vector<std::int64_t> ids;
  for (std::int64_t first = 0; first < n; first += kReadAtOnce) {
    ids.resize(static_cast<std::size_t>(std::min(kReadAtOnce, n - first)));
    std::iota(ids.begin(), ids.end(), first);
    const Sample part = set->bytes(ids, context);
    check_labels(part);
    if (first == 0) {
      Shape all = part[0].shape();
      all[0] = n;
      images = empty(all, u8, device);
      labels = empty({n}, part[1].dtype(), device);
    }
    for (const auto& [whole, rows] : {std::pair{&images, &part[0]}, std::pair{&labels, &part[1]}}) {
      const Tensor place = whole->slice(0, first, first + static_cast<std::int64_t>(ids.size()));
      FIRN_CHECK(place.shape() == rows->shape() && place.dtype() == rows->dtype(), kOp,
                 "give them one size", "sample 0 is {}, samples from {} on are {}",
                 describe(*whole), first, describe(*rows));
      const Tensor packed = contiguous(*rows);
      copy_bytes(place.mutable_view().data, device, packed.view().data, packed.device(),
                 packed.bytes());
    }
  }
}

Tensor ResidentBatches::State::order_of(std::int64_t number) const {
  FIRN_CHECK(number >= 0, kOp, "epochs count from 0", "epoch {}", number);
  const OwnerScope owner(Owner::data);
  const std::int64_t n = set->size();
  const Tensor ids = empty({n}, i64, Device::cpu());
  require_memory(kOp, ids);
  positions.fill({number, 0}, {ids.mutable_view().as<std::int64_t>(), static_cast<std::size_t>(n)});
  return ids;
}

void ResidentBatches::State::go_to(LoaderPosition to, const Tensor& its_order) {
  if (reorders())
    copy_bytes(order.mutable_view().data, options.device, its_order.view().data, its_order.device(),
               its_order.bytes());
  move_cursor(to);
  at = before = to;
  end = std::max(to.sample, positions.samples());
}

ResidentBatches::ResidentBatches(const ImageDataset& set, const LoaderOptions& options) try {
  set.source();  // throws if it was moved from
  const Surroundings plain;
  state_ = std::make_shared<State>(set.images_, options);
  State& s = *state_;
  s.read();
  s.order = to_device(s.order_of(0), options.device);
  s.cursor = zeros({3}, i64, options.device);
  s.end = s.positions.samples();
}
FIRN_OUT_OF_MEMORY("ResidentBatches")

ResidentBatches::State& ResidentBatches::state() const {
  FIRN_CHECK(state_, kOp, "use the object that it was moved to", "these batches were moved away");
  return *state_;
}

std::int64_t ResidentBatches::batches() const { return state().positions.batches(); }
std::int64_t ResidentBatches::samples() const { return state().positions.samples(); }
std::int64_t ResidentBatches::set_size() const { return state().labels.numel(); }
const LoaderOptions& ResidentBatches::options() const { return state().options; }
std::int64_t ResidentBatches::remaining() const { return state().remaining(); }
std::int64_t ResidentBatches::next_size() const { return std::min(options().batch, remaining()); }

void ResidentBatches::begin_epoch(std::int64_t number) { seek({number, 0}); }
void ResidentBatches::seek(LoaderPosition position) try { prepare_seek(position)(); }
FIRN_OUT_OF_MEMORY(kOp)

std::string ResidentBatches::order_description() const { return state().positions.description(); }

LoaderPosition ResidentBatches::position() const { return state().at; }
LoaderPosition ResidentBatches::before_batch() const { return state().before; }

std::function<void()> ResidentBatches::prepare_seek(LoaderPosition to) const {
  State& s = state();
  runtime::refuse_capture(kOp, s.options.device, "an epoch's order is copied to the device");
  FIRN_CHECK(to.sample >= 0 && to.sample <= set_size(), kOp, "take positions from position()",
             "sample {} of an epoch of {} samples", to.sample, set_size());
  Tensor order = s.order_of(to.epoch);
  State::about_to_move(state_);
  if (s.reorders()) State::about_to_reorder(state_);
  return [state = state_, order = std::move(order), to] { state->go_to(to, order); };
}

Batch ResidentBatches::next() { return next(next_size()); }

Batch ResidentBatches::next(std::int64_t count) try {
  const runtime::Span span(runtime::SpanKind::phase, "next batch");
  State& s = state();
  s.require(count);  // before memory is allocated
  const Device device = s.options.device;
  const OwnerScope owner(Owner::data);
  const ImageOptions& o = s.set->options();
  Batch batch{empty(s.set->batch_shape(s.images, count), o.dtype, device),
              empty({count}, i64, device)};
  State::about_to_move(state_);
  kernels::take_batch(s.images.view(), s.labels.view(), s.order.view(), s.order.view(),
                      s.cursor.mutable_view(), o.mean, o.stddev,
                      s.set->augment(s.images, {s.options.seed, 0}), batch.x.mutable_view(),
                      batch.y.mutable_view(), current_stream(device));
  // Every replay takes a batch too. If the replay is abandoned, the position goes back.
  runtime::on_replay(device, [state = state_, count] {
    state->require(count);
    State::about_to_move(state);
    state->before = state->at;
    state->at.sample += count;
  });
  runtime::on_abandon(device, [state = state_, count] { state->at.sample -= count; });
  s.before = s.at;
  s.at.sample += count;
  return batch;
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn::data
