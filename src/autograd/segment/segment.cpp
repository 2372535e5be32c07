// Segment: drops the tensors that its nodes save, and computes or fetches them again.
#include "autograd/segment/segment.h"

#include <algorithm>
#include <atomic>

#include "autograd/node.h"
#include "base/check.h"
#include "firn/memory/labels.h"
#include "firn/thread_context.h"

namespace firn::autograd {
namespace {

constexpr std::int64_t kHashesInBlock = 64;

std::atomic<std::uint64_t> next_number{1};

}  // namespace

Replacement::Replacement(std::size_t index, const Tensor& t)
    : index_(index), values_(t.defined() ? t.detach() : t), requires_grad_(t.requires_grad()) {}

Tensor Replacement::tensor() const {
  Tensor t = values_.defined() ? values_.detach() : values_;
  if (requires_grad_) t.set_requires_grad();
  return t;
}

Segment::Segment(const CheckpointOptions& options, std::function<void()> again)
    : options_(options),
      again_(std::move(again)),
      autocast_(autocast_mode()),
      device_(default_device()),
      module_(thread_context.labels.module),
      number_(next_number.fetch_add(1, std::memory_order_relaxed)) {
  require_named(kCheckpoint, "Keep", options.keep, Keep::in_file);
  log_->keeps_products = options.keep == Keep::products;
}

Segment::~Segment() {
  if (!outer_) return;
  if (Item* const item = outer_->item_at(place_in_outer_)) item->inner = nullptr;
}

Segment::Item* Segment::item_at(std::uint32_t place) noexcept {
  const auto at = std::lower_bound(items_.begin(), items_.end(), place,
                                   [](const Item& i, std::uint32_t p) { return i.place < p; });
  return at != items_.end() && at->place == place ? &*at : nullptr;
}

void Segment::drop(Item& item) noexcept {
  if (!item.node) return;
  for (const Dropped& d : item.dropped) {
    if (d.slot >= item.node->saved.size() || !item.node->saved[d.slot].tensor.defined()) continue;
    item.node->saved[d.slot].tensor = Tensor();
    if (d.away) ++d.away->waiting;
  }
}

void Segment::drop_up_to(std::uint32_t place) noexcept {
  for (Item& i : items_)
    if (i.place <= place) drop(i);
}

std::shared_ptr<Segment::Away> Segment::move_away(const Tensor& t) {
  Storage& storage = *t.impl()->storage;
  for (std::size_t i = away_.size(); i-- > 0 && storage.saved_as() != 0;)
    if (away_[i].first == storage.saved_as())
      if (auto away = away_[i].second.lock(); away && away->version == storage.version())
        return away;
  const bool to_host = options_.keep == Keep::on_host;
  FIRN_CHECK(!to_host || !t.device().is_cpu(), kCheckpoint, "take Keep::in_file, or Keep::inputs",
             "Keep::on_host has no use for {}, which is in memory of the host", describe(t));
  auto away =
      std::make_shared<Away>(storage, to_host ? memory::Elsewhere::host : memory::Elsewhere::file);
  const std::uint64_t number = next_number.fetch_add(1, std::memory_order_relaxed);
  away_.emplace_back(number, away);
  storage.mark_saved(number);
  return away;
}

void Segment::fetch(Item& item) {
  for (const Dropped& d : item.dropped) {
    if (!d.away || item.node->saved[d.slot].tensor.defined()) continue;
    const Ref<Storage> back = d.away->back ? d.away->back : d.away->bytes.fetch();
    item.node->saved[d.slot] = {
        Tensor(Ref<TensorImpl>(new TensorImpl(back, d.shape, d.strides, d.offset, d.dtype))),
        back->version()};
    d.away->back = --d.away->waiting > 0 ? back : Ref<Storage>();
  }
}

void Segment::drop_again(Node& node) noexcept {
  if (Item* const item = item_at(node.place)) drop(*item);
}

void Segment::forget(const Node& node) noexcept {
  Item* const item = item_at(node.place);
  if (!item) return;
  for (const Dropped& d : item->dropped)
    if (d.away && node.saved.size() > d.slot && !node.saved[d.slot].tensor.defined() &&
        --d.away->waiting == 0)
      d.away->back.reset();
  item->node = nullptr;
  item->dropped.clear();
}

void Segment::prepare(Node& node) {
  Item* const item = item_at(node.place);
  if (!item) return;
  if (!recomputes()) return fetch(*item);
  const bool there =
      std::all_of(item->dropped.begin(), item->dropped.end(),
                  [&node](const Dropped& d) { return node.saved[d.slot].tensor.defined(); });
  if (there) return;
  const std::uint32_t place = node.place;
  const Ref<Segment> alive(this);
  run_again(place);
  // Objects that `again_` has captured belong to the outer function.
  if (outer_ && outer_->recomputes()) again_ = nullptr;
}

Tensor Segment::place_for_hash(Device device) {
  if (!hashes_.defined() || hashes_taken_ == kHashesInBlock || hashes_.device() != device) {
    const OwnerScope owner(Owner::workspace);
    hashes_ = empty({kHashesInBlock}, i64, device);
    hashes_taken_ = 0;
    zero_bytes(hashes_.impl()->data(), device, hashes_.bytes());
  }
  return Tensor(Ref<TensorImpl>(
      new TensorImpl(hashes_.impl()->storage, {1}, Strides{1}, hashes_taken_++, i64)));
}

}  // namespace firn::autograd
