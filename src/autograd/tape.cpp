// Recording: modes, nodes, and tensors that are saved for backward.
#include <atomic>
#include <cmath>

#include "autograd/batch_parts.h"
#include "autograd/node.h"
#include "autograd/weight_modes.h"
#include "base/check.h"
#include "firn/memory/labels.h"
#include "firn/thread_context.h"
#include "tensor/overlap.h"

namespace firn {
bool grad_enabled() noexcept { return thread_context.recording; }
NoGrad::NoGrad() noexcept : previous_(thread_context.recording) {
  thread_context.recording = false;
}
NoGrad::~NoGrad() { thread_context.recording = previous_; }
EnableGrad::EnableGrad() noexcept : previous_(thread_context.recording) {
  thread_context.recording = true;
}
EnableGrad::~EnableGrad() { thread_context.recording = previous_; }

Freeze::Freeze(std::vector<Tensor> leaves) try : part_(thread_context.batch_part) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Tensor& t = leaves[i];
    FIRN_CHECK(t.defined(), "Freeze", "give net.parameters()", "tensor {} is undefined", i);
    const bool has_node = static_cast<bool>(t.impl()->node);
    FIRN_CHECK(!has_node || autograd::leaf_or_frozen(t), "Freeze",
               "give the leaves that it was computed from; detach() cuts a single tensor off",
               "tensor {}, {}, was made by an op", i, describe(t));
    if (has_node) frozen_.push_back(t);
  }
  if (part_) part_->begin(*this);
  set(true);
}
FIRN_OUT_OF_MEMORY("Freeze")

Freeze::~Freeze() {
  if (part_) part_->end(*this);
  set(false);
}

void Freeze::set(bool on) const noexcept {
  for (const Tensor& t : frozen_) {
    autograd::Leaf& leaf = *autograd::leaf_or_frozen(t);
    on ? ++leaf.frozen : --leaf.frozen;
  }
}

AnomalyMode::AnomalyMode() noexcept : previous_(thread_context.op_mode.anomaly) {
  thread_context.op_mode.anomaly = true;
}
AnomalyMode::~AnomalyMode() { thread_context.op_mode.anomaly = previous_; }

namespace autograd {

void Node::dispose() noexcept {
  // Deleting a node may drop the last reference to its inputs. Those come back here and are queued;
  // the outermost call deletes them.
  struct Disposal {
    Node* queue;
    bool runs;
  };
  thread_local constinit Disposal disposal{nullptr, false};
  next_disposed_ = disposal.queue;
  disposal.queue = this;
  if (disposal.runs) return;
  disposal.runs = true;
  while (Node* n = disposal.queue) {
    disposal.queue = n->next_disposed_;
    delete n;
  }
  disposal.runs = false;
}

Leaf* leaf_of(const Tensor& t) noexcept {
  Node* n = node_of(t);
  return n && n->is_leaf() ? static_cast<Leaf*>(n) : nullptr;
}

Leaf* leaf_or_frozen(const Tensor& t) noexcept {
  Node* n = t.defined() ? static_cast<Node*>(t.impl()->node.get()) : nullptr;
  return n && n->is_leaf() ? static_cast<Leaf*>(n) : nullptr;
}

std::uint32_t weights_shown_to(const Node& node) noexcept {
  std::uint32_t sum = 0;
  for (int i = 0; i < node.inputs.size(); ++i) {
    const Node* const input = node.inputs[i].get();
    if (!input || !input->is_leaf()) continue;
    if (auto* const modes = static_cast<const Leaf*>(input)->modes()) sum += modes->changes();
  }
  return sum;
}

void require_shown_weights(const Node& node) {
  if (!WeightModes::any()) [[likely]]
    return;
  FIRN_CHECK(weights_shown_to(node) == node.weights_shown, node.op,
             "call net.train() before the forward pass, and evaluate before it or after the "
             "backward pass",
             "a module in evaluation mode was called since this part of the loss was computed, or "
             "computed it: it shows averaged weights, and a step trains others");
}

namespace {

void keep(Node& node, Tensor t, bool hashed = true) {
  const std::uint32_t version = t.defined() ? t.storage()->version() : 0;
  if (thread_context.trace && thread_context.trace->take(node, t, version, hashed)) [[unlikely]]
    t = Tensor();
  node.saved.push_back({std::move(t), version});
}

}  // namespace

void save(const Tensor& output, const std::vector<Tensor>& tensors,
          bool (*opaque)(std::size_t i)) try {
  Node* node = node_of(output);
  for (std::size_t i = 0; i < tensors.size(); ++i) keep(*node, tensors[i], !opaque || !opaque(i));
}
FIRN_OUT_OF_MEMORY("recording")

namespace {

/// Returns true if x shows a part of its memory, as a slice does.
bool is_part(const TensorImpl& x) {
  const auto elements = static_cast<std::size_t>(x.shape.product());
  return elements * size_of(x.dtype) < x.storage->bytes();
}

/// Operations that make a new tensor of the whole in place of a write to a part of it.
constexpr const char* kReplaces =
    "slice_scatter(), select_scatter() and index_put() replace a part in a new tensor";

}  // namespace

void check_in_place(const char* op, const Tensor& x, bool recorded, const char* hint) {
  require_defined(op, x);
  const TensorImpl& impl = *x.impl();
  FIRN_CHECK(!may_repeat(impl.shape, impl.strides), op, "write to x.clone()",
             "{} is expanded or has overlapping strides: several of its elements are one in memory",
             describe(x));
  if (!recorded) return;
  FIRN_CHECK(!leaf_of(x), op, "guard it with NoGrad, or use the form without underscore",
             "{} is a leaf that requires a gradient and cannot be written in place while recording",
             describe(x));
  FIRN_CHECK(
      impl.use_count() == 1 && impl.storage->use_count() == 1 && impl.storage->saved_as() == 0, op,
      hint            ? hint
      : is_part(impl) ? kReplaces
                      : "use the form without underscore",
      "{} cannot be written in place while recording: another handle, a view or a saved copy "
      "of it exists",
      describe(x));
}

void check_overwrite(const char* op, const Tensor& x) {
  check_in_place(op, x, false);
  const Node* node = node_of(x);
  if (!node || !thread_context.recording) return;
  FIRN_CHECK(!node->is_leaf(), op, "guard it with NoGrad",
             "{} is a leaf that requires a gradient, and overwriting it is not recorded",
             describe(x));
  FIRN_CHECK(false, op,
             is_part(*x.impl()) ? kReplaces : "assign a new tensor to it, or write to x.detach()",
             "{} was made by {} and belongs to its graph, and overwriting it is not recorded",
             describe(x), node->op);
}

namespace detail {

bool needs_recording(Inputs inputs) noexcept {
  if (!thread_context.recording) return false;
  for (const Tensor* t : inputs)
    if (node_of(*t)) return true;
  return false;
}
bool needs_recording(const std::vector<Tensor>& inputs) noexcept {
  if (!thread_context.recording) return false;
  for (const Tensor& t : inputs)
    if (node_of(t)) return true;
  return false;
}

namespace {

void watch_all(const char* op, std::span<const Tensor* const> inputs, const Tensor& output) {
  notify_listeners(op, inputs, output);
  if (thread_context.op_mode.anomaly) check_finite(op, "forward", output);
}

}  // namespace

void watch(const char* op, Inputs inputs, const Tensor& output) {
  watch_all(op, {inputs.begin(), inputs.size()}, output);
}
void watch(const char* op, const std::vector<Tensor>& inputs, const Tensor& output) try {
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : inputs) pointers.push_back(&t);
  watch_all(op, pointers, output);
}
FIRN_OUT_OF_MEMORY(op)

void check_finite(const char* op, const char* pass, const Tensor& t) {
  if (!is_floating(t.dtype())) return;
  const std::vector<double> values = t.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i)
    FIRN_CHECK(std::isfinite(values[i]), op, "look at the operands of this op",
               "the {} pass produced {} at element {} of {}", pass, values[i], i, describe(t));
}

