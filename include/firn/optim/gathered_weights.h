// Gathers all weights on each rank, where ranks shard them (dist/distribute.h, ZeRO stage 3).
#pragma once

#include <memory>

#include "firn/optim/optimizer.h"

namespace firn::optim {

/// Until the next step, and while alive, this rank has all weights, so that it can read them alone:
/// to write them to a file, for example. All ranks call it; without sharded weights it does
/// nothing.
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
