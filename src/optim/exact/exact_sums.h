// The sums of exact mode (StepOptions::exact): the gradients of a cycle are added quantum by
// quantum in a fixed tree, so that they have the same bits however the cycle is cut and whoever
// computes its parts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/peers.h"
#include "firn/random.h"
#include "kernels/math/optim/cycle_sums.h"
#include "optim/exact/quanta.h"
#include "optim/store/param_store.h"

namespace firn::optim {

using math::CycleSums;

/// The sums of the cycle under way.
class ExactSums {
 public:
  /// A node of a batch that was saved half-way, or is to be.
  struct Node {
    QuantumRange range;
    CycleSums sums;
    std::vector<Tensor> gradients;  ///< one for each arena
  };
  /// What is done of a batch: of all ranks.
  struct Partial {
    std::int64_t samples = 0;
    RandomKey random = {};
    std::vector<Node> nodes;  ///< ascending
    std::vector<std::uint8_t> received;
  };

  /// A cycle of so many quanta begins, of which this rank computes its share. Allocates what the
  /// sums need, and with `peers` (null: none) what their exchange needs. If a part of the batch was
  /// loaded, goes on with that. Returns how many quanta this rank computes, and the most of a rank.
  /// The host need not see the scalars of quanta unless it `looks`.
  struct Turns {
    std::int64_t mine = 0, most = 0;
  };
  Turns begin(const ParamStore& store, std::int64_t quanta, const autograd::Peers* peers,
              bool looks);
  /// Where the random numbers of the cycle begin.
  RandomKey random() const noexcept { return random_; }
  /// A captured cycle is replayed: it has random numbers of its own.
  void draw_again() noexcept;
  /// Whether scalars stay in device memory, and nothing waits for the host. So work can be
  /// captured.
  bool in_memory() const noexcept { return in_memory_; }
  /// If so: what the cycle's sums began with. Waits for a device.
  math::SeedSums before() const;
  /// If so: all memory that the cycle's kernels use.
  std::vector<Tensor> memory() const;
  /// The number of the next quantum that this rank computes. What is done before it is taken over.
  std::int64_t next(const ParamStore& store);
  /// Where the gradient of the next quantum is to be collected; empty: in the arenas, or in buckets
  /// if gradients are divided.
  std::span<const Tensor> place();
  /// Memory for the gradient of a quantum that is computed beside others, none of which is taken.
  std::vector<Tensor> place_beside(const ParamStore& store);
  /// It is there, with zeros for parameters that have received none, and `sums` are its scalars.
  /// It is in `beside` if that is given, else where place() said.
  void take(const ParamStore& store, const CycleSums& sums, std::vector<Tensor> beside = {});

  // ---- If gradients are divided: all ranks compute a quantum each, or none, and each keeps its
  // part of all their gradients (exact_divided.cpp). take() then only notes what has a gradient.

  /// The ranks begin a turn. `sums` are the scalars of each one's quantum.
  void begin_turn(const ParamStore& store, std::span<const CycleSums> sums);
  /// A bucket of this rank's gradient, as GradientBuckets gives it: every rank gets its part of all
  /// ranks' ones.
  void take_bucket(const ParamStore& store, const ParamStore::Bucket& bucket, const Tensor& memory,
                   const autograd::Peers& peers);
  /// All buckets were there.
  void end_turn(const ParamStore& store);

  /// For each parameter 1 if a quantum so far has brought it a gradient.
  std::vector<std::uint8_t>& received() noexcept { return received_; }

  /// The gradient of the whole cycle comes into the arenas, on all ranks of `peers`, or of divided
  /// gradients each rank's part. Returns its scalars. Allocates no tensor.
  CycleSums finish(const ParamStore& store, const autograd::Peers* peers);
  /// Gives back all memory, but for what was loaded.
  void drop() noexcept;

  // ---- Batches that are saved half-way (exact_saved.cpp) ----

