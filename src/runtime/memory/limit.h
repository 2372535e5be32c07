// The limit that a device's allocator begins with.
#pragma once

#include <cstddef>

#include "firn/device.h"

namespace firn::memory {

/// FIRN_MEMORY_LIMIT; on the CPU also the limit of the control group, if that is lower. 0: none.
/// Throws Error if the variable is no size.
std::size_t initial_limit(Device device);

/// The lowest memory.max (version 2) or memory.limit_in_bytes (version 1) on the way from a
/// process's control group to the root. `membership` is the file /proc/self/cgroup, `root` the
/// folder /sys/fs/cgroup. 0: none.
std::size_t cgroup_limit(const char* membership, const char* root);

}  // namespace firn::memory
