#include "autograd/leaf.h"

#include <memory>

#include "autograd/cycle.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"

namespace firn::autograd {
namespace {

/// Returns true if `buffer` may be written: it has the node's memory format and no other owner.
bool is_exclusive(const Tensor& buffer, const Node& n) {
  const bool ordered =
      n.format == MemoryFormat::contiguous ? buffer.is_contiguous() : buffer.is_channels_last();
  return buffer.impl()->use_count() == 1 && buffer.storage()->use_count() == 1 && ordered;
}

/// Is called before the leaf collects its gradient in other memory. If a capture that never runs
/// does that, the memory never holds a gradient: the leaf gets back its present one.
void keep_if_abandoned(Leaf& leaf) {
  if (!runtime::capturing(leaf.device)) [[likely]]
    return;
  const auto ran = std::make_shared<bool>(false);
  runtime::on_replay(leaf.device, [ran] { *ran = true; });
  runtime::on_abandon(leaf.device, [ran, before = leaf.collected, kept = Ref<Node>(&leaf)] {
    if (!*ran) static_cast<Leaf&>(*kept).collected = before;
  });
}

}  // namespace

void keep_if_planned(Leaf& leaf) {
  if (leaf.of_plan || !runtime::planning()) [[likely]]
    return;
  runtime::at_dry_end(&leaf,
                      [before = leaf.collected, touched = leaf.touched, kept = Ref<Node>(&leaf)] {
                        auto& again = static_cast<Leaf&>(*kept);
                        again.collected = before;
                        again.touched = touched;
                      });
}

void keep_if_of_cycle(const Leaf& leaf) {
  if (leaf.cycle && leaf.cycle != thread_context.cycle) leaf.cycle->about_to_change_gradients();
}

void add_into(const Tensor& target, const Tensor& x, float beta) {
  kernels::axpby(1.0, x.view(), beta, target.mutable_view(), current_stream(target.device()));
}

Tensor buffer_for(const Node& n) { return empty(n.shape, n.dtype, n.device, n.format); }

Sink exclusive(Tensor& buffer, const Node& n) {
  if (!is_exclusive(buffer, n)) {
    Tensor own = empty(buffer.shape(), buffer.dtype(), buffer.device(), n.format);
    add_into(own, buffer, 0);
    buffer = std::move(own);
  }
  return {buffer, 1};
}

void borrow_arena(Leaf& leaf) {
  if (!leaf.arena.defined() && leaf.collector()) [[unlikely]]
    leaf.collector()->begin(leaf);
}

Sink leaf_sink(Leaf& leaf) {
  keep_if_planned(leaf);
  keep_if_of_cycle(leaf);
  const bool first = leaf.touched++ == 0;
  if (leaf.arena.defined()) return {leaf.arena, first ? 0.0f : 1.0f};
  if (!leaf.collected.defined() || !is_exclusive(leaf.collected, leaf)) keep_if_abandoned(leaf);
  if (leaf.collected.defined()) return exclusive(leaf.collected, leaf);
  const OwnerScope owner(Owner::gradients);
  leaf.collected = buffer_for(leaf);
  return {leaf.collected, 0};
}

bool has_gradient(const Leaf& leaf) noexcept {
  return leaf.arena.defined() ? leaf.touched > 0 : leaf.collected.defined();
}

void take_back(Leaf& leaf) noexcept {
  if (!leaf.arena.defined()) {
    leaf.collected = Tensor();
    return;
  }
  leaf.touched = 0;
  try {
    zero_bytes(leaf.arena.impl()->data(), leaf.arena.device(), leaf.arena.bytes());
  } catch (const Error&) {  // NOLINT: the device is lost
  }
}

void add_to_leaf(Leaf& leaf, const Tensor& x) {
  borrow_arena(leaf);
  const bool had = has_gradient(leaf);
  try {
    const auto [grad, beta] = leaf_sink(leaf);
    add_into(grad, x, beta);
  } catch (...) {
    if (!had) take_back(leaf);
    throw;
  }
}

const Tensor& received(const Node& n) {
  if (!n.is_leaf() || n.grad.defined()) return n.grad;
  const auto& leaf = static_cast<const Leaf&>(n);
  if (!leaf.arena.defined()) return leaf.collected;
  return leaf.touched > 0 ? leaf.arena : n.grad;
}

}  // namespace firn::autograd
