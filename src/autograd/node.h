// The tape. It has one node for each recorded op. A node holds the op's name, the nodes of its
// inputs, the saved tensors, and one backward function. An op records itself in one statement:
//
//   Tensor exp(const Tensor& x) {
//     Tensor y = empty_like(x);
//     kernels::unary(UnaryOp::exp, x.view(), y.mutable_view(), math::Args{}, stream_of(y));
//     return record("exp", y, {&x}, {Saved::output()}, [](Backward& b) {
//       const auto [dx, beta] = b.sink(0);
//       kernels::unary_backward(UnaryOp::exp, b.grad().view(), b.saved(0).view(),
//                               dx.mutable_view(), math::Args{}, beta, b.stream());
//     });
//   }
//
// Every backward function accumulates: it writes beta * grad + contribution into the sink that it
// is given. A leaf's sink may be memory of an optimizer, in f32 whatever the leaf's dtype.
#pragma once

#include <initializer_list>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autograd/cycle.h"
#include "autograd/op_mode.h"
#include "autograd/segment/trace.h"
#include "firn/autograd.h"
#include "firn/memory/labels.h"
#include "firn/runtime/spans.h"
#include "firn/runtime/stream.h"
#include "firn/tensor.h"
#include "firn/thread_context.h"
#include "runtime/plan/plan_number.h"
#include "tensor/impl.h"

namespace firn::kernels {
struct PendingGradient;
}

namespace firn::autograd {

class Backward;
class GraphBackward;
class Node;
class CycleMember;
class Leaf;
class WeightModes;

/// The destination of the gradient with respect to one input: grad = beta * grad + contribution.
struct Sink {
  Tensor grad;  ///< has the input's shape and memory format; must not be read if beta is 0
  float beta;   ///< 0 or 1
};

/// A tensor that record() keeps for backward: the i-th input, the output, or another tensor such as
/// a statistic or a mask. It is kept outside the graph, with its version at that time.
class Saved {
 public:
  static Saved input(int i) { return {i, {}}; }
  static Saved output() { return {-1, {}}; }
  static Saved other(const Tensor& t) { return {-2, t}; }

  int which;
  Tensor tensor;

 private:
  Saved(int w, Tensor t) : which(w), tensor(std::move(t)) {}
};

/// The edges and saved tensors of a node: four items inline, more on the heap.
template <class T>
class SmallList {
 public:
  void push_back(T v) {
    if (size_ < 4) {
      inline_[size_] = std::move(v);
    } else {
      more_.push_back(std::move(v));
    }
    ++size_;
  }
  int size() const noexcept { return size_; }
  T& operator[](int i) noexcept { return i < 4 ? inline_[i] : more_[i - 4]; }
  const T& operator[](int i) const noexcept { return i < 4 ? inline_[i] : more_[i - 4]; }
  void clear() noexcept {
    for (int i = 0; i < size_ && i < 4; ++i) inline_[i] = T();
    more_.clear();
    size_ = 0;
  }

 private:
  T inline_[4]{};
  std::vector<T> more_;
  int size_ = 0;
};

struct SavedTensor {
  Tensor tensor;
  std::uint32_t version = 0;
};

/// The hooks of a node. Ids count up and are never reused.
struct Hooks {
  struct Entry {
    int id;
    std::uint64_t first_pass;  ///< number of the first backward() that runs it
    std::shared_ptr<const GradHook>
        run;                       ///< shared, so that a hook can remove itself while it runs
    std::uint32_t of_plan = 0;     ///< plan of a step that has added it; 0: none
    std::uint32_t removed_by = 0;  ///< plan that has removed it; 0: none

    /// Returns true if the hook exists in this plan. A plan adds and removes hooks only for itself.
    bool counts(std::uint32_t plan) const noexcept {
      return (of_plan == 0 || of_plan == plan) && (removed_by == 0 || removed_by != plan);
    }
  };
  std::vector<Entry> list;
  int made = 0;

  bool has(int id) const noexcept {
    for (const Entry& e : list)
      if (e.id == id) return e.counts(runtime::plan_number());
    return false;
  }
};

/// A node of the graph: a recorded op, or a leaf, which has no inputs and collects its gradient.
class Node : public GraphNode {
 public:
  virtual ~Node() {
    if (segment) [[unlikely]]
      segment->forget(*this);
  }
  static void* operator new(std::size_t bytes) { return memory::pool_allocate(bytes); }
  static void operator delete(void* p, std::size_t bytes) noexcept {
    memory::pool_release(p, bytes);
  }

