// The tape. One node per recorded op; it holds the op's name, where its inputs came from, what it
// saved, and one backward function. An op records itself in one statement:
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
// Every backward function accumulates: it writes beta*grad + contribution into the sink it is
// given. A leaf's sink may be memory that somebody else chose, in f32 whatever the leaf's dtype.
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
struct PendingSeed;
}

namespace firn::autograd {

class Backward;
class GraphBackward;
class Node;
class CycleMember;
class Leaf;
class WeightModes;

/// Where the gradient with respect to one input goes: grad = beta*grad + contribution.
struct Sink {
  Tensor grad;  ///< of the input's shape and memory format; must not be read if beta is 0
  float beta;   ///< 0 or 1
};

/// What record() keeps for backward: the i-th input, the output, or another tensor (a statistic, a
/// mask). It is kept outside the graph, with its version at that time.
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

/// The hooks of a node. Ids count up and are never given again.
struct Hooks {
  struct Entry {
    int id;
    std::uint64_t first_pass;  ///< runs in this backward() and later ones
    std::shared_ptr<const GradHook>
        run;                       ///< shared: a hook that removes itself ends its call first
    std::uint32_t of_plan = 0;     ///< the plan of a step that has added it; 0: none
    std::uint32_t removed_by = 0;  ///< the plan that has removed it; 0: none

    /// A plan adds and removes hooks for itself alone.
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

/// A node of the graph: a recorded op, or a leaf (no inputs, and the gradient it has collected).
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
  /// The same in recorded operations (graph_backward.h). Returns false if the op has no such
  /// function.
  virtual bool run_recorded(GraphBackward&) { return false; }
  virtual bool is_leaf() const noexcept { return false; }

  const char* op = "";
  std::uint64_t sequence = 0;   ///< order of recording, 0 for leaves; inputs have smaller numbers
  SmallList<Ref<Node>> inputs;  ///< null where the input requires no gradient
  SmallList<SavedTensor> saved;
  bool freed = false;  ///< backward ran without retain_graph
  /// The module whose call recorded it, for reports of memory (runtime/memory/labels.h).
  std::uint32_t module = 0;
  /// The segment that computes again what it has saved, and its place there; usually null.
  std::uint32_t place = 0;
  Ref<Segment> segment;
  /// Its backward function can compute the seed of its own gradient, in the launch that it makes
  /// anyway (Backward::pending_seed).
  bool takes_pending_seed = false;
  /// WeightModes::changes() of the leaves among its inputs when it was recorded, added up.
  std::uint32_t weights_shown = 0;

  /// How many Freeze guards hold this leaf: a frozen leaf takes no gradient.
  std::uint32_t frozen = 0;
  /// The cycle that this leaf collects for: it takes no gradient from the passes of another one.
  const Cycle* cycle = nullptr;
  bool takes_gradient() const noexcept {
    return frozen == 0 && (!cycle || !thread_context.cycle || cycle == thread_context.cycle) &&
           (!thread_context.gradient_path || thread_context.gradient_path->contains(this));
  }

  // The output, to make its gradient's buffer:
  Shape shape;
  DType dtype = f32;
  Device device;
  MemoryFormat format = MemoryFormat::contiguous;
  Tensor grad;  ///< collected by the running backward; empty outside of one
  const kernels::PendingSeed* pending_seed = nullptr;  ///< of the running backward, lent
  const void* pass = nullptr;    ///< the running backward that has it in its queue, or runs it now
  std::unique_ptr<Hooks> hooks;  ///< null until the first one is added

 protected:
  /// Iterative: releasing the end of a chain of any length does not recurse.
  void dispose() noexcept final;

