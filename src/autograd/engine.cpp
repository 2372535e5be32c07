// The walk: nodes run in the reverse order of their recording, each once its gradient is complete.
// A node's inputs were recorded before it, so that order is a topological one: no counting of
// consumers is needed, and the same graph always runs in the same order.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autograd/cycle.h"
#include "autograd/graph_backward.h"
#include "autograd/leaf.h"
#include "autograd/node.h"
#include "autograd/reading.h"
#include "base/check.h"
#include "firn/memory/labels.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/spans.h"
#include "firn/thread_context.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"

namespace firn {
namespace autograd {
namespace {

/// Numbers the passes of all threads: a hook that is added during one runs from the next one on.
std::atomic<std::uint64_t> next_pass{0};

/// The nodes whose gradient has begun to arrive, latest recorded first. Each running backward() has
/// one queue. Queues nest if a hook or a custom function calls backward() itself.
class Queue {
 public:
  /// Gradients that have arrived at some nodes.
  using Found = std::unordered_map<const Node*, Tensor>;
  /// With `found`, leaves keep their gradients, and gradients that reach its nodes are stored
  /// there.
  explicit Queue(Found* found = nullptr)
      : pass_(begin_pass()), found_(found), outer_(std::exchange(of_thread_.current, this)) {}
  ~Queue() {
    for (Node* n : heap_) leave(*n);  // none are left, unless a backward function has thrown
    of_thread_.current = outer_;
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  static Queue& current() noexcept { return *of_thread_.current; }
  /// Returns true if a backward() of this thread is running.
  static bool running() noexcept { return of_thread_.current != nullptr; }

  bool empty() const noexcept { return heap_.empty(); }
  void push(Node& n) {
    if (n.pass == this) return;
    FIRN_CHECK(!n.pass, n.op, "call it when the outer backward() has returned",
               "a backward() was called from a hook or a backward function, and it reached a part "
               "of the graph that the outer backward() has not finished");
    heap_.push_back(&n);
    std::push_heap(heap_.begin(), heap_.end(), earlier);
    n.pass = this;
  }
  Node& pop() noexcept {
    std::pop_heap(heap_.begin(), heap_.end(), earlier);
    Node& n = *heap_.back();
    heap_.pop_back();
    return n;
  }
  static void leave(Node& n) noexcept {
    n.pass = nullptr;
    n.grad = Tensor();
  }
  /// Makes the next pass of this thread notify collectors when a leaf is complete.
  static void await_next(bool on) noexcept { of_thread_.await_next = on; }
  bool awaited() const noexcept { return awaited_; }
  std::uint64_t pass() const noexcept { return pass_; }
  /// Returns true if `h` existed when this pass began.
  bool runs(const Hooks::Entry& h) const noexcept {
    return h.first_pass <= pass_ && h.counts(runtime::plan_number());
  }
  /// For grad(): stores the gradient of `n` if it is wanted. Returns true if `n` need not run.
  bool stops_at(const Node& n) const {
    if (!found_) return false;
    if (const auto place = found_->find(&n); place != found_->end()) place->second = n.grad;
    const SmallList<Ref<Node>>& inputs = n.inputs;
    for (int i = 0; i < inputs.size(); ++i)
      if (inputs[i] && inputs[i]->takes_gradient()) return false;
    return true;
  }
  /// For grad(): returns where the gradient of a leaf is collected; null in other passes.
  Tensor* found(const Node& leaf) const {
    if (!found_) return nullptr;
    const auto place = found_->find(&leaf);
    return place != found_->end() ? &place->second : nullptr;
  }
  /// Returns true if the gradient of `n` is collected at the node, before it goes on or into a
  /// leaf.
  bool collects(const Node& n) const noexcept {
    if (!n.is_leaf()) return true;
    if (found_) return false;  // threads may share leaves
    return n.hooks && std::any_of(n.hooks->list.begin(), n.hooks->list.end(),
                                  [this](const auto& h) { return runs(h); });
  }

 private:
  static bool earlier(const Node* a, const Node* b) noexcept { return a->sequence < b->sequence; }

  std::vector<Node*> heap_;
  std::uint64_t pass_;
  Found* found_;
  bool awaited_ = std::exchange(of_thread_.await_next, false);
  Queue* outer_;
  struct OfThread {
    Queue* current;
    bool await_next;
  };
  static inline thread_local constinit OfThread of_thread_{nullptr, false};
};

std::string described(const Node& n) { return fmt::format("{} {} {}", n.shape, n.dtype, n.device); }

}  // namespace

void run_hooks(const Node& n, Tensor& gradient, std::uint64_t pass, bool in_graph) {
  const std::vector<Hooks::Entry> hooks = n.hooks->list;  // a hook may add hooks, and remove any
  for (const Hooks::Entry& h : hooks) {
    if (h.first_pass > pass || !n.hooks->has(h.id)) continue;
    const Tensor given = gradient;
    const std::uint32_t version = given.storage()->version();
    Tensor replaced = (*h.run)(given);
    FIRN_CHECK(given.storage()->version() == version, n.op,
               "return a new gradient: it replaces the one that the hook is given",
               "hook {} wrote its gradient in place ({}), and others may share that memory", h.id,
               given.storage()->last_writer());
    if (!replaced.defined()) continue;
    FIRN_CHECK(replaced.shape() == n.shape && replaced.device() == n.device, n.op,
               "return a gradient of the tensor's shape, on its device",
               "hook {} returned {} as the gradient of {}", h.id, describe(replaced), described(n));
    FIRN_CHECK(replaced.dtype() == n.dtype, n.op,
               fmt::format("cast it: grad.to(firn::{})", to_string(n.dtype)),
               "hook {} returned {} as the gradient of {}", h.id, describe(replaced), described(n));
    // Under EnableGrad it has a graph, which later hooks must not see unless `in_graph`.
    gradient = replaced.requires_grad() && !in_graph ? replaced.detach() : std::move(replaced);
  }
}
std::uint64_t begin_pass() noexcept { return next_pass.fetch_add(1); }

namespace {

/// Runs after the node of a checkpoint: it holds what it held before, or nothing more.
void leave_segment(Node& n, bool retain_graph) noexcept {
  if (retain_graph) {
    n.segment->drop_again(n);
  } else {
    n.segment->forget(n);
    n.segment.reset();
  }
}

/// Runs after a node that might have added to the leaf.
void count_down(Leaf& leaf) {
  if (leaf.awaited > 0 && --leaf.awaited == 0) leaf.collector()->finish(leaf);
}

void run_node(Node& n, const Queue& queue, bool retain_graph) {
  FIRN_CHECK(!n.freed, n.op,
             "add the losses up and call backward() once, or pass {.retain_graph = true} to the "
             "backward() before; a state that goes on from batch to batch takes h = h.detach()",
             "an earlier backward() freed what this part of the graph had saved");
  const ReadingScope reads;
  if (n.hooks) run_hooks(n, n.grad, queue.pass(), false);
  if (queue.stops_at(n)) return;
  if (n.is_leaf()) {  // queued only because of its hooks
    add_to_leaf(static_cast<Leaf&>(n), n.grad);
    if (queue.awaited()) count_down(static_cast<Leaf&>(n));
    return;
  }
  const runtime::OpScope op(n.op);
  const runtime::ModuleScope module(n.module);
  const runtime::Span span(runtime::SpanKind::gradient, n.op);
  require_shown_weights(n);
  if (n.segment) [[unlikely]]
    n.segment->prepare(n);
  Backward b(n);
  try {
    n.run(b);
    if (thread_context.op_mode.anomaly) {
      for (int i = 0; i < n.inputs.size(); ++i)
        if (n.inputs[i] && received(*n.inputs[i]).defined())
          detail::check_finite(n.op, "backward", received(*n.inputs[i]));
    }
  } catch (...) {
    b.take_back_begun();
    throw;
  }
  if (!retain_graph) {
    n.saved.clear();
    n.freed = true;
  }
  if (n.segment) [[unlikely]]
    leave_segment(n, retain_graph);
  if (queue.awaited())
    for (int i = 0; i < n.inputs.size(); ++i)
      if (n.inputs[i] && n.inputs[i]->is_leaf()) count_down(static_cast<Leaf&>(*n.inputs[i]));
}

void walk(Queue& queue, bool retain_graph) {
  while (!queue.empty()) {
    Node& n = queue.pop();
    struct Leave {
      Node& node;
      ~Leave() { Queue::leave(node); }
    } const leave{n};
    run_node(n, queue, retain_graph);
  }
}

}  // namespace

std::uint64_t passes_begun() noexcept { return next_pass.load(); }

const Tensor& saved_by(const Node& node, int i) {
  const SavedTensor& s = node.saved[i];
  if (s.tensor.defined()) {
    const Storage& storage = *s.tensor.storage();
    FIRN_CHECK(
        storage.version() == s.version, node.op,
        storage.last_writer() == std::string_view(kOptimizerStep)
            ? "this graph is older than the step: a state that goes on from batch to batch takes "
              "h = h.detach(), and losses of one graph take their backward() before the step"
            : "use the form without underscore (for a part of a tensor slice_scatter() or "
              "index_put()), or edit a clone",
        "{} was saved for backward and then modified in place by {} (version {}, saved at {})",
        describe(s.tensor), storage.last_writer(), storage.version(), s.version);
  }
  return s.tensor;
}

Sink Backward::sink(int i) {
  Node& target = *node_.inputs[i];
  if (!target.takes_gradient()) return {buffer_for(target), 0};  // it is never read
  Queue& queue = Queue::current();
  if (!queue.collects(target)) {
    auto& leaf = static_cast<Leaf&>(target);
    if (Tensor* const place = queue.found(leaf)) {
      if (place->defined()) return exclusive(*place, leaf);
      *place = buffer_for(leaf);
      return {*place, 0};
    }
    borrow_arena(leaf);
    if (!has_gradient(leaf)) begun_.push_back(&leaf);
    return leaf_sink(leaf);
  }
  queue.push(target);
  if (target.grad.defined()) return exclusive(target.grad, target);
  target.grad = buffer_for(target);
  return {target.grad, 0};
}

void Backward::take_back_begun() noexcept {
  for (int i = 0; i < begun_.size(); ++i) take_back(*begun_[i]);
}

void Backward::accumulate(int i, const Tensor& contribution) {
  Node& target = *node_.inputs[i];
  if (!target.takes_gradient()) return;
  FIRN_CHECK(contribution.shape() == target.shape && is_floating(contribution.dtype()) &&
                 contribution.device() == target.device,
             node_.op,
             "a backward function returns floating gradients of its inputs' shapes and devices",
             "gradient {} for input {}, which is {}", describe(contribution), i, described(target));
  Queue& queue = Queue::current();
  if (Tensor* const place = target.is_leaf() ? queue.found(target) : nullptr;
      place && !place->defined() && contribution.dtype() == target.dtype) {
    *place = contribution.detach();
    return;
  }
  if (!target.grad.defined() && contribution.dtype() == target.dtype && queue.collects(target)) {
    queue.push(target);
    target.grad = contribution.detach();
    return;
  }
  const auto [grad, beta] = sink(i);
  add_into(grad, contribution, beta);
}

Tensor initial_gradient_for(const char* op, const Tensor& output, const Tensor& given) {
  if (given.defined()) {
    FIRN_CHECK(given.shape() == output.shape() && given.device() == output.device(), op,
               "give an initial gradient of the output's shape, dtype and device",
               "initial gradient {} for output {}", describe(given), describe(output));
    FIRN_CHECK(given.dtype() == output.dtype(), op,
               fmt::format("cast it: gradient.to(firn::{})", to_string(output.dtype())),
               "initial gradient {} for output {}", describe(given), describe(output));
    return given;
  }
  FIRN_CHECK(output.numel() == 1, op, "reduce it to a scalar, or give an initial gradient",
             "{} is not a scalar", describe(output));
  const Tensor initial = empty(output.shape(), output.dtype(), output.device());
  kernels::fill(initial.mutable_view(), 1.0, current_stream(initial.device()));
  return initial;
}

std::vector<Tensor> gradients_along(const NodeSet& path, const std::vector<Tensor>& outputs,
                                    const std::vector<Tensor>& seeds,
                                    const std::vector<Tensor>& inputs, bool retain_graph) {
  const NoGrad guard;
  const OpMode::Plain plain;
  const PathScope scope(&path);
  Queue::Found found;
  for (const Tensor& t : inputs) found[node_of(t)] = Tensor();
  Queue queue(&found);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Node* const root = node_of(outputs[i]);
    if (!path.contains(root)) continue;
    Tensor& at = root->is_leaf() ? found[root] : root->grad;
    if (!root->is_leaf()) queue.push(*root);
    if (at.defined()) {  // given twice
      const auto [grad, beta] = exclusive(at, *root);
      add_into(grad, seeds[i], beta);
    } else {
      at = seeds[i].detach();
    }
  }
  walk(queue, retain_graph);
  std::unordered_set<const Node*> done;  // an input may be given twice
  std::vector<Tensor> out;
  for (const Tensor& t : inputs) {
    const Node& n = *node_of(t);
    Tensor& gradient = found[&n];
    if (n.is_leaf() && n.hooks && gradient.defined() && done.insert(&n).second)
      run_hooks(n, gradient, queue.pass(), false);
    out.push_back(gradient);
  }
  return out;
}

namespace {
/// Returns true if hooks of `n` would run now. Hooks of a plan run within that plan alone.
bool has_hooks(const Node& n) noexcept {
  return n.hooks && std::any_of(n.hooks->list.begin(), n.hooks->list.end(),
                                [](const auto& h) { return h.counts(runtime::plan_number()); });
}
}  // namespace

bool takes_pending_gradient(const Tensor& output) noexcept {
  const Node* root = node_of(output);
  return root && root->takes_pending_gradient && !has_hooks(*root) && !root->freed;
}

void await_gradients(const Tensor& output) {
  Node* const root = node_of(output);
  if (!root) return;
  if (root->is_leaf()) {  // finished by the end of the pass
    auto& leaf = static_cast<Leaf&>(*root);
    if (leaf.collector()) leaf.awaited = 1;
    return;
  }
  std::unordered_set<const Node*> seen{root};
  std::vector<const Node*> left{root};
  while (!left.empty()) {
    const Node& n = *left.back();
    left.pop_back();
    for (int i = 0; i < n.inputs.size(); ++i) {
      Node* const input = n.inputs[i].get();
      if (!input) continue;
      if (!input->is_leaf()) {
        if (seen.insert(input).second) left.push_back(input);
        continue;
      }
      auto& leaf = static_cast<Leaf&>(*input);
      if (!leaf.collector() || !leaf.takes_gradient()) continue;
      // With hooks the leaf itself is the last that adds.
      if (leaf.awaited == 0 && has_hooks(leaf)) leaf.awaited = 1;
      ++leaf.awaited;
    }
  }
}

void backward_from(const Tensor& output, const Tensor& initial,
                   const kernels::PendingGradient* pending, bool retain_graph, bool awaited) {
  struct Lend {
    Node* node;
    Lend(Node* n, const kernels::PendingGradient* p) : node(n) {
      if (node) node->pending_gradient = p;
    }
    ~Lend() {
      if (node) node->pending_gradient = nullptr;
      Queue::await_next(false);
    }
  } const lend(pending ? node_of(output) : nullptr, pending);
  Queue::await_next(awaited);
  backward(output, {.initial_gradient = initial, .retain_graph = retain_graph});
}

}  // namespace autograd

void backward(const Tensor& output, const BackwardOptions& options) try {
  using namespace autograd;
  require_defined("backward", output);
  Node* root = node_of(output);
  FIRN_CHECK(root, "backward",
             Queue::running()
                 ? "recording is off in a backward pass: compute it under EnableGrad, from tensors "
                   "with set_requires_grad()"
                 : "compute it from tensors with set_requires_grad(), outside of NoGrad",
             "{} requires no gradient", describe(output));
  FIRN_CHECK(!thread_context.trace, "backward", "call it when checkpoint() has returned",
             "it was called by a function that is given to checkpoint()");
  const NoGrad guard;
  const OpMode::Plain plain;
  const PathScope all(nullptr);
  const Tensor initial = initial_gradient_for("backward", output, options.initial_gradient);
  const runtime::Span span(runtime::SpanKind::phase, "backward");
  Queue queue;
  if (!queue.collects(*root)) {
    add_to_leaf(static_cast<Leaf&>(*root), initial);
    return;
  }
  queue.push(*root);
  root->grad = initial.detach();
  walk(queue, options.retain_graph);
}
FIRN_OUT_OF_MEMORY("backward")

}  // namespace firn
