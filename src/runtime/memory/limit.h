// The limit of a device's allocator, as the environment sets it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace firn::memory {

/// Returns FIRN_MEMORY_LIMIT, or 0 without it. Throws Error if the variable is not a size, or if
/// FIRN_THREADS is not a number of threads: an allocator asks at its first request.
std::size_t initial_limit();

/// Returns the lowest memory.max (version 2) or memory.limit_in_bytes (version 1) from a process's
/// control group up to the root, or 0. `membership` is the file /proc/self/cgroup, `root` the
/// folder /sys/fs/cgroup. 0 means that no group has a limit.
std::size_t cgroup_limit(const char* membership, const char* root);

/// Memory that the control groups of a process leave for the allocator. The limit of a group also
/// counts the program, its heap, and other processes of the group; at the limit the kernel kills
/// one of them. Pages of files count as well, but the kernel gives them up.
class GroupLimits {
 public:
  /// Finds the groups that have a limit now. The arguments are those of cgroup_limit().
  GroupLimits(const char* membership, const char* root);

  /// True if no group has a limit.
  bool empty() const noexcept { return groups_.empty(); }
  /// Returns the most that the allocator may hold, of which it holds `reserved` now; at least 1.
  /// Reading the groups' files takes some ten microseconds.
  std::size_t most(std::size_t reserved);

 private:
  struct Group {
    std::string limit, usage, statistics;  ///< files
    const char* file_pages[2];             ///< names of the statistics to add
    std::size_t others = 0;                ///< bytes that are not the allocator's
    bool known = false;                    ///< true once `others` is known
  };
  std::vector<Group> groups_;
};

}  // namespace firn::memory
