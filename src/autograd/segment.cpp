// Segments that are computed again: what the second pass hands over, and how it is checked.
#include "autograd/segment.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "autograd/node.h"
#include "base/check.h"
#include "firn/memory/labels.h"
#include "kernels/value_hash.h"

namespace firn::autograd {
namespace {

constexpr const char* kOp = "checkpoint";
constexpr std::int64_t kHashesInBlock = 64;

std::atomic<std::uint64_t> next_number{1};

/// The same elements outside of the graph.
Tensor alias(const Tensor& t) {
  const TensorImpl& i = *t.impl();
  return Tensor(Ref<TensorImpl>(new TensorImpl(i.storage, i.shape, i.strides, i.offset, i.dtype)));
}

/// The function is not the same the second time.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  const std::string_view path = runtime::module_path(runtime::labels.module);
  firn::detail::fail(kOp,
                     "the function must do the same again: until the backward pass, do not change "
                     "what it captures or settings of checkpoints, and draw random numbers from "
                     "firn's generators",
                     "{}{}{}", fmt::format(format, std::forward<Args>(args)...),
                     path.empty() ? "" : " in ", path);
}

void hash_into(const Tensor& sum, const Tensor& t) {
  kernels::value_hash(t.view(), sum.mutable_view(), current_stream(t.device()));
}

}  // namespace

Replacement::Replacement(std::size_t index, const Tensor& t)
    : index_(index), values_(t.defined() ? alias(t) : t), requires_grad_(t.requires_grad()) {}

Tensor Replacement::tensor() const {
  Tensor t = values_.defined() ? alias(values_) : values_;
  if (requires_grad_) t.set_requires_grad();
  return t;
}

// ---- Segment ----

