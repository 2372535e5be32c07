// The sums of exact mode (StepOptions::exact). The gradients of a cycle are added chunk by chunk in
// a fixed tree. So they have the same bits however the cycle is cut, and whichever rank computes a
// chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/peers.h"
#include "firn/random.h"
#include "kernels/math/optim/cycle_sums.h"
#include "optim/exact/chunks.h"
#include "optim/store/param_store.h"

namespace firn::optim {

using math::CycleSums;

/// The sums of the cycle under way.
class ExactSums {
 public:
  /// A node of the tree, of a batch that is saved half-way or was loaded.
  struct Node {
    ChunkRange range;
    CycleSums sums;
    std::vector<Tensor> gradients;  ///< one for each arena
  };
  /// The part of a batch that all ranks have computed.
  struct Partial {
    std::int64_t samples = 0;
    RandomKey random = {};
    std::vector<Node> nodes;  ///< ascending
    std::vector<std::uint8_t> received;
  };

  /// Begins a cycle of `chunks` chunks, of which this rank computes its share. Allocates what the
  /// sums need, and what their exchange with `peers` (null: none) needs. Continues a batch that was
  /// loaded. `looks` says that the host reads the scalars of each chunk.
  /// Returns the number of chunks that this rank computes, and the largest such number of any rank.
  struct LockStep {
    std::int64_t mine = 0, most = 0;
  };
  LockStep begin(const ParamStore& store, std::int64_t chunks, const autograd::Peers* peers,
                 bool looks);
  /// Returns the key at which the random numbers of the cycle begin.
  RandomKey random() const noexcept { return random_; }
  /// Draws new random numbers for a captured cycle that is replayed.
  void draw_again() noexcept;
  /// Returns true if the scalars stay in device memory. Nothing waits for the host then, so work
  /// can be captured.
  bool in_memory() const noexcept { return in_memory_; }
  /// Returns, if in_memory(), the step state's sums when the cycle began. Waits for the device.
  math::LossSums before() const;
  /// Returns, if in_memory(), all memory that the cycle's kernels use.
  std::vector<Tensor> memory() const;
  /// Pushes finished nodes, then returns the number of this rank's next chunk, or -1 after the
  /// last.
  std::int64_t next(const ParamStore& store);
  /// Destination for the gradient of the next chunk. Empty means the arenas, or the buckets if
  /// gradients are sharded.
  std::span<const Tensor> place();
  /// Returns memory for the gradient of an interleaved chunk. Such chunks need one each.
  std::vector<Tensor> place_beside(const ParamStore& store);
  /// Adds the gradient of the next chunk to the tree. It is in `beside` if that is given, else
  /// where place() said, with zeros for parameters that have received none. `sums` are the chunk's
  /// scalars.
  void take(const ParamStore& store, const CycleSums& sums, std::vector<Tensor> beside = {});

  // ---- Sharded gradients (exact_sharded.cpp). In each micro-step every rank computes one chunk or
  // none, and keeps its shard of all ranks' gradients. take() then only records which parameters
  // have one.

  /// Begins a micro-step of all ranks. `sums` has the scalars of each rank's chunk, and is empty in
  /// a plan.
  void begin_micro_step(const ParamStore& store, std::span<const CycleSums> sums);
  /// Returns memory for this rank's shard of the gradient of rank r's chunk, a tensor for each
  /// arena, which the exchange of gradients fills. Empty: rank r has no chunk in this micro-step.
  std::span<const Tensor> shard_of(std::size_t r) const noexcept {
    if (r >= sources_.size()) return {};
    return sources_[r].place;
  }
  /// Ends the micro-step, after all shards were filled.
  void end_micro_step(const ParamStore& store);

  /// Returns for each parameter 1 if a chunk so far has given it a gradient.
  std::vector<std::uint8_t>& received() noexcept { return received_; }

  /// Writes the gradient of the whole cycle into the arenas of all ranks; if gradients are sharded,
  /// each rank's shard. Returns the cycle's scalars. With several ranks, allocates nothing.
  CycleSums finish(const ParamStore& store, const autograd::Peers* peers);
  /// Releases all memory except that of a loaded batch.
  void drop() noexcept;

  // ---- Batches that are saved half-way (exact_saved.cpp) ----

