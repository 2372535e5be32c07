#include "runtime/memory/limit.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/check.h"
#include "base/control_groups.h"
#include "firn/memory.h"

namespace firn::memory {
namespace {

constexpr std::size_t kNone = SIZE_MAX;

std::size_t limit_in(const std::string& file) {
  std::ifstream in(file);
  std::uint64_t bytes = 0;
  // Version 1 has a number near 2^63 where there is no limit, version 2 the word "max".
  return in >> bytes && bytes < std::uint64_t{1} << 60 ? bytes : kNone;
}

}  // namespace

std::size_t cgroup_limit(const char* membership, const char* root) {
  std::size_t lowest = kNone;
  for (const ControlGroup& group : control_groups("memory", membership, root))
    lowest = std::min(lowest, limit_in(group.folder +
                                       (group.unified ? "/memory.max" : "/memory.limit_in_bytes")));
  return lowest == kNone ? 0 : lowest;
}

std::size_t initial_limit(Device device) {
  const char* const text = std::getenv("FIRN_MEMORY_LIMIT");
  std::size_t limit = 0;
  if (text && *text) {
    try {
      limit = parse_bytes(text);
    } catch (const Error& e) {
      throw Error("FIRN_MEMORY_LIMIT", e.message(), e.hint());
    }
  }
  if (device.is_cpu()) {
    const std::size_t group = cgroup_limit("/proc/self/cgroup", "/sys/fs/cgroup");
    if (group > 0 && (limit == 0 || group < limit)) limit = group;
  }
  return limit;
}

}  // namespace firn::memory
