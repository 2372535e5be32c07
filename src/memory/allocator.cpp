#include "memory/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "memory/cuda.h"

namespace firn {

const char* to_string(Owner owner) noexcept {
  constexpr const char* names[] = {"weights",     "gradients", "optimizer",
                                   "activations", "workspace", "data"};
  return names[static_cast<int>(owner)];
}

namespace {
thread_local Owner current_owner = Owner::activations;

// Fault injection: allocations left before the failing one; negative: off.
std::atomic<std::int64_t> allocations_until_failure{-1};
std::atomic<bool> failure_is_sticky{false};

bool injected_failure() noexcept {
  if (allocations_until_failure.load(std::memory_order_relaxed) < 0) [[likely]]
    return false;
  const std::int64_t left = allocations_until_failure.fetch_sub(1);
  if (left > 0) return false;
  if (failure_is_sticky) allocations_until_failure = 0;
  return left == 0;
}
}  // namespace

OwnerScope::OwnerScope(Owner owner) noexcept : previous_(current_owner) { current_owner = owner; }
OwnerScope::~OwnerScope() { current_owner = previous_; }
Owner OwnerScope::current() noexcept { return current_owner; }

FailAllocation::FailAllocation(std::uint64_t k, bool sticky) noexcept {
  failure_is_sticky = sticky;
  allocations_until_failure = static_cast<std::int64_t>(k);
}
FailAllocation::~FailAllocation() { allocations_until_failure = -1; }

namespace memory {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

void* system_allocate(std::size_t bytes, int) {
  const bool large = bytes >= kHugePage;
  void* p = nullptr;  // not std::aligned_alloc, which may want whole multiples of the alignment
  if (posix_memalign(&p, large ? kHugePage : kAlignment, bytes) != 0) return nullptr;
  if (large) madvise(p, bytes, MADV_HUGEPAGE);  // first touch is 3 times faster
  return p;
}
void system_release(void* p, std::size_t, int) noexcept { std::free(p); }

// Blocks that were released wait here, by size, for the next request of that size. Memory is given
// back to the source only on release_cached_memory() or when an allocation fails: giving it back
// each time costs a page fault per 4 KiB at the next use.
class Cache {
 public:
  Cache(Source source, Device device) : source_(source), device_(device) {}

  void* allocate(std::size_t bytes, Owner owner) {
    const std::size_t size = block_size(bytes);
    const std::lock_guard lock(mutex_);
    if (injected_failure()) fail(bytes, "injected failure");
    void* block = pop(size);
    if (!block) {
      block = source_.allocate(size, device_.index);
      if (!block) {
        drop_cached();
        block = source_.allocate(size, device_.index);
      }
      if (!block) fail(bytes, "no memory left");
      stats_.reserved += size;
      ++stats_.system_allocations;
    }
    ++stats_.allocations;
    count(stats_.by_owner[static_cast<int>(owner)], size);
    count(stats_.total, size);
    return block;
  }

  void release(void* block, std::size_t bytes, Owner owner) noexcept {
    const std::size_t size = block_size(bytes);
    const std::lock_guard lock(mutex_);
    stats_.by_owner[static_cast<int>(owner)].current -= size;
    stats_.total.current -= size;
    free_list(size).push_back(block);
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() noexcept {
    const std::lock_guard lock(mutex_);
    for (auto& c : stats_.by_owner) c.peak = c.current;
    stats_.total.peak = stats_.total.current;
  }
  void release_cached() noexcept {
    const std::lock_guard lock(mutex_);
    drop_cached();
  }

 private:
  static constexpr std::size_t kSmallLimit = 4096;

  std::vector<void*>& free_list(std::size_t size) {
    return size <= kSmallLimit ? small_[size / kAlignment] : large_[size];
  }
  void* pop(std::size_t size) {
    auto& list = free_list(size);
    if (list.empty()) return nullptr;
    void* block = list.back();
    list.pop_back();
    return block;
  }
  static void count(MemoryStats::Count& c, std::size_t size) noexcept {
    c.current += size;
    if (c.current > c.peak) c.peak = c.current;
  }
  void drop_cached() noexcept {
    const auto drop = [this](std::size_t size, std::vector<void*>& list) {
      for (void* block : list) source_.release(block, size, device_.index);
      stats_.reserved -= size * list.size();
      list.clear();
    };
    for (std::size_t i = 0; i < std::size(small_); ++i) drop(i * kAlignment, small_[i]);
    for (auto& [size, list] : large_) drop(size, list);
  }
  [[noreturn]] void fail(std::size_t bytes, const char* why) const {
    throw OutOfMemory(
        fmt::format("{}: {} bytes on {}, with {} bytes in use and {} held from the system", why,
                    bytes, to_string(device_), stats_.total.current, stats_.reserved),
        bytes);
  }

  Source source_;
  Device device_;
  std::mutex mutex_;
  MemoryStats stats_;
  std::vector<void*> small_[kSmallLimit / kAlignment + 1];
  std::unordered_map<std::size_t, std::vector<void*>> large_;
};

// Never destroyed: tensors with static storage duration may be released after main().
Cache& cache_of(Device device) {
  static Cache& host = *new Cache({system_allocate, system_release}, Device::cpu());
  if (device.is_cpu()) return host;
  if constexpr (kHasCuda) {
    static std::mutex mutex;
    static auto& caches = *new std::unordered_map<int, Cache*>;
    const std::lock_guard lock(mutex);
    Cache*& cache = caches[device.index];
    if (!cache) cache = new Cache(cuda::source(), device);
    return *cache;
  }
  require_device("memory", device);
  return host;  // not reached: require_device has thrown
}

}  // namespace

std::size_t block_size(std::size_t bytes) noexcept {
  if (bytes < kAlignment) return kAlignment;
  // Eight sizes per power of two: at most 12.5 % is lost, and a batch that is a little shorter
  // reuses the block of the one before.
  const std::size_t step = std::max(kAlignment, std::bit_floor(bytes) / 8);
  const std::size_t size = (bytes + step - 1) / step * step;
  // Whole huge pages, where rounding up to them loses no more than that.
  return size < 8 * kHugePage ? size : (size + kHugePage - 1) / kHugePage * kHugePage;
}

void* allocate(std::size_t bytes, Device device, Owner owner) {
  return cache_of(device).allocate(bytes, owner);
}
void release(void* block, std::size_t bytes, Device device, Owner owner) noexcept {
  cache_of(device).release(block, bytes, owner);
}

}  // namespace memory

MemoryStats memory_stats(Device device) {
  require_device("memory_stats", device);
  return memory::cache_of(device).stats();
}
void reset_peak_memory(Device device) { memory::cache_of(device).reset_peak(); }
void release_cached_memory(Device device) { memory::cache_of(device).release_cached(); }

}  // namespace firn
