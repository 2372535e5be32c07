// What checkpoint() records: a segment of the graph whose nodes do not hold the tensors that they
// save. When the backward pass needs the first of them, the function runs again. Its operations
// then hand what they save to the nodes of the first pass, which are the ones that run. So the
// graph, its order, its hooks and its gradients are those of a pass without checkpoint().
// autograd/segment/trace.h has the runs of the function.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "firn/checkpoint.h"
#include "firn/device.h"
#include "firn/dtype.h"
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
    // For a tensor that is not computed again:
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
  void drop_up_to(std::uint32_t place) noexcept;
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

}  // namespace firn::autograd
