#include "runtime/memory/limit.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/check.h"
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
  std::ifstream in(membership);
  for (std::string line; std::getline(in, line);) {
    // hierarchy:controllers:path
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",memory,") == std::string::npos) continue;
    const std::string base = std::string(root) + (unified ? "" : "/memory");
    const char* const name = unified ? "/memory.max" : "/memory.limit_in_bytes";
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      if (path == "/") path.clear();
      lowest = std::min(lowest, limit_in(base + path + name));
      if (path.find('/') == std::string::npos) break;
    }
  }
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
