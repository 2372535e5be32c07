// Which modules of a model compute their activations again (firn/checkpoint.h):
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

/// Which blocks of a Sequential or a list are checkpointed, and what they keep.
struct BlockCheckpoints {
  /// 1: every block; 2: every second one, the first included; 0: none.
  std::int64_t every = 1;
  Keep keep = Keep::inputs;  ///< what each of them keeps
};

/// "every 2nd block keeps its inputs".
std::string to_string(const BlockCheckpoints& policy);

/// set_checkpoint() for blocks of `m`; the other blocks keep everything. Settings of modules inside
/// of blocks stay: checkpoint_nothing() takes them back. Returns how many are
/// checkpointed. Throws Error if every < 0, and if `m` has no blocks.
std::int64_t checkpoint_blocks(Module& m, const BlockCheckpoints& policy = {});

/// set_checkpoint() for the modules with these paths, as named_modules() has them; others keep what
/// is set. Throws Error that lists the paths that `m` does not have, before anything is set.
void checkpoint_modules(Module& m, const std::vector<std::string>& paths,
                        const CheckpointOptions& options = {});

/// No module of `m` is checkpointed any more.
void checkpoint_nothing(Module& m);

/// Plans `step` on the device of `m` (plan_memory(), which see) under one policy after another,
/// from that which computes least to that which keeps least, and sets the first whose peak is
/// within `budget` bytes. Returns the policy, with its plan in `plan` if that is not null. Throws
/// OutOfMemory if none is: it says the smallest peak, and what was set before is set again. Also
/// throws as checkpoint_blocks() does.
BlockCheckpoints checkpoint_within(Module& m, std::size_t budget, const std::function<void()>& step,
                                   MemoryPlan* plan = nullptr);

}  // namespace firn::nn