 private:
  Node* next_disposed_ = nullptr;
};

/// WeightModes::changes() of a node's leaves, added up. Call it if there is a WeightModes.
std::uint32_t weights_shown_to(const Node& node) noexcept;
/// Throws Error if a leaf of the node showed other values when the node was recorded: its gradient
/// would be one at those.
void require_shown_weights(const Node& node);

/// The node of a tensor that requires a gradient, else null. A frozen leaf counts as none, unless a
/// function is computed again: it may not have been frozen the first time.
inline Node* node_of(const Tensor& t) noexcept {
  Node* n = t.defined() ? static_cast<Node*>(t.impl()->node.get()) : nullptr;
  return n && (n->frozen == 0 || computing_again()) ? n : nullptr;
}

/// Lends leaves the memory for their gradients while a backward pass runs, and takes each gradient
/// when the pass has added all that it adds.
class Collector {
 public:
  /// The pass is about to add to a leaf that has no memory: sets its `arena`, with zeros in it.
  virtual void begin(Leaf& leaf) = 0;
  /// The pass adds nothing more to the leaf. Called for leaves that await_gradients() has found.
  virtual void finish(Leaf& leaf) = 0;

 protected:
  ~Collector() = default;
};

/// A tensor that the user marked with set_requires_grad, or a parameter.
class Leaf final : public Node {
 public:
  void run(Backward&) override {}
  bool is_leaf() const noexcept override { return true; }

  /// Where gradients add up over backward() calls. Whoever trains the leaf may set memory of its
  /// own as `arena` (f32, or f64 for f64 leaves). It holds anything while `touched` is 0: the first
  /// contribution is stored. Without an arena, `collected` is made on first use.
  Tensor arena;
  Tensor collected;
  /// How many contributions backward passes have added to this leaf. Whoever set the arena clears
  /// it (S17), and learns by it of passes that it did not run.
  std::uint32_t touched = 0;
  /// Not null: the leaf shows one of two sets of values (autograd/weight_modes.h).
  WeightModes* modes = nullptr;
  /// Not null: `arena` is undefined but while this lends it.
  Collector* collector = nullptr;
  /// Whether an optimizer trains it.
  bool is_trained() const noexcept { return arena.defined() || collector; }
  /// A plan of a step has made it, and it is gone with the plan.
  bool of_plan = false;
  /// Nodes that may still add to the leaf in the pass under way (await_gradients()).
  std::uint32_t awaited = 0;
  /// State of the leaf's layer that takes part in cycles (autograd/cycle.h). Usually null.
  std::shared_ptr<CycleMember> member;
};

/// The gradient of the leaf is about to change. In a plan of a step it is put back at its end.
void keep_if_planned(Leaf& leaf);

/// The leaf node of a tensor, or null if it is not a leaf that requires a gradient.
Leaf* leaf_of(const Tensor& t) noexcept;
/// The same, of a frozen leaf too.
Leaf* leaf_or_frozen(const Tensor& t) noexcept;

/// The i-th saved tensor of a node; throws Error naming both ops if it was edited in place since.
const Tensor& saved_by(const Node& node, int i);

/// How a storage names its last writer if that was the update of an optimizer.
inline constexpr const char* kOptimizerStep = "the optimizer's step";

/// What a backward function is given.
class Backward {
 public:
  explicit Backward(Node& node) : node_(node) {}
  /// Gradient of the output: its shape and dtype, any strides.
  const Tensor& grad() const noexcept { return node_.grad; }
  /// See saved_by().
  const Tensor& saved(int i) const { return saved_by(node_, i); }
  /// Whether input i takes a gradient. Work for an input that does not is skipped.
  bool needs(int i) const noexcept { return node_.inputs[i] && node_.inputs[i]->takes_gradient(); }
  /// The buffer to accumulate input i's gradient into. Ask once per contribution, when its kernel
  /// is about to be called.
  Sink sink(int i);
  /// Adds a finished contribution of the input's shape and device, with any strides and floating
  /// dtype. The first one at an inner node is kept as it is, without a copy.
  void accumulate(int i, const Tensor& contribution);
  int input_count() const noexcept { return node_.inputs.size(); }
  const Shape& input_shape(int i) const noexcept { return node_.inputs[i]->shape; }
  MemoryFormat input_format(int i) const noexcept { return node_.inputs[i]->format; }
  Device input_device(int i) const noexcept { return node_.inputs[i]->device; }
  DType input_dtype(int i) const noexcept { return node_.inputs[i]->dtype; }
  Stream stream() const noexcept { return current_stream(node_.device); }
  /// The backward function has thrown: leaves whose gradient began in it have none again.
  void take_back_begun() noexcept;
  /// Not null: the backward function must compute this seed. It is grad(), which holds nothing yet.
  /// Always null if the node has not set takes_pending_seed.
  const kernels::PendingSeed* pending_seed() const noexcept { return node_.pending_seed; }