  virtual void run(Backward& b) = 0;
  /// Runs the recorded form of the backward function (graph_backward.h). Returns false if the op
  /// has none.
  virtual bool run_recorded(GraphBackward&) { return false; }
  virtual bool is_leaf() const noexcept { return false; }

  const char* op = "";
  std::uint64_t sequence = 0;   ///< order of recording, 0 for leaves; inputs have smaller numbers
  SmallList<Ref<Node>> inputs;  ///< null where the input requires no gradient
  SmallList<SavedTensor> saved;
  bool freed = false;  ///< true if backward ran without retain_graph
  /// Number of the module whose call recorded the node, for memory reports (firn/memory/labels.h).
  std::uint32_t module = 0;
  /// The segment that recomputes the saved tensors, and the node's place in it; usually null.
  std::uint32_t place = 0;
  Ref<Segment> segment;
  /// True if its backward function can compute the initial gradient of the output in its own launch
  /// (Backward::pending_gradient).
  bool takes_pending_gradient = false;
  /// Sum of WeightModes::changes() over the leaves among its inputs when it was recorded.
  std::uint32_t weights_shown = 0;

  /// Number of Freeze guards that hold this leaf. A frozen leaf takes no gradient.
  std::uint32_t frozen = 0;
  /// The cycle for which this leaf collects. The leaf takes no gradient from passes of other
  /// cycles.
  Cycle* cycle = nullptr;
  bool takes_gradient() const noexcept {
    return frozen == 0 && (!cycle || !thread_context.cycle || cycle == thread_context.cycle) &&
           (!thread_context.gradient_path || thread_context.gradient_path->contains(this));
  }

  // The output's properties, with which its gradient's buffer is made:
  Shape shape;
  DType dtype = f32;
  Device device;
  MemoryFormat format = MemoryFormat::contiguous;
  Tensor grad;  ///< gradient that the running backward collects; empty outside of one
  const kernels::PendingGradient* pending_gradient = nullptr;  ///< owned by the running backward
  const void* pass = nullptr;    ///< running backward that has the node in its queue or runs it
  std::unique_ptr<Hooks> hooks;  ///< null until the first hook is added

 protected:
  /// Releases a chain of nodes iteratively, so a long chain does not recurse.
  void dispose() noexcept final;

 private:
  Node* next_disposed_ = nullptr;
};

/// Sum of WeightModes::changes() over a node's leaves. Call it only if WeightModes::any().
std::uint32_t weights_shown_to(const Node& node) noexcept;
/// Throws Error if a leaf of the node showed other values when the node was recorded, because its
/// gradient would belong to those values.
void require_shown_weights(const Node& node);

/// The node of a tensor that requires a gradient, else null. Frozen leaves count as not requiring
/// one, except while a function is recomputed: a leaf may not have been frozen the first time.
inline Node* node_of(const Tensor& t) noexcept {
  Node* n = t.defined() ? static_cast<Node*>(t.impl()->node.get()) : nullptr;
  return n && (n->frozen == 0 || computing_again()) ? n : nullptr;
}

/// Provides the memory for leaves' gradients during a backward pass, and takes each gradient when
/// the pass has added its last contribution.
class Collector {
 public:
  /// Called before the pass adds to a leaf without memory. Sets the leaf's `arena` to zeroed
  /// memory.
  virtual void begin(Leaf& leaf) = 0;
  /// Called when the pass adds nothing more to a leaf that await_gradients() has found.
  virtual void finish(Leaf& leaf) = 0;

 protected:
  ~Collector() = default;
};

/// A tensor that the user marked with set_requires_grad, or a parameter.
class Leaf final : public Node {
 public:
  void run(Backward&) override {}
  bool is_leaf() const noexcept override { return true; }

  /// The memory in which gradients add up over backward() calls. An optimizer may set its own
  /// memory as `arena` (f32, or f64 for f64 leaves). Its contents are undefined while `touched` is
  /// 0, and the first contribution is stored. Without an arena, `collected` is allocated on first
  /// use.
  Tensor arena;
  Tensor collected;
  /// Number of contributions that backward passes have added to this leaf. The owner of the arena
  /// resets it (S17), and sees by it passes that it did not run.
  std::uint32_t touched = 0;
  /// Number of nodes that may still add to the leaf in the pass under way (await_gradients()).
  std::uint32_t awaited = 0;
  /// True if a plan of a step has made the leaf, which ends with the plan.
  bool of_plan = false;