  /// Collects the results of all ranks for a batch of `samples` samples, on rank 0; others get no
  /// nodes. All ranks make this call. `received` is the combined one of all ranks. `gather` returns
  /// the whole arenas of shards on rank 0, and an empty list on other ranks.
  using Gather = std::function<std::vector<Tensor>(const std::vector<Tensor>& shards)>;
  Partial collect(const ParamStore& store, std::int64_t samples,
                  const std::vector<std::uint8_t>& received, const autograd::Peers* peers,
                  const Gather& gather);
  /// Makes the next cycle continue with `partial`.
  void resume(std::shared_ptr<Partial> partial) noexcept { loaded_ = std::move(partial); }
  /// Returns the loaded part that no cycle has continued yet, or null.
  const std::shared_ptr<Partial>& loaded() const noexcept { return loaded_; }
  /// Returns true if the cycle under way continues a loaded batch.
  bool goes_on() const noexcept { return !done_.empty(); }
  /// Makes the next cycle begin anew.
  void forget() noexcept {
    loaded_.reset();
    resumed_.reset();
  }

 private:
  /// Collects the pending nodes of each rank in the result on rank 0.
  Partial collect_nodes(const ParamStore& store, Partial out, const autograd::Peers& peers) const;
  struct Part {
    CycleSums sums;                 ///< unless in_memory()
    Tensor scalars = {};            ///< if in_memory(): these sums, u8
    std::vector<Tensor> gradients;  ///< one for each arena
    bool in_arenas = false;         ///< true if `gradients` are the arenas' own
  };

  /// The data that ranks exchange: the pending nodes of their chunks.
  struct Exchange {
    std::vector<std::vector<ChunkRange>> nodes;  ///< nodes of each rank
    std::size_t most = 0;                        ///< largest number of nodes of a rank
    Tensor mine, all;  ///< u8: scalars of this rank's nodes, and of all ranks' nodes
    /// For each arena and node: one slice of the gradient from each rank, in the order of the
    /// ranks.
    std::vector<std::vector<Tensor>> slices;
    /// A copy of an arena padded with zeros, if its elements do not divide by the ranks; else
    /// undefined.
    std::vector<Tensor> padded;
    std::vector<Tensor> unpadded;  ///< their elements that are in the arena
    /// For each node of each rank, in the order of the chunks: this rank's slice of it.
    std::vector<std::vector<Tensor>> parts;
  };
  /// The chunks of one rank. If gradients are sharded, this rank keeps its shard of every rank's
  /// ones.
  struct Source {
    ChunkWork work = {};
    std::size_t next = 0;  ///< index into work.items
    ChunkStack<Part> stack = {};
    CycleSums sums = {};             ///< scalars of the chunk that is being computed
    std::vector<Tensor> place = {};  ///< memory for this rank's shard of its gradient; empty: none

    bool is_done() const noexcept { return next == work.items.size(); }
    const ChunkRange& range() const noexcept { return work.items[next].range; }
  };
  /// Reserves what the lists of the cycle need while ranks wait for each other.
  void reserve_lists(std::size_t nodes);
  bool sharded() const noexcept { return sources_.size() > 1; }
  Source& mine() noexcept { return sources_[sharded() ? rank_ : 0]; }
  const Source& mine() const noexcept { return sources_[sharded() ? rank_ : 0]; }
  /// Pushes the finished nodes before the source's next chunk.
  void advance(Source& source, Stream stream);
  /// Does what exchange() does, with the shards that this rank keeps.
  CycleSums fold_parts(const ParamStore& store);
  void prepare(const ParamStore& store, const std::vector<ChunkWork>& works,
               const autograd::Peers& peers);
  CycleSums exchange(const ParamStore& store, const autograd::Peers& peers);

  /// Prepares the memory of a cycle whose scalars stay in device memory.
  void begin_in_memory(const ParamStore& store, std::size_t parts);
  /// Makes sure that memory for at least `parts` parts is free.
  void reserve(const ParamStore& store, std::size_t parts);
  /// Adds right to left and frees right's memory. With `stay`, the sum is in the arenas if either
  /// part was.
  void add(Part& left, Part& right, bool stay, Stream stream);

  std::vector<Source> sources_{1};  ///< this rank alone, or all ranks
  std::size_t rank_ = 0;
  RandomKey random_ = {};
  std::shared_ptr<Partial> loaded_;
  std::optional<RandomKey> resumed_;       ///< random numbers of the loaded batch
  std::vector<Node> done_;                 ///< loaded nodes that the cycle has not pushed
  std::vector<std::vector<Tensor>> free_;  ///< free memory for parts
  std::vector<std::uint8_t> received_;
  Exchange exchange_;
  ChunkStack<Part> tree_;  ///< nodes of all ranks, at the end of the cycle
  bool in_memory_ = false;
  Tensor before_;                     ///< if in_memory(): u8, a math::LossSums
  std::vector<Tensor> free_scalars_;  ///< free memory for Part::scalars
};

}  // namespace firn::optim