 private:
  Node& node_;
  SmallList<Leaf*> begun_;  ///< leaves that had no gradient before this node ran
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
/// Fills in the node and hangs it on the output.
void attach(Ref<Node> node, const char* op, const Tensor& output, Inputs inputs,
            std::initializer_list<Saved> saved);
void attach(Ref<Node> node, const char* op, const Tensor& output, const std::vector<Tensor>& inputs,
            std::initializer_list<Saved> saved);
/// Anomaly mode: throws Error if the output holds a non-finite value.
void check_finite(const char* op, const char* pass, const Tensor& t);
/// What a watched op does beside recording: listeners are told, anomaly mode checks the output.
void watch(const char* op, Inputs inputs, const Tensor& output);
void watch(const char* op, const std::vector<Tensor>& inputs, const Tensor& output);

}  // namespace detail

/// What an op that carries no gradient calls in place of record().
inline void unrecorded(const char* op, const Tensor& output, detail::Inputs inputs) {
  output.storage()->made_by(op);
  if (runtime::recording_spans()) [[unlikely]]
    runtime::end_operation(op);
  if (thread_context.op_mode.watched()) [[unlikely]]
    detail::watch(op, inputs, output);
}

/// Records that `output` came from `inputs` by `op` (a string literal), and returns it. If
/// recording is off or no input requires a gradient, it only tells the listeners. `output` must not
/// be an input and must have no node. Undefined inputs are allowed and take no gradient.
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

/// For an op whose number of saved tensors is known only at run time: keeps `tensors` after those
/// given to record(). Some may be undefined; none is `output`. A checkpoint compares their values
/// the second time, except those for which `opaque(i)` is true: parts of them may be uninitialised.
void save(const Tensor& output, const std::vector<Tensor>& tensors,
          bool (*opaque)(std::size_t i) = nullptr);

/// The number of the next node of any thread.
std::uint64_t next_sequence() noexcept;

/// How many backward passes all threads have begun: what Hooks::Entry::first_pass is counted by.
std::uint64_t passes_begun() noexcept;

/// Whether backward_from() may be given a pending seed for `output`. A node with hooks takes none:
/// a hook reads the seed before the node's backward function runs.
bool takes_pending_seed(const Tensor& output) noexcept;
/// backward() from `output` with `seed`. With `pending`, the node of `output` computes the seed and
/// writes it there: takes_pending_seed(output) must hold. Else the seed has been computed. With
/// `awaited`, await_gradients() has been called, and collectors are told when a leaf has all.
void backward_from(const Tensor& output, const Tensor& seed, const kernels::PendingSeed* pending,
                   bool retain_graph, bool awaited = false);

/// Counts in Leaf::awaited which nodes behind `output` may add to each leaf that has a collector
/// and takes gradients now. Those of other leaves stay 0.
void await_gradients(const Tensor& output);

/// The rule for in-place ops (ops.h): throws if several elements of `x` are one in memory, or if
/// the op is `recorded` (x or an operand requires a gradient and recording is on) and x is a leaf
/// or is seen by others. `hint` says what to do in the last case; none: what fits x.
void check_in_place(const char* op, const Tensor& x, bool recorded, const char* hint = nullptr);
/// The same for ops that give `x` new values without recording: x must not be part of a graph while
/// recording is on.
void check_overwrite(const char* op, const Tensor& x);

}  // namespace firn::autograd