  /// If not null, the leaf shows one of two sets of values (autograd/weight_modes.h).
  WeightModes* modes() const noexcept { return extras_ ? extras_->modes : nullptr; }
  /// If not null, `arena` is defined only while this collector provides it.
  Collector* collector() const noexcept { return extras_ ? extras_->collector : nullptr; }
  /// State of the leaf's layer that takes part in cycles (autograd/cycle.h); usually null.
  std::shared_ptr<CycleMember> member() const noexcept {
    return extras_ ? extras_->member : nullptr;
  }
  /// Returns true if an optimizer trains the leaf.
  bool is_trained() const noexcept { return arena.defined() || collector(); }

  // These may throw std::bad_alloc, but not for null, nor after reserve_extras().
  void set_modes(WeightModes* modes) { set(&Extras::modes, modes); }
  void set_collector(Collector* collector) { set(&Extras::collector, collector); }
  void set_member(std::shared_ptr<CycleMember> member) { set(&Extras::member, std::move(member)); }
  void reserve_extras() {
    if (!extras_) extras_ = std::make_unique<Extras>();
  }

 private:
  /// Fields that most leaves do not need. They are allocated when one of them is first set.
  struct Extras {
    WeightModes* modes = nullptr;
    Collector* collector = nullptr;
    std::shared_ptr<CycleMember> member;
  };
  template <class T>
  void set(T Extras::*field, T value) {
    if (value) reserve_extras();
    if (extras_) extras_.get()->*field = std::move(value);
  }

  std::unique_ptr<Extras> extras_;
};

/// Announces a change of the leaf's gradient. A plan of a step restores the gradient at its end.
void keep_if_planned(Leaf& leaf);
/// Is called before the leaf's gradient changes. If an optimizer trains the leaf and none of its
/// passes is running, announces the change to the leaf's cycle.
void keep_if_of_cycle(const Leaf& leaf);

/// The leaf node of a tensor, or null if it is not a leaf that requires a gradient.
Leaf* leaf_of(const Tensor& t) noexcept;
/// Does what leaf_of() does, and finds frozen leaves too.
Leaf* leaf_or_frozen(const Tensor& t) noexcept;

/// The i-th saved tensor of a node. Throws Error that names both ops if it was modified in place
/// since.
const Tensor& saved_by(const Node& node, int i);

/// The name that a storage gives its last writer if that was an optimizer's update.
inline constexpr const char* kOptimizerStep = "the optimizer's step";

/// The argument of a backward function.
class Backward {
 public:
  explicit Backward(Node& node) : node_(node) {}
  /// The gradient of the output. It has the output's shape and dtype, and any strides.
  const Tensor& grad() const noexcept { return node_.grad; }
  /// See saved_by().
  const Tensor& saved(int i) const { return saved_by(node_, i); }
  /// Returns true if input i takes a gradient. Backward functions skip the work for other inputs.
  bool needs(int i) const noexcept { return node_.inputs[i] && node_.inputs[i]->takes_gradient(); }
  /// Returns the buffer into which the gradient of input i is accumulated. Call it once for each
  /// contribution, right before the kernel.
  Sink sink(int i);
  /// Adds a finished contribution with the input's shape and device, any strides and any floating
  /// dtype. The first contribution to an inner node is kept without a copy.
  void accumulate(int i, const Tensor& contribution);
  int input_count() const noexcept { return node_.inputs.size(); }
  const Shape& input_shape(int i) const noexcept { return node_.inputs[i]->shape; }
  MemoryFormat input_format(int i) const noexcept { return node_.inputs[i]->format; }
  Device input_device(int i) const noexcept { return node_.inputs[i]->device; }
  DType input_dtype(int i) const noexcept { return node_.inputs[i]->dtype; }
  Stream stream() const noexcept { return current_stream(node_.device); }
  /// Resets the leaves whose gradient began in the backward function, after that has thrown.
  void take_back_begun() noexcept;
  /// If not null, the backward function must compute this initial gradient into grad(), which is
  /// uninitialised. Null unless the node has set takes_pending_gradient.
  const kernels::PendingGradient* pending_gradient() const noexcept {
    return node_.pending_gradient;
  }

 private:
  Node& node_;
  SmallList<Leaf*> begun_;  ///< leaves without a gradient before this node ran
};

namespace detail {

template <class Fn>
class FnNode final : public Node {
 public:
  explicit FnNode(Fn f) : fn_(std::move(f)) {}
  void run(Backward& b) override { fn_(b); }
  bool run_recorded(GraphBackward& b) override {
    if constexpr (requires { fn_.again(b); }) {
      fn_.again(b);
      return true;
    } else {
      return false;
    }
  }

