// Trace: the notes of a checkpointed function's first run, the tensors that a later run hands over,
// and the checks that both are alike.
#include "autograd/segment/trace.h"

#include <algorithm>
#include <string_view>

#include "autograd/node.h"
#include "base/check.h"
#include "firn/memory/labels.h"
#include "firn/runtime/spans.h"
#include "firn/thread_context.h"
#include "kernels/value_hash.h"

namespace firn::autograd {
namespace {

/// Names the module in an error: "blocks.3", or the type of the outermost module.
void name_module(Error& e, std::uint32_t label) noexcept {
  try {
    const std::string_view path = runtime::module_path(label);
    e.set_module(path.substr(path.find('.') + 1));
  } catch (...) {  // no memory for the path: keep the error itself
  }
}

/// Throws Error: the function is not the same the second time.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  Error e(kCheckpoint, fmt::format(format, std::forward<Args>(args)...),
          "the function must do the same again: until the backward pass, do not change what it "
          "captures or settings of checkpoints, and draw random numbers from firn's generators");
  name_module(e, thread_context.labels.module);
  throw e;
}

void hash_into(const Tensor& sum, const Tensor& t) {
  kernels::value_hash(t.view(), sum.mutable_view(), current_stream(t.device()));
}

}  // namespace

void Segment::run_again(std::uint32_t place) {
  FIRN_CHECK(!computing_, kCheckpoint, "call backward() when checkpoint() has returned",
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
  const runtime::Span span(runtime::SpanKind::phase, runtime::kRecomputePhase);
  Trace trace(*this, place);
  if (trace.missing_ == 0) return;
  try {
    again_();
    if (trace.missing_ == 0) return;  // the function has caught Done
    refuse("the function ended before {} of the tensors that the backward pass needs were computed",
           trace.missing_);
  } catch (const Trace::Done&) {
  } catch (Error& e) {
    drop_up_to(place);
    name_module(e, module_);
    throw;
  } catch (...) {
    drop_up_to(place);
    throw;
  }
}

Trace::Trace(Segment& segment)
    : segment_(&segment),
      log_(*segment.log_),
      outer_(thread_context.trace),
      mode_(Mode::recording),
      outermost_(outer_ && outer_->segment_->recomputes() ? outer_->outermost_ : segment.number_),
      number_before_(thread_context.labels.segment),
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
  thread_context.labels.segment = segment.number_;
  thread_context.trace = this;
}

Trace::Trace(Segment& segment, std::uint32_t place)
    : segment_(&segment),
      log_(*segment.log_),
      outer_(thread_context.trace),
      mode_(Mode::filling),
      outermost_(0),
      number_before_(thread_context.labels.segment),
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
  thread_context.labels.segment = 0;
  thread_context.trace = this;
}

Trace::Trace(SegmentLog& log)
    : segment_(nullptr),
      log_(log),
      outer_(thread_context.trace),
      mode_(Mode::discarding),
      outermost_(0),
      number_before_(thread_context.labels.segment),
      first_sequence_(next_sequence()),
      tape_{log_.draws, true},
      tape_scope_(&tape_) {
  thread_context.trace = this;
}

Trace::~Trace() {
  thread_context.trace = outer_;
  thread_context.labels.segment = number_before_;
  if (!recording()) return;
  release_products();
  // The outer function gives it a new one.
  if (outer_ && outer_->segment_->recomputes()) segment_->again_ = nullptr;
}

bool Trace::made_before(const Node& node) const noexcept { return node.sequence < first_sequence_; }

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
        name_module(e, thread_context.labels.module);
        throw;
      }
    }
    node.saved[slot] = {t.detach(), version};
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
    results[i] = kept.results[i].defined() ? kept.results[i].detach() : Tensor();
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
  for (const Tensor& t : results) made.results.push_back(t.defined() ? t.detach() : t);
}

void Trace::release_products() {
  constexpr double kCheap = 0.1;  // share of the work of all products
  std::uint32_t last = 0;         // products behind the last tensor to be filled are never needed
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

void detail::refuse_empty_function() {
  fail("checkpoint", "give a function of the inputs", "the function is empty");
}

detail::CheckpointScope::CheckpointScope(const CheckpointOptions& options,
                                         std::function<void()> again) try
    : impl_(std::make_shared<Impl>()) {
  Trace* const outer = thread_context.trace;
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

std::uint32_t detail::version_of(const Tensor& input) noexcept {
  return input.defined() ? input.storage()->version() : 0;
}

void detail::blame_input(const Error& e, std::size_t i, std::uint32_t version_then,
                         const Tensor& now) {
  if (version_of(now) == version_then || dynamic_cast<const OutOfMemory*>(&e)) return;
  Error named(
      autograd::kCheckpoint,
      fmt::format("input {} ({}) was written by {} since the first call: {}: {}", i, describe(now),
                  now.storage()->last_writer(), e.op(), e.message()),
      "keep the inputs as they are until the backward pass, or give the function a clone()");
  named.set_module(e.module());
  throw named;
}

}  // namespace firn
