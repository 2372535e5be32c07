#include "firn/memory/labels.h"

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>

#include "base/thread/fork.h"

namespace firn::runtime {

namespace {

constinit std::mutex mutex;
std::mutex& table_mutex() { return mutex; }
[[maybe_unused]] const bool held = (hold_during_fork<table_mutex>(), true);

using Numbers = std::unordered_map<std::string, std::uint32_t>;
/// Never destroyed: memory may be allocated after main().
Numbers& numbers() {
  static Numbers& table = *new Numbers;
  return table;
}
// The keys of the table, which stay where they are.
constinit std::array<std::atomic<const std::string*>, kMaxModules> paths{};
constinit std::atomic<std::uint32_t> count{1};

constexpr std::string_view kMore = "(more modules)";

}  // namespace

std::uint32_t module_number(std::string_view path) noexcept try {
  if (path.empty()) return 0;
  const std::lock_guard lock(mutex);
  const std::uint32_t next = count.load(std::memory_order_relaxed);
  const bool last = next == kMaxModules - 1;
  const auto [place, is_new] = numbers().try_emplace(std::string(path), next);
  if (!is_new) return place->second;
  if (next >= kMaxModules || last) {
    numbers().erase(place);
    const auto more = numbers().try_emplace(std::string(kMore), kMaxModules - 1).first;
    paths[kMaxModules - 1].store(&more->first, std::memory_order_release);
    count.store(kMaxModules, std::memory_order_release);
    return kMaxModules - 1;
  }
  paths[next].store(&place->first, std::memory_order_release);
  count.store(next + 1, std::memory_order_release);
  return next;
} catch (const std::bad_alloc&) {
  return 0;
}

std::string_view module_path(std::uint32_t number) noexcept {
  const std::string* const path =
      number < kMaxModules ? paths[number].load(std::memory_order_acquire) : nullptr;
  return path ? std::string_view(*path) : std::string_view();
}

std::uint32_t module_count() noexcept { return count.load(std::memory_order_acquire); }

}  // namespace firn::runtime