 private:
  Fn fn_;
};

using Inputs = std::initializer_list<const Tensor*>;
bool needs_recording(Inputs inputs) noexcept;
bool needs_recording(const std::vector<Tensor>& inputs) noexcept;
/// Fills in the node and attaches it to the output.
void attach(Ref<Node> node, const char* op, const Tensor& output, Inputs inputs,
            std::initializer_list<Saved> saved);
void attach(Ref<Node> node, const char* op, const Tensor& output, const std::vector<Tensor>& inputs,
            std::initializer_list<Saved> saved);
/// Throws Error if the output holds a non-finite value, in anomaly mode.
void check_finite(const char* op, const char* pass, const Tensor& t);
/// Handles an op that is watched: notifies listeners, and checks the output in anomaly mode.
void watch(const char* op, Inputs inputs, const Tensor& output);
void watch(const char* op, const std::vector<Tensor>& inputs, const Tensor& output);

}  // namespace detail

/// Takes the place of record() for an op that carries no gradient.
inline void unrecorded(const char* op, const Tensor& output, detail::Inputs inputs) {
  output.storage()->made_by(op);
  if (runtime::recording_spans()) [[unlikely]]
    runtime::end_operation(op);
  if (thread_context.op_mode.watched()) [[unlikely]]
    detail::watch(op, inputs, output);
}

/// Records that the op `op` (a string literal) computed `output` from `inputs`, and returns
/// `output`. If recording is off or no input requires a gradient, it only notifies the listeners.
/// `output` must not be an input and must have no node. Undefined inputs are allowed and take no
/// gradient.
template <class InputList = detail::Inputs, class Fn>
Tensor record(const char* op, Tensor output, const InputList& inputs,
              std::initializer_list<Saved> saved, Fn&& backward) {
  output.storage()->made_by(op);
  if (runtime::recording_spans()) [[unlikely]]
    runtime::end_operation(op);
  if (thread_context.op_mode.watched()) [[unlikely]]
    detail::watch(op, inputs, output);
  if (thread_context.trace) [[unlikely]]
    thread_context.trace->next_op(op);
  if (!detail::needs_recording(inputs)) return output;
  Ref<Node> node(new detail::FnNode<std::decay_t<Fn>>(std::forward<Fn>(backward)));
  detail::attach(std::move(node), op, output, inputs, saved);
  return output;
}

/// Saves `tensors` after those given to record(), for an op that knows their number only at run
/// time. Some may be undefined, and `output` may not be among them. A checkpoint compares their
/// values with the recomputed ones, except those for which opaque(i) is true: these may be partly
/// uninitialised.
void save(const Tensor& output, const std::vector<Tensor>& tensors,
          bool (*opaque)(std::size_t i) = nullptr);

/// The sequence number of the next node that any thread records.
std::uint64_t next_sequence() noexcept;

/// Number of backward passes that all threads have begun, for Hooks::Entry::first_pass.
std::uint64_t passes_begun() noexcept;

/// Returns true if backward_from() accepts a pending initial gradient for `output`. A node with
/// hooks does not, because hooks read that gradient before the node's backward function runs.
bool takes_pending_gradient(const Tensor& output) noexcept;
/// Runs backward() from `output` with the initial gradient `initial`. With `pending`, the node of
/// `output` computes `initial`; takes_pending_gradient(output) must hold. Without it `initial` is
/// computed already. With `awaited`, await_gradients() was called, and collectors are notified when
/// a leaf is complete.
void backward_from(const Tensor& output, const Tensor& initial,
                   const kernels::PendingGradient* pending, bool retain_graph,
                   bool awaited = false);

/// Counts in Leaf::awaited the nodes behind `output` that may add to a leaf. It counts only for
/// leaves that have a collector and take gradients now.
void await_gradients(const Tensor& output);

/// Checks the rule for in-place ops (ops.h). Throws Error if several elements of `x` share memory.
/// Also throws if the op is `recorded` and x is a leaf or others hold it. `recorded`: recording is
/// on, and x or an operand requires a gradient. `hint` replaces the hint for the last case.
void check_in_place(const char* op, const Tensor& x, bool recorded, const char* hint = nullptr);
/// Checks an op that overwrites `x` without recording: x must not be part of a graph while
/// recording is on.
void check_overwrite(const char* op, const Tensor& x);

}  // namespace firn::autograd
