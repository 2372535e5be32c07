#include "runtime/memory/limit.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/control_groups.h"
#include "base/thread/cpus.h"
#include "firn/memory.h"

namespace firn::memory {
namespace {

constexpr std::size_t kNone = SIZE_MAX;
constexpr std::size_t kMiB = std::size_t{1} << 20;

/// The beginning of a small file; empty if it cannot be read.
class Text {
 public:
  explicit Text(const std::string& file) noexcept {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    for (ssize_t n; size_ + 1 < sizeof text_; size_ += static_cast<std::size_t>(n))
      if (n = ::read(descriptor, text_ + size_, sizeof text_ - 1 - size_); n <= 0) break;
    ::close(descriptor);
  }

  /// Returns the number that the file begins with. kNone: there is no number, or it means "no
  /// limit", which is a number near 2^63 in version 1 and the word "max" in version 2.
  std::size_t number() const noexcept { return number_at(text_); }
  /// Returns the number behind `name` at the beginning of a line, or 0 if there is none.
  std::size_t of(const char* name) const noexcept {
    const std::size_t length = std::strlen(name);
    for (const char* line = text_; line; line = std::strchr(line, '\n')) {
      if (*line == '\n') ++line;
      if (std::strncmp(line, name, length) != 0 || line[length] != ' ') continue;
      const std::size_t n = number_at(line + length + 1);
      return n == kNone ? 0 : n;
    }
    return 0;
  }

 private:
  static std::size_t number_at(const char* at) noexcept {
    if (*at < '0' || *at > '9') return kNone;
    const std::uint64_t n = std::strtoull(at, nullptr, 10);
    return n < std::uint64_t{1} << 60 ? static_cast<std::size_t>(n) : kNone;
  }

  char text_[8192] = {};
  std::size_t size_ = 0;
};

std::string limit_file(const ControlGroup& group) {
  return group.folder + (group.unified ? "/memory.max" : "/memory.limit_in_bytes");
}

/// Bytes that stay free below a limit: for page tables, and for the heap until the next look.
std::size_t room_below(std::size_t limit) noexcept {
  return std::min(std::clamp(limit / 16, 16 * kMiB, 256 * kMiB), limit / 4);
}

std::size_t minus(std::size_t a, std::size_t b) noexcept { return a > b ? a - b : 0; }

}  // namespace

std::size_t cgroup_limit(const char* membership, const char* root) {
  std::size_t lowest = kNone;
  for (const ControlGroup& group : control_groups("memory", membership, root))
    lowest = std::min(lowest, Text(limit_file(group)).number());
  return lowest == kNone ? 0 : lowest;
}

GroupLimits::GroupLimits(const char* membership, const char* root) {
  for (const ControlGroup& group : control_groups("memory", membership, root)) {
    if (Text(limit_file(group)).number() == kNone) continue;
    const auto file = [&](const char* name) { return group.folder + name; };
    if (group.unified)
      groups_.push_back({.limit = limit_file(group),
                         .usage = file("/memory.current"),
                         .statistics = file("/memory.stat"),
                         .file_pages = {"inactive_file", "active_file"}});
    else  // sums that begin with "total_" include the groups within
      groups_.push_back({.limit = limit_file(group),
                         .usage = file("/memory.usage_in_bytes"),
                         .statistics = file("/memory.stat"),
                         .file_pages = {"total_inactive_file", "total_active_file"}});
  }
}

std::size_t GroupLimits::most(std::size_t reserved) {
  std::size_t most = kNone;
  for (Group& g : groups_) {
    const std::size_t limit = Text(g.limit).number();
    if (limit == kNone) continue;
    const std::size_t all = Text(g.usage).number();
    std::size_t used = 0;
    if (all != kNone) {
      const Text statistics(g.statistics);
      used = minus(all, statistics.of(g.file_pages[0]) + statistics.of(g.file_pages[1]));
    }
    // Blocks that were never written take no memory. So the others have at least what is left if
    // all blocks do take memory, and at most all that is used. In between, the last figure stands.
    const std::size_t least = minus(used, reserved);
    g.others = g.known ? std::clamp(g.others, least, used) : used;
    g.known = true;
    most = std::min(most, minus(limit, g.others + room_below(limit)));
  }
  return std::max<std::size_t>(most, 1);
}

std::size_t initial_limit() {
  if (const char* const threads = std::getenv("FIRN_THREADS"); threads && *threads)
    FIRN_CHECK(firn::detail::parse_threads(threads) > 0, "FIRN_THREADS", firn::detail::kThreadsHint,
               "'{}' is no number of threads", threads);
  const char* const text = std::getenv("FIRN_MEMORY_LIMIT");
  if (!text || !*text) return 0;
  try {
    return parse_bytes(text);
  } catch (const Error& e) {
    throw Error("FIRN_MEMORY_LIMIT", e.message(), e.hint());
  }
}

}  // namespace firn::memory
