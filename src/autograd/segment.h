// What checkpoint() records: a segment of the graph whose nodes do not hold the tensors that they
// save. When the backward pass needs the first of them, the function runs again. Its operations
// then hand what they save to the nodes of the first pass, which are the ones that run. So the
// graph, its order, its hooks and its gradients are those of a pass without checkpoint().
//
// Operations are told apart by their number in the call. A trace counts them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "firn/checkpoint.h"
#include "firn/device.h"
#include "firn/dtype.h"
#include "firn/kernel_support.h"
#include "firn/ref.h"
#include "runtime/graph/draw_tape.h"
#include "runtime/offload/offload.h"
#include "tensor/impl.h"

namespace firn::autograd {

class Node;
class Segment;

/// What a hook put in the place of an input or result of a module.
class Replacement {
 public:
  Replacement(std::size_t index, const Tensor& t);
  std::size_t index() const noexcept { return index_; }
  /// The same values; a leaf that requires a gradient if the tensor did.
  Tensor tensor() const;

 private:
  std::size_t index_;
  Tensor values_;  ///< outside of the graph, which would otherwise own itself
  bool requires_grad_;
};

/// What a call of a module was in the first pass.
struct CallNote {
  bool training;
  std::uint32_t label;  ///< runtime::Labels::module
  std::vector<Replacement> inputs, outputs;
};

/// Whether the backward function of a product reads its result.
enum class ReadsResult : std::uint8_t { no, yes };

/// Results of a product.
struct Product {
  std::vector<Tensor> results;  ///< some may be undefined; empty: it is computed again
  double work;                  ///< multiplications
  std::uint32_t place;          ///< of the operation, on the first run
  ReadsResult reads;
};

/// What the first pass does that the second one must not do, or must do alike.
struct SegmentLog {
  std::vector<runtime::Draw> draws;
  std::vector<CallNote> calls;
  bool keeps_products = false;
  std::vector<Product> products;
  std::vector<std::shared_ptr<SegmentLog>> inner;  ///< of checkpoints inside, in their order
};

class Segment final : public RefCounted {
 public:
  Segment(const CheckpointOptions& options, std::function<void()> again);
  ~Segment();
  static void destroy(Segment* s) noexcept { delete s; }

  /// `node` is about to run: what it has saved, and the nodes before it, is computed if it is not
  /// there. Throws Error if the function is not the same, and whatever it throws; the segment can
  /// then be computed again.
  void prepare(Node& node);
  /// After a backward pass that kept the graph: `node` holds no more than before.
  void drop_again(Node& node) noexcept;
  /// `node` is destroyed or has run for the last time.
  void forget(const Node& node) noexcept;

 private:
  friend class Trace;

  /// A storage that waits elsewhere.
  struct Away {
    Away(const Storage& from, memory::Elsewhere place)
        : bytes(from, place), version(from.version()) {}
    memory::Offloaded bytes;
    std::uint32_t version;
    int waiting = 0;    ///< slots that have still to get it
    Ref<Storage> back;  ///< while some got it and others wait
  };
  /// A tensor that was not kept.
  struct Dropped {
    int slot;  ///< in Node::saved
    DType dtype;
    Shape shape;
    Tensor hash = {};  ///< i64 [1]; undefined if it is not compared
    // Of a tensor that is not computed again:
    Strides strides = {};
    std::int64_t offset = 0;
    std::shared_ptr<Away> away = {};
  };
  /// An operation that has dropped tensors, or a checkpoint inside.
  struct Item {
    std::uint32_t place;
    Node* node = nullptr;      ///< null if it is gone
    Segment* inner = nullptr;  ///< null if it is gone
    std::vector<Dropped> dropped = {};
  };

  bool recomputes() const noexcept {
    return options_.keep == Keep::inputs || options_.keep == Keep::products;
  }
  bool needs_function() const noexcept { return recomputes() && !again_; }
  /// Brings back what was moved away.
  static void fetch(Item& item);
  /// Where the storage of `t` waits.
  std::shared_ptr<Away> move_away(const Tensor& t);

  /// Runs the function so that the items up to `place` have what they need.
  void run_again(std::uint32_t place);
  Item* item_at(std::uint32_t place) noexcept;
  static void drop(Item& item) noexcept;
  /// Where in i64 memory of `device` the next hash belongs: zero.
  Tensor place_for_hash(Device device);

  const CheckpointOptions options_;
  std::function<void()> again_;  ///< empty: `outer_` has to be computed again before
  const std::optional<DType> autocast_;
  const Device device_;
  const std::uint32_t module_;
  std::uint64_t number_;  ///< Labels::segment of its tensors
  Ref<Segment> outer_;
  std::uint32_t place_in_outer_ = 0;
  std::vector<Item> items_;
  std::shared_ptr<SegmentLog> log_ = std::make_shared<SegmentLog>();
  Tensor hashes_;  ///< i64, a block of places for hashes
  std::int64_t hashes_taken_ = 0;
  std::vector<std::pair<std::uint64_t, std::weak_ptr<Away>>> away_;  ///< by Storage::saved_as()
  bool computing_ = false;
};

/// A run of a checkpointed function on this thread, the first one or another one.
class Trace {
 public:
  enum class Mode : std::uint8_t {
    recording,
    filling,    ///< hands saved tensors to the nodes of the segment
    discarding  ///< computes results alone: a checkpoint inside of one that is being filled
  };