Segment::Segment(const CheckpointOptions& options, std::function<void()> again)
    : options_(options),
      again_(std::move(again)),
      autocast_(autocast_mode()),
      device_(default_device()),
      module_(runtime::labels.module),
      number_(next_number.fetch_add(1, std::memory_order_relaxed)) {
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

std::shared_ptr<Segment::Away> Segment::move_away(const Tensor& t) {
  Storage& storage = *t.impl()->storage;
  for (std::size_t i = away_.size(); i-- > 0 && storage.saved_as() != 0;)
    if (away_[i].first == storage.saved_as())
      if (auto away = away_[i].second.lock(); away && away->version == storage.version())
        return away;
  const bool to_host = options_.keep == Keep::on_host;
  FIRN_CHECK(!to_host || !t.device().is_cpu(), kOp, "take Keep::in_file, or Keep::inputs",
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
  // What it has captured belongs to the outer function.
  if (outer_ && outer_->recomputes()) again_ = nullptr;
}

void Segment::run_again(std::uint32_t place) {
  FIRN_CHECK(!computing_, kOp, "call backward() when checkpoint() has returned",
             "a backward pass came to a function that is being computed");
  struct Computing {
    bool& on;
    ~Computing() { on = false; }
  } const computing{computing_ = true};
  if (!again_) outer_->run_again(place_in_outer_);
  const EnableGrad recording;
  const AutocastScope autocast(autocast_);
  const OwnerScope owner(Owner::recomputed);
  const DeviceScope device(device_);
  const runtime::OpScope op(nullptr);
  const runtime::ModuleScope module(module_);
  Trace trace(*this, place);
  if (trace.missing_ == 0) return;
  try {
    again_();
    if (trace.missing_ == 0) return;  // the function has caught what was to end it
    refuse("the function ended before {} of the tensors that the backward pass needs were computed",
           trace.missing_);
  } catch (const Trace::Done&) {
  } catch (...) {
    for (Item& i : items_)
      if (i.place <= place) drop(i);
    throw;
  }
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

// ---- Trace ----

Trace::Trace(Segment& segment)
    : segment_(&segment),
      log_(*segment.log_),
      outer_(current),
      mode_(Mode::recording),
      outermost_(outer_ && outer_->segment_->recomputes() ? outer_->outermost_ : segment.number_),
      number_before_(runtime::labels.segment),
      first_sequence_(next_sequence()),
      tape_{log_.draws, false},
      tape_scope_(&tape_) {
  if (outer_) {
    Segment& around = *outer_->segment_;
    outer_->log_.inner.push_back(segment.log_);
    around.items_.push_back({.place = ++outer_->place_, .inner = &segment});
    segment.outer_ = Ref<Segment>(&around);
    segment.place_in_outer_ = outer_->place_;
  }
  runtime::labels.segment = segment.number_;
  current = this;
}

Trace::Trace(Segment& segment, std::uint32_t place)
    : segment_(&segment),
      log_(*segment.log_),
      outer_(current),
      mode_(Mode::filling),
      outermost_(0),
      number_before_(runtime::labels.segment),
      first_sequence_(next_sequence()),
      tape_{log_.draws, true},
      tape_scope_(&tape_),
      target_(place) {
  for (const Segment::Item& i : segment.items_) {
    if (i.place > place) break;
    if (i.inner && i.inner->needs_function()) ++missing_;
    if (!i.node) continue;
    for (const Segment::Dropped& d : i.dropped)
      if (!i.node->saved[d.slot].tensor.defined()) ++missing_;
  }
  runtime::labels.segment = 0;
  current = this;
}

Trace::Trace(SegmentLog& log)
    : segment_(nullptr),
      log_(log),
      outer_(current),
      mode_(Mode::discarding),
      outermost_(0),
      number_before_(runtime::labels.segment),
      first_sequence_(next_sequence()),
      tape_{log_.draws, true},
      tape_scope_(&tape_) {
  current = this;
}

Trace::~Trace() {
  current = outer_;
  runtime::labels.segment = number_before_;
  if (!recording()) return;
  release_products();
  // The outer function makes it anew.
  if (outer_ && outer_->segment_->recomputes()) segment_->again_ = nullptr;
}

bool Trace::began_after(const Node& node) const noexcept { return node.sequence < first_sequence_; }

void Trace::next_op(const char* op) {
  ++place_;
  filled_ = nullptr;
  if (mode_ != Mode::filling) return;
  std::vector<Segment::Item>& items = segment_->items_;
  if (item_ == items.size() || items[item_].place != place_) return;
  filled_ = &items[item_++];
  const char* const before = filled_->node ? filled_->node->op : nullptr;
  if (filled_->inner || (before && std::string_view(before) != op))
    refuse("operation {} was {} and is {} the second time", place_,
           filled_->inner ? "checkpoint" : before, op);
}

bool Trace::take(Node& node, const Tensor& t, std::uint32_t version, bool hashed) {
  if (mode_ == Mode::discarding) return true;
  const int slot = node.saved.size();
  if (mode_ == Mode::filling) {
    if (filled_ && filled_->node) fill(slot, t, version);
    return true;
  }
  if (!t.defined() || !goes(t)) return false;
  std::vector<Segment::Item>& items = segment_->items_;
  if (items.empty() || items.back().place != place_) {
    items.push_back({.place = place_, .node = &node});
    node.segment = Ref<Segment>(segment_);
    node.place = place_;
  }
  Tensor hash;
  if (hashed && segment_->recomputes() && segment_->options_.check_values) {
    hash = segment_->place_for_hash(t.device());
    hash_into(hash, t);
  }
  Segment::Dropped dropped{slot, t.dtype(), t.shape(), std::move(hash)};
  if (segment_->recomputes()) {
    t.impl()->storage->mark_saved(segment_->number_);
  } else {
    dropped.strides = t.strides();
    dropped.offset = t.impl()->offset;
    dropped.away = segment_->move_away(t);
  }
  items.back().dropped.push_back(std::move(dropped));
  if (const auto& away = items.back().dropped.back().away) ++away->waiting;
  return true;
}

bool Trace::goes(const Tensor& t) const noexcept {
  if (segment_->recomputes()) return t.storage()->segment() >= outermost_ && !is_product(t);
  const Owner owner = t.storage()->owner();
  return (owner == Owner::activations || owner == Owner::recomputed) && t.storage()->bytes() > 0;
}

void Trace::fill(int slot, const Tensor& t, std::uint32_t version) {
  Node& node = *filled_->node;
  for (const Segment::Dropped& d : filled_->dropped) {
    if (d.slot != slot || node.saved[slot].tensor.defined()) continue;
    if (!t.defined() || t.shape() != d.shape || t.dtype() != d.dtype)
      refuse("{} saved {} {} and saves {} the second time", node.op, d.dtype, d.shape, describe(t));
    if (d.hash.defined()) {
      const Tensor now = segment_->place_for_hash(t.device());
      hash_into(now, t);
      try {
        kernels::require_same_hash(now.view(), d.hash.view(), node.op, current_stream(t.device()));
      } catch (Error& e) {
        e.set_module(runtime::module_path(runtime::labels.module));
        throw;
      }
    }
    node.saved[slot] = {alias(t), version};
    count_down();
    return;
  }
}

void Trace::count_down() {
  if (--missing_ == 0) throw Done();
}

bool Trace::is_product(const Tensor& t) const noexcept {
  for (const Product& p : log_.products)
    for (const Tensor& r : p.results)
      if (r.defined() && r.storage() == t.storage()) return true;
  return false;
}

std::size_t Trace::next_call(bool training, std::uint32_t label) {
  if (recording()) {
    log_.calls.push_back({training, label, {}, {}});
    return log_.calls.size() - 1;
  }
  if (call_ == log_.calls.size())
    refuse("the function calls more than the {} modules of the first time", call_);
  return call_++;
}

CallNote& Trace::call(std::size_t number) { return log_.calls[number]; }

bool Trace::next_product(std::span<Tensor> results) {
  if (product_ == log_.products.size()) return false;
  const Product& kept = log_.products[product_++];
  if (kept.results.size() != results.size()) return false;
  for (std::size_t i = 0; i < results.size(); ++i)
    results[i] = kept.results[i].defined() ? alias(kept.results[i]) : Tensor();
  return true;
}

bool Trace::next_op_is_last() const noexcept {
  if (mode_ != Mode::filling) return false;
  const std::vector<Segment::Item>& items = segment_->items_;
  return item_ < items.size() && items[item_].place == place_ + 1 &&
         (item_ + 1 == items.size() || items[item_ + 1].place > target_);
}

void Trace::keep_product(std::span<const Tensor> results, double work, ReadsResult reads) {
  Product& made = log_.products.emplace_back(Product{{}, work, place_ + 1, reads});
  for (const Tensor& t : results) made.results.push_back(t.defined() ? alias(t) : t);
}

void Trace::release_products() {
  constexpr double kCheap = 0.1;  // of the work of all products
  std::uint32_t last = 0;  // what comes after the last tensor to be filled is never asked for
  for (const Segment::Item& i : segment_->items_)
    if (i.node || i.inner) last = i.place;
  double allowed = 0;
  for (const Product& p : log_.products) allowed += kCheap * p.work;
  for (Product& p : log_.products) {
    const auto shared = [](const Tensor& t) {
      return t.defined() && t.impl()->storage->use_count() > 1;
    };
    const bool needed = p.place < last || (p.place == last && p.reads == ReadsResult::yes);
    if (needed && (p.work > allowed || std::any_of(p.results.begin(), p.results.end(), shared)))
      continue;
    if (needed) allowed -= p.work;
    p.results.clear();
  }
}

void Trace::enter_inner(std::function<void()>& again) {
  ++place_;
  if (mode_ != Mode::filling) return;
  std::vector<Segment::Item>& items = segment_->items_;
  if (item_ == items.size() || items[item_].place != place_) return;
  Segment::Item& item = items[item_++];
  if (!item.inner || !item.inner->needs_function()) return;
  item.inner->again_ = std::move(again);
  count_down();
}

SegmentLog& Trace::inner_log() {
  if (inner_ == log_.inner.size())
    refuse("the function calls checkpoint() more often than the {} times before", inner_);
  return *log_.inner[inner_++];
}

}  // namespace firn::autograd

namespace firn {

using autograd::Segment;
using autograd::Trace;

struct detail::CheckpointScope::Impl {
  Ref<Segment> segment;
  std::optional<Trace> trace;
};

detail::CheckpointScope::CheckpointScope(const CheckpointOptions& options,
                                         std::function<void()> again) try
    : impl_(std::make_unique<Impl>()) {
  Trace* const outer = Trace::current;
  if (outer && !outer->recording()) {
    autograd::SegmentLog& log = outer->inner_log();
    outer->enter_inner(again);
    impl_->trace.emplace(log);
    return;
  }
  impl_->segment = Ref<Segment>(new Segment(options, std::move(again)));
  impl_->trace.emplace(*impl_->segment);
}
FIRN_OUT_OF_MEMORY("checkpoint")

detail::CheckpointScope::~CheckpointScope() = default;

}  // namespace firn
