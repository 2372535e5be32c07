// Gathers all weights on each rank, where ranks shard them (dist/distribute.h, ZeRO stage 3).
#pragma once

#include <memory>

#include "firn/optim/optimizer.h"

namespace firn::optim {

/// All ranks construct one at the same time. Until the next step or the end of the object, each
/// rank holds all weights. It can read them without the others: to write them to a file, for
/// example. Without sharded weights the object does nothing.
///
///   const optim::GatheredWeights whole(opt);
///   if (group.rank() == 0) io::save_safetensors("net.safetensors", io::state_of(net));
class GatheredWeights {
 public:
  /// Throws OutOfMemory, and what collectives throw.
  explicit GatheredWeights(const Optimizer& optimizer);

 private:
  std::shared_ptr<void> held_;
};

}  // namespace firn::optim
