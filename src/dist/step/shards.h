// State that is sharded over ranks (ZeRO, Rajbhandari et al. 2020). A rank keeps a shard of
// masters, averages and states, updates the weights that belong to it, and receives those of other
// ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "autograd/peers.h"
#include "optim/store/param_store.h"

namespace firn::optim {

/// Returns what a rank keeps if state is sharded over `ranks`, from stage 2 on gradients too, and
/// in stage 3 weights. Throws Error if that is impossible.
ShardPlan plan_shards(const ParamStore& store, int stage, int rank, int ranks);

/// Clamps bounds between ranks to `range`, and counts them from its beginning.
std::vector<std::int64_t> from_begin(const std::vector<std::int64_t>& bounds, const Share& range);
/// Returns the length of the ranks' shards if they are equal and begin at 0, apart from a rest that
/// the last rank has; else 0.
std::int64_t equal_part(const std::vector<std::int64_t>& bounds) noexcept;

// All ranks make these calls.

/// Gathers a flat tensor on all ranks, each of which has the part between its bounds. Only the
/// constructor allocates, so no rank runs out of memory while others wait for it.
class Gathering {
 public:
  Gathering(const Tensor& flat, const std::vector<std::int64_t>& bounds, int rank);
  void run(const autograd::Peers& peers) const;

 private:
  Tensor part_,
      parts_;  ///< equal parts, of this rank and of all ranks; undefined if there are none
  std::vector<std::pair<Tensor, int>> rest_;  ///< parts that a rank broadcasts, with that rank
};
/// Returns what gathers the weights on all ranks, after each has updated its shard. Empty if
/// weights are sharded, or nothing is.
std::vector<Gathering> gather_weights(const ParamStore& store, int rank);
/// Returns a whole arena, of which `kept` has this rank's elements: a gradient, a master or a state
/// with one element for each weight.
Tensor gather_arena(const ParamStore& store, std::size_t arena, const Tensor& kept,
                    const autograd::Peers& peers);

}  // namespace firn::optim
