// The control groups (cgroups) of this process, in which containers and batch systems limit it.
#pragma once

#include <string>
#include <vector>

namespace firn {

struct ControlGroup {
  std::string folder;  ///< folder of the controller's files
  bool unified;        ///< version 2, whose files have other names than version 1's
};

/// Returns the groups on the way from the process's own to the root, for a controller such as
/// "memory" or "cpu". `membership` is the file /proc/self/cgroup, `root` the folder /sys/fs/cgroup.
/// Empty if there are none.
std::vector<ControlGroup> control_groups(const std::string& controller,
                                         const char* membership = "/proc/self/cgroup",
                                         const char* root = "/sys/fs/cgroup");

}  // namespace firn
