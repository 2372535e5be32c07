// Chooses the modules of a model that recompute their activations (firn/checkpoint.h):
//
//   nn::checkpoint_blocks(net);                              // every block keeps its input alone
//   nn::checkpoint_blocks(net, {.keep = Keep::products});    // cheaper, keeps more
//   nn::checkpoint_modules(net, {"encoder", "blocks.3"});
//   nn::checkpoint_within(net, 512 << 20, step);             // the cheapest that fits
//
// A block is a module with modules of its own that is an element of a list: of a std::vector member
// or of a Sequential. In a model without such a list, it is a member with modules of its own.
// Blocks inside of blocks do not count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "firn/checkpoint.h"
#include "firn/memory/plan.h"
#include "firn/nn/module.h"

namespace firn::nn {

/// Policy for the blocks of a Sequential or a list: which are checkpointed, and what these keep.
struct BlockCheckpoints {
  /// 1: every block; 2: every second one, the first included; 0: none.
  std::int64_t every = 1;
  Keep keep = Keep::inputs;  ///< tensors that each of them keeps
};

/// Describes the policy: "every 2nd block keeps its inputs".
std::string to_string(const BlockCheckpoints& policy);

/// Calls set_checkpoint() for blocks of `m`; the other blocks keep everything. Settings of modules
/// inside of blocks stay: checkpoint_nothing() removes them. Returns the number of checkpointed
/// blocks. Throws Error if every < 0, and if `m` has no blocks.
std::int64_t checkpoint_blocks(Module& m, const BlockCheckpoints& policy = {});

/// Calls set_checkpoint() for the modules with these paths, as named_modules() has them; other
/// modules keep their settings. Throws Error that lists the paths that `m` does not have, before
/// anything is set.
void checkpoint_modules(Module& m, const std::vector<std::string>& paths,
                        const CheckpointOptions& options = {});

/// Removes the checkpoint setting of every module of `m`.
void checkpoint_nothing(Module& m);

/// Plans `step` on the device of `m` under one policy after another; see plan_memory(). The order
/// goes from the policy that computes least to the one that keeps least. Sets and returns the first
/// whose peak is within `budget` bytes, and moves its plan to `plan` if that is not null. Throws
/// OutOfMemory with the smallest peak if no policy fits; the earlier settings are then back. Also
/// throws as checkpoint_blocks() does.
BlockCheckpoints checkpoint_within(Module& m, std::size_t budget, const std::function<void()>& step,
                                   MemoryPlan* plan = nullptr);

}  // namespace firn::nn