  /// The first run.
  explicit Trace(Segment& segment);
  /// Fills the items up to `place`.
  Trace(Segment& segment, std::uint32_t place);
  /// Discards what operations save; `log` is of the first run.
  explicit Trace(SegmentLog& log);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  bool recording() const noexcept { return mode_ == Mode::recording; }
  /// Whether this node was there when the run began; leaves count as such.
  bool began_after(const Node& node) const noexcept;
  /// An operation is about to be recorded, or would be.
  void next_op(const char* op);
  /// `node` is about to save `t`, in the next slot. Returns whether it must not. `hashed`: the
  /// values are compared the second time.
  bool take(Node& node, const Tensor& t, std::uint32_t version, bool hashed);

  /// Calls of modules (nn/call.cpp). The number of the next call; on a later run, of the same.
  std::size_t next_call(bool training, std::uint32_t label);
  CallNote& call(std::size_t number);

  /// The kept results of the next product. Returns false if it has to be computed.
  bool next_product(std::span<Tensor> results);
  /// Keeps the results of a product; some may be undefined.
  void keep_product(std::span<const Tensor> results, double work, ReadsResult reads);
  /// Whether nothing but what the next operation saves is still to be handed over.
  bool next_op_is_last() const noexcept;
  /// While alive, and if it is on, kernels of this thread do nothing.
  class SkipKernels {
   public:
    explicit SkipKernels(bool on) noexcept : before_(runtime::detail::dry_run) {
      runtime::detail::dry_run = before_ || on;
    }
    ~SkipKernels() { runtime::detail::dry_run = before_; }
    SkipKernels(const SkipKernels&) = delete;
    SkipKernels& operator=(const SkipKernels&) = delete;

   private:
    bool before_;
  };
  bool keeps_products() const noexcept { return log_.keeps_products; }

  /// On a later run, for a checkpoint inside: the log of its first run.
  SegmentLog& inner_log();
  /// The segment of that checkpoint takes over what it is given this time. Throws Done if nothing
  /// more is needed.
  void enter_inner(std::function<void()>& again);

  /// What is thrown through the function when nothing more is needed.
  struct Done {};

  static inline thread_local constinit Trace* current = nullptr;

 private:
  /// `t` is what the operation of filled_ saves in this slot.
  void fill(int slot, const Tensor& t, std::uint32_t version);
  /// Whether a tensor that is about to be saved is not to be kept.
  bool goes(const Tensor& t) const noexcept;
  bool is_product(const Tensor& t) const noexcept;
  void count_down();
  /// The first run is over: lets go of products that are not worth their memory.
  void release_products();

  Segment* const segment_;  ///< null if it discards
  SegmentLog& log_;
  Trace* const outer_;
  const Mode mode_;
  const std::uint64_t outermost_;       ///< Labels::segment from which on tensors are not kept
  const std::uint64_t number_before_;   ///< Labels::segment
  const std::uint64_t first_sequence_;  ///< of the nodes made in this run
  runtime::DrawTape tape_;
  runtime::DrawTapeScope tape_scope_;
  const std::uint32_t target_ = 0;   ///< fills items up to this place
  std::uint32_t place_ = 0;          ///< of the last operation; the first has 1
  std::size_t item_ = 0;             ///< the next one
  Segment::Item* filled_ = nullptr;  ///< of the last operation; null if it needs nothing
  std::size_t missing_ = 0;  ///< tensors and inner functions that are still to be handed over
  std::size_t call_ = 0, product_ = 0, inner_ = 0;

  friend class Segment;
};

/// Whether this thread computes a checkpointed function again.
inline bool computing_again() noexcept { return Trace::current && !Trace::current->recording(); }

/// While alive, operations of this thread belong to no checkpoint: hooks run once, and what they
/// save is kept.
class OutsideOfTrace {
 public:
  OutsideOfTrace() noexcept : trace_(std::exchange(Trace::current, nullptr)), tape_(nullptr) {}
  ~OutsideOfTrace() { Trace::current = trace_; }
  OutsideOfTrace(const OutsideOfTrace&) = delete;
  OutsideOfTrace& operator=(const OutsideOfTrace&) = delete;

 private:
  Trace* trace_;
  runtime::DrawTapeScope tape_;
};

/// What compute() returns: the tensors, some of them undefined, that a product has made. A
/// checkpoint with Keep::products keeps them, and does not compute them again. `work` is the number
/// of multiplications. If the last tensors that a second pass is to hand over are what this product
/// reads, its result is not computed.
template <class Compute, class Results = decltype(std::declval<Compute>()())>
Results product(double work, ReadsResult reads, const Compute& compute) {
  Trace* const trace = Trace::current;
  if (!trace) [[likely]]
    return compute();
  Results results;
  const auto list = [&results] {
    if constexpr (std::is_same_v<Results, Tensor>) {
      return std::span<Tensor>(&results, 1);
    } else {
      return std::span<Tensor>(results);
    }
  };
  if (trace->recording()) {
    results = compute();
    if (trace->keeps_products()) trace->keep_product(list(), work, reads);
    return results;
  }
  if (trace->keeps_products() && trace->next_product(list())) return results;
  const Trace::SkipKernels skip(reads == ReadsResult::no && trace->next_op_is_last());
  return compute();
}

}  // namespace firn::autograd
