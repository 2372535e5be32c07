// The memory of a recorded graph, see cuda_allocator.cpp.
#pragma once

#include "firn/stream.h"

namespace firn::memory {

struct GraphPool;

/// For a graph that will be launched on `home`.
GraphPool* make_pool(Stream home);
/// The graph is gone: blocks that nobody uses serve others again, those in use will when they are
/// released.
void retire_pool(GraphPool* pool) noexcept;

}  // namespace firn::memory
