// The memory of a captured graph, see cuda/allocator.cpp.
#pragma once

#include "firn/runtime/stream.h"

namespace firn::memory {

struct GraphPool;

/// Makes a pool for a graph that will be launched on `home`.
GraphPool* make_pool(Stream home);
/// Called when the graph is destroyed. Unused blocks return to the cache at once, blocks in use
/// when they are released.
void retire_pool(GraphPool* pool) noexcept;

}  // namespace firn::memory