  /// What all ranks have done of a batch of so many samples, on rank 0; others have no nodes. A
  /// call of all ranks. `received` is that of all.
  Partial collect(const ParamStore& store, std::int64_t samples,
                  const std::vector<std::uint8_t>& received, const autograd::Peers* peers);
  /// The next cycle goes on with it.
  void resume(std::shared_ptr<Partial> partial) noexcept { loaded_ = std::move(partial); }
  /// What was loaded, and no cycle has gone on with so far; null: nothing.
  const std::shared_ptr<Partial>& loaded() const noexcept { return loaded_; }
  /// Whether the cycle under way goes on with a part that was loaded.
  bool goes_on() const noexcept { return !done_.empty(); }
  /// The next cycle begins anew.
  void forget() noexcept {
    loaded_.reset();
    resumed_.reset();
  }

 private:
  /// The nodes that stand on each rank, in `out` of rank 0.
  Partial collect_nodes(const ParamStore& store, Partial out, const autograd::Peers& peers) const;
  struct Part {
    CycleSums sums;                 ///< unless in_memory()
    Tensor scalars = {};            ///< if in_memory(): u8, the same
    std::vector<Tensor> gradients;  ///< one for each arena
    bool in_arenas = false;         ///< they are the arenas' own
  };

  /// What ranks exchange: the nodes that are left of their quanta.
  struct Exchange {
    std::vector<std::vector<QuantumRange>> nodes;  ///< of each rank
    std::size_t most = 0;                          ///< of one rank
    Tensor mine, all;                              ///< u8: their scalars; those of all ranks
    /// For each arena and node: a slice of the gradient from each rank, one after another.
    std::vector<std::vector<Tensor>> slices;
    /// An arena whose elements do not divide by the ranks, with zeros behind them; else undefined.
    std::vector<Tensor> padded;
  };
  /// The quanta of a rank. Of others this rank keeps parts of gradients, if they are divided.
  struct Source {
    QuantumWork work = {};
    std::size_t next = 0;  ///< of its items
    QuantumStack<Part> stack = {};
    CycleSums sums = {};             ///< of the quantum that is being computed
    std::vector<Tensor> place = {};  ///< of this rank's part of its gradient; empty: there is none

    bool is_done() const noexcept { return next == work.items.size(); }
    const QuantumRange& range() const noexcept { return work.items[next].range; }
  };
  bool divided() const noexcept { return sources_.size() > 1; }
  Source& mine() noexcept { return sources_[divided() ? rank_ : 0]; }
  const Source& mine() const noexcept { return sources_[divided() ? rank_ : 0]; }
  /// Pushes what is done before the source's next quantum.
  void advance(Source& source, Stream stream);
  /// The same sum as exchange(), of what is kept here.
  CycleSums fold_parts(const ParamStore& store);
  void prepare(const ParamStore& store, const std::vector<QuantumWork>& works,
               const autograd::Peers& peers);
  CycleSums exchange(const ParamStore& store, const autograd::Peers& peers);

  /// The same at the begin of a cycle whose scalars stay in device memory.
  void begin_in_memory(const ParamStore& store, std::size_t parts);
  /// Makes memory for at least so many parts free.
  void reserve(const ParamStore& store, std::size_t parts);
  /// left becomes the sum of both; right's memory is free. With `stay`, a sum with a part that is
  /// in the arenas is in the arenas.
  void add(Part& left, Part& right, bool stay, Stream stream);

  std::vector<Source> sources_{1};  ///< this rank alone, or all
  std::size_t rank_ = 0;
  RandomKey random_ = {};
  std::shared_ptr<Partial> loaded_;
  std::optional<RandomKey> resumed_;       ///< the random numbers of the cycle that goes on
  std::vector<Node> done_;                 ///< loaded nodes that the cycle under way has not taken
  std::vector<std::vector<Tensor>> free_;  ///< memory for parts
  std::vector<std::uint8_t> received_;
  Exchange exchange_;
  bool in_memory_ = false;
  Tensor before_;                     ///< if in_memory(): u8, a math::SeedSums
  std::vector<Tensor> free_scalars_;  ///< of parts
};

}  // namespace firn::optim
