// A segment is the graph that checkpoint() records. Its nodes do not hold the tensors that they
// save. When the backward pass needs the first of them, the function runs again. Its operations
// then hand their saved tensors to the nodes of the first pass, which are the ones that run. So the
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

/// The name of the operation in errors.
inline constexpr const char* kCheckpoint = "checkpoint";

/// Tensor that a hook put in the place of a module's input or result.
class Replacement {
 public:
  Replacement(std::size_t index, const Tensor& t);
  std::size_t index() const noexcept { return index_; }
  /// Returns the same values, as a leaf that requires a gradient if the tensor did.
  Tensor tensor() const;

 private:
  std::size_t index_;
  Tensor values_;  ///< outside of the graph, which would otherwise own itself
  bool requires_grad_;
};

/// Facts about a module's call in the first pass.
struct CallNote {
  bool training;
  std::uint32_t label;  ///< runtime::Labels::module
  std::vector<Replacement> inputs, outputs;
};

/// yes: the backward function of a product reads its result.
enum class ReadsResult : std::uint8_t { no, yes };

/// Results of a product.
struct Product {
  std::vector<Tensor> results;  ///< some may be undefined; empty: they are computed again
  double work;                  ///< multiplications
  std::uint32_t place;          ///< number of the operation in the first run
  ReadsResult reads;
};

/// Facts about the first pass, which the second one must not repeat or must repeat alike.
struct SegmentLog {
  std::vector<runtime::Draw> draws;
  std::vector<CallNote> calls;
  bool keeps_products = false;
  std::vector<Product> products;
  std::vector<std::shared_ptr<SegmentLog>> inner;  ///< logs of checkpoints inside, in their order
};

class Segment final : public RefCounted {
 public:
  Segment(const CheckpointOptions& options, std::function<void()> again);
  ~Segment();
  static void destroy(Segment* s) noexcept { delete s; }

  /// Is called before `node` runs. Computes the tensors that it and earlier nodes have saved, if
  /// they are missing. Throws Error if the function is not the same, and whatever it throws; the
  /// segment can then be computed again.
  void prepare(Node& node);
  /// Is called after a backward pass that kept the graph: makes `node` hold no more than before.
  void drop_again(Node& node) noexcept;
  /// Is called when `node` is destroyed or has run for the last time.
  void forget(const Node& node) noexcept;

 private:
  friend class Trace;

  /// A storage that is offloaded.
  struct Away {
    Away(const Storage& from, memory::Elsewhere place)
        : bytes(from, place), version(from.version()) {}
    memory::Offloaded bytes;
    std::uint32_t version;
    int waiting = 0;    ///< slots that have still to get it
    Ref<Storage> back;  ///< the fetched storage, while other slots wait for it
  };
  /// A tensor that was not kept.
  struct Dropped {
    int slot;  ///< index in Node::saved
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
  /// Fetches the item's offloaded storages.
  static void fetch(Item& item);
  /// Offloads the storage of `t`, unless this segment has done so before.
  std::shared_ptr<Away> move_away(const Tensor& t);

  /// Runs the function so that the items up to `place` have their tensors.
  void run_again(std::uint32_t place);
  Item* item_at(std::uint32_t place) noexcept;
  static void drop(Item& item) noexcept;
  void drop_up_to(std::uint32_t place) noexcept;
  /// Returns a zero i64 in memory of `device`, in which the next hash belongs.
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