namespace {

const Tensor& at(Inputs inputs, int i) { return **(inputs.begin() + i); }
const Tensor& at(const std::vector<Tensor>& inputs, int i) {
  return inputs[static_cast<std::size_t>(i)];
}

// One counter for all nodes: with one per kind of input list, backward's order is not topological.
std::atomic<std::uint64_t> sequence_counter{1};

template <class List>
void attach_to(Ref<Node> node, const char* op, const Tensor& output, const List& inputs,
               std::initializer_list<Saved> saved) {
  TensorImpl& impl = *output.impl();
  node->op = op;
  node->module = thread_context.labels.module;
  node->sequence = sequence_counter.fetch_add(1, std::memory_order_relaxed);
  node->shape = impl.shape;
  node->dtype = impl.dtype;
  node->device = impl.storage->device();
  node->format = format_of(impl.shape, impl.strides);
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    Node* input = node_of(at(inputs, i));
    FIRN_CHECK(!input || input->sequence < node->sequence, op,
               "this is a fault of firn: please report it",
               "the node of input {} ({}) has the number {}, which is not below this node's {}", i,
               input->op, input->sequence, node->sequence);
    node->inputs.push_back(Ref<Node>(input));
  }
  if (WeightModes::any()) [[unlikely]]
    node->weights_shown = weights_shown_to(*node);
  for (const Saved& s : saved) {
    Tensor t = s.which == -2 ? s.tensor : s.which == -1 ? output : at(inputs, s.which);
    // A node that saved its own output would never be freed.
    if (t.defined() && t.impl() == &impl) t = t.detach();
    if (s.which == -2 && t.defined()) t.storage()->made_by(op);
    keep(*node, std::move(t));
  }
  impl.node = Ref<GraphNode>(node.get());
}

}  // namespace

void attach(Ref<Node> node, const char* op, const Tensor& output, Inputs inputs,
            std::initializer_list<Saved> saved) try {
  attach_to(std::move(node), op, output, inputs, saved);
}
FIRN_OUT_OF_MEMORY(op)

void attach(Ref<Node> node, const char* op, const Tensor& output, const std::vector<Tensor>& inputs,
            std::initializer_list<Saved> saved) try {
  attach_to(std::move(node), op, output, inputs, saved);
}
FIRN_OUT_OF_MEMORY(op)

}  // namespace detail

std::uint64_t next_sequence() noexcept {
  return detail::sequence_counter.load(std::memory_order_relaxed);
}

}  // namespace autograd
}  // namespace firn
