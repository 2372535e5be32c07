// Buckets: consecutive parameters of an arena, whose gradients and weights ranks exchange at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "autograd/peers.h"
#include "dist/step/shards.h"
#include "optim/store/param_store.h"

namespace firn::optim {

struct Bucket {
  std::size_t arena = 0;
  Share range;  ///< elements of the arena
  std::vector<std::size_t> parameters;
  std::vector<std::int64_t> bounds;  ///< between the ranks' shards, from the bucket's begin
  Share kept;                        ///< this rank's shard in the kept tensors of the arena
  /// Length of the shards if they are equal, as collectives need them, else 0. The last rank also
  /// has what is left over.
  std::int64_t equal_part = 0;

  std::int64_t elements() const noexcept { return range.size(); }
  /// Returns this rank's shard in `parts`, which has one tensor for each arena, as
  /// ParamStore::gradients() does.
  Tensor kept_in(std::span<const Tensor> parts) const;
};

/// Cuts an arena into consecutive parameters, up to the size of a bucket.
std::vector<Share> bucket_ranges(const ParamStore& store, const Arena& arena);
/// Returns the buckets of gradients that are not sharded, without bounds. They are in the order in
/// which backward passes finish them, which is the reverse of the given order of parameters.
std::vector<Bucket> pieces_of(const ParamStore& store);

/// The whole gradient of a bucket, with the elements of its first chunk that are in the bucket
/// before it. Windows that follow each other are in different memory.
struct Window {
  Gathering gathering;
  kernels::OptimizerArena view;               ///< the arena, with its gradient in the window
  std::int64_t first = 0, complete = 0;       ///< chunks that are complete after this bucket
  Tensor carried_from = {}, carried_to = {};  ///< these elements; undefined: none
  Tensor kept = {}, own = {};  ///< this rank's shard, and its place; undefined: empty
};

/// The buckets of a store with sharded gradients, and memory for them.
class BucketLayout {
 public:
  /// The store must have sharded its gradients, and must outlive this object.
  BucketLayout(const ParamStore& store, int rank);

  const ParamStore& store() const noexcept { return store_; }
  /// Returns the buckets in the order of pieces_of().
  const std::vector<Bucket>& buckets() const noexcept { return buckets_; }

  /// Allocates [elements] of zeros for the gradients of a bucket.
  Tensor gradient_memory(const Bucket& bucket) const;
  /// Returns the gradient of parameter i in the memory of its bucket.
  Tensor gradient_in(const Bucket& bucket, const Tensor& memory, std::size_t i) const;

  /// Allocates [elements] for the weights of a bucket. kept_weight() is this rank's shard of them,
  /// if weights are sharded.
  Tensor weight_memory(const Bucket& bucket) const;
  Tensor kept_weight(const Bucket& bucket) const;
  /// Returns the bytes from the begin of the bucket to the weight of parameter i.
  std::size_t weight_offset(const Bucket& bucket, std::size_t i) const noexcept;

  /// Allocates what summary_in_order() needs.
  std::vector<Window> prepare_summary(int rank) const;
  /// Computes what optim_norm() would compute from the whole gradient, with the same bits. All
  /// ranks make this call.
  math::GradientSummary summary_in_order(std::span<const Window> windows,
                                         const math::StepPolicy& policy,
                                         const autograd::Peers& peers) const;

 private:
  const Arena& arena_of(const Bucket& bucket) const noexcept {
    return store_.layout()[bucket.arena];
  }

  const ParamStore& store_;
  std::vector<Bucket> buckets_;
};

}  // namespace firn::optim
