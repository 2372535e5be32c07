#include "runtime/memory/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/thread/fork.h"
#include "firn/runtime/kernel_support.h"
#include "firn/thread_context.h"
#include "runtime/cuda/cuda.h"
#include "runtime/memory/accounts.h"
#include "runtime/memory/cache.h"
#include "runtime/memory/dirty_memory.h"
#include "runtime/memory/fail_allocation.h"
#include "runtime/memory/reserve_pool.h"
#include "runtime/plan/model.h"

namespace firn {

const char* to_string(Owner owner) noexcept {
  constexpr const char* names[] = {"weights",     "masters",    "gradients", "optimizer",
                                   "activations", "recomputed", "workspace", "data"};
  return owner <= Owner::data ? names[static_cast<int>(owner)] : "unknown owner";
}

namespace {
static_assert(Owner::activations == Owner{4});  // the default of ThreadScopes::owner

// Fault injection: allocations left before the failing one; negative: off.
std::atomic<std::int64_t> allocations_until_failure{-1};
std::atomic<bool> failure_is_sticky{false};

std::atomic<bool> blocks_are_dirty{false};
}  // namespace

OwnerScope::OwnerScope(Owner owner) : previous_(thread_context.owner) {
  require_named("OwnerScope", "Owner", owner, Owner::data);
  thread_context.owner = owner;
}
OwnerScope::~OwnerScope() { thread_context.owner = previous_; }
Owner OwnerScope::current() noexcept { return thread_context.owner; }

FailAllocation::FailAllocation(std::uint64_t k, bool sticky) noexcept {
  failure_is_sticky = sticky;
  allocations_until_failure = static_cast<std::int64_t>(k);
}
FailAllocation::~FailAllocation() { allocations_until_failure = -1; }

DirtyMemory::DirtyMemory() noexcept { blocks_are_dirty = true; }
DirtyMemory::~DirtyMemory() { blocks_are_dirty = false; }

namespace memory {

bool injected_failure() noexcept {
  if (allocations_until_failure.load(std::memory_order_relaxed) < 0) [[likely]]
    return false;
  const std::int64_t left = allocations_until_failure.fetch_sub(1);
  if (left > 0) return false;
  if (failure_is_sticky) allocations_until_failure = 0;
  return left == 0;
}

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// With AddressSanitizer all blocks come from its heap, which sees accesses past their ends.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kMapped = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kMapped = false;
#else
constexpr bool kMapped = true;
#endif
#else
constexpr bool kMapped = true;
#endif

bool is_mapped(std::size_t size) noexcept { return kMapped && size >= kHugePage; }

/// Maps `size` bytes that begin at a huge page. The heap would not return them to the system.
void* map_pages(std::size_t size) noexcept {
  void* const p =
      mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  auto* const first = static_cast<char*>(p);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(p) % kHugePage;
  if (before > 0) munmap(first, before);
  if (before < kHugePage) munmap(first + before + size, kHugePage - before);
  // First touch is 3 times faster. A huge page at the end would be more than was asked for.
  madvise(first + before, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  return first + before;
}

void* heap_allocate(std::size_t bytes) noexcept {
  void* p = nullptr;  // std::aligned_alloc may require multiples of the alignment
  return posix_memalign(&p, kAlignment, bytes) == 0 ? p : nullptr;
}

void* system_allocate(std::size_t size) noexcept {
  return is_mapped(size) ? map_pages(size) : heap_allocate(size);
}
void system_release(void* block, std::size_t size) noexcept {
  if (is_mapped(size)) {
    munmap(block, size);
  } else {
    std::free(block);
  }
}

// The CPU's cache. A released block is kept for the next request of its size. It goes back to the
// system only in release_cached_memory() or if an allocation fails, since memory from the system
// costs page faults.
class Cache {
 public:
  void allocate(MemoryBlock& b) {
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = b.bytes();
    if (bytes > kMostBytes) [[unlikely]]
      accounts_.fail(bytes, "no memory left");
    const std::size_t size = block_size(bytes);
    if (injected_failure()) accounts_.fail(bytes, "injected failure");
    void* block = free_.pop(size);
    if (!block) [[unlikely]]
      block = take(bytes, size);
    if (blocks_are_dirty.load(std::memory_order_relaxed)) [[unlikely]]
      std::memset(block, 0xff, size);
    accounts_.allocated(b, block, size);
  }

  void release(MemoryBlock& b) noexcept {
    const std::size_t size = block_size(b.bytes());
    const std::lock_guard lock(mutex_);
    void* const block = b.data();
    accounts_.released(b);
    free_.push(new (block) FreeBlock{nullptr, size});
  }

  void look(const std::function<void(Accounts&)>& fn) {
    const std::lock_guard lock(mutex_);
    fn(accounts_);
  }
  void begin(Model& model) {
    const std::lock_guard lock(mutex_);
    model.begin_as(accounts_);
    model.add_free(nullptr, free_);
  }
  void release_cached() noexcept {
    const std::lock_guard lock(mutex_);
    drop_cached();
  }
  std::mutex& mutex() noexcept { return mutex_; }

 private:
  void* take(std::size_t bytes, std::size_t size) {
    void* block = accounts_.may_take(size) ? system_allocate(size) : nullptr;
    if (!block) {
      drop_cached();
      if (!accounts_.may_take(size)) accounts_.fail(bytes, "the limit is reached");
      block = system_allocate(size);
    }
    if (!block) accounts_.fail(bytes, "no memory left");
    accounts_.taken_from_system(size);
    return block;
  }
  void drop_cached() noexcept {
    free_.drain([this](FreeBlock* block) {
      const std::size_t size = block->size;  // read before the block is released
      accounts_.given_to_system(size);
      system_release(block, size);
    });
  }

  std::mutex mutex_;
  Accounts accounts_{Device::cpu()};
  FreeLists free_;
};

// Ready before all constructors and never destroyed: static tensors may be allocated before main()
// and released after it.
constinit Cache cpu_cache;
static_assert(std::is_trivially_destructible_v<Cache>);

std::mutex& cpu_cache_mutex() { return cpu_cache.mutex(); }
[[maybe_unused]] const bool held = (hold_during_fork<cpu_cache_mutex>(), true);

}  // namespace

std::size_t block_size(std::size_t bytes) noexcept {
  if (bytes < kAlignment) return kAlignment;
  // Eight sizes per power of two: at most 12.5 % is lost, and a slightly shorter batch reuses the
  // blocks of the previous one.
  const std::size_t step = std::max(kAlignment, std::bit_floor(bytes) / 8);
  const std::size_t size = (bytes + step - 1) / step * step;
  // Round up to whole huge pages if that loses no more.
  return size < 8 * kHugePage ? size : (size + kHugePage - 1) / kHugePage * kHugePage;
}

std::size_t allocated_size(Device device, std::size_t bytes) noexcept {
  if constexpr (kHasCuda) {
    if (device.is_cuda()) return cuda::allocated_size(bytes);
  }
  return block_size(bytes);
}

void look(Device device, const std::function<void(Accounts&)>& fn) {
  if constexpr (kHasCuda) {
    if (device.is_cuda()) return cuda::look(device.index, fn);
  }
  cpu_cache.look(fn);
}

void begin_model(Model& model) {
  if constexpr (kHasCuda) {
    if (model.device().is_cuda()) return cuda::begin_model(model);
  }
  cpu_cache.begin(model);
}

void record_use(void* block, Stream stream) {
  if constexpr (kHasCuda) cuda::record_use(block, stream);
}

void* pinned_allocate(std::size_t bytes) try {
  const std::size_t size = std::max(bytes, kAlignment);
  void* block = nullptr;
  if (bytes > kMostBytes) {
    // refused below
  } else if (kHasCuda && cuda_device_count() > 0) {
    if constexpr (kHasCuda) block = cuda::pinned_allocate(size);
  } else {
    block = heap_allocate(size);
  }
  if (!block) throw OutOfMemory(fmt::format("no memory left: {} pinned bytes", bytes), bytes);
  std::memset(block, 0, size);
  return block;
}
FIRN_OUT_OF_MEMORY("pinned memory")

void pinned_release(void* block) noexcept {
  if (!block) return;
  if constexpr (kHasCuda) {
    if (cuda::is_pinned(block)) return cuda::pinned_release(block);
  }
  std::free(block);
}

}  // namespace memory

void MemoryBlock::allocate(std::size_t bytes, Device device, Owner owner) {
  allocate(bytes, device.is_cpu() ? Stream{} : current_stream(device), owner);
}

void MemoryBlock::allocate(std::size_t bytes, Stream stream, Owner owner) {
  bytes_ = bytes;
  device_ = stream.device;
  owner_ = owner;
  stream_ = stream.handle;
  if (memory::ReservePool* const pool = memory::ReservePool::current();
      pool && pool->device() == device_ && pool->serve(*this)) [[unlikely]]
    return;
  if (runtime::dry_run()) [[unlikely]] {
    if (memory::Model* const model = memory::Model::current(device_)) return model->allocate(*this);
  }
  if (device_.is_cpu()) return memory::cpu_cache.allocate(*this);
  if constexpr (kHasCuda) return memory::cuda::allocate(*this, stream);
  require_device("allocate", device_);
}

void MemoryBlock::release() noexcept {
  if (!data_) return;
  if (source_) [[unlikely]]
    return source_->give_back(*this);
  if (runtime::dry_run()) [[unlikely]] {
    if (memory::Model* const model = memory::Model::current(device_)) model->lost(*this);
  }
  if (device_.is_cpu()) return memory::cpu_cache.release(*this);
  if constexpr (kHasCuda) memory::cuda::release(*this);
}

PinnedMemory::PinnedMemory(std::size_t bytes)
    : data_(memory::pinned_allocate(bytes)), bytes_(bytes) {}
PinnedMemory::~PinnedMemory() { memory::pinned_release(data_); }
PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryStats memory_stats(Device device) {
  require_device("memory_stats", device);
  MemoryStats stats;
  memory::look(device, [&](const memory::Accounts& a) { stats = a.stats(); });
  return stats;
}

void reset_peak_memory(Device device) {
  require_device("reset_peak_memory", device);
  if (runtime::planning()) return;  // the peak is that of the whole step
  memory::look(device, [](memory::Accounts& a) { a.reset_peak(); });
}

void set_memory_limit(std::size_t bytes, Device device) {
  require_device("set_memory_limit", device);
  if (runtime::planning()) return;  // a plan has no limit, and leaves the allocator's as it is
  memory::look(device, [bytes](memory::Accounts& a) { a.set_limit(bytes); });
}

void release_cached_memory(Device device) {
  require_device("release_cached_memory", device);
  if (runtime::planning()) {
    if (memory::Model* const model = memory::Model::current(device)) model->release_cached();
    return;
  }
  if constexpr (kHasCuda) {
    if (device.is_cuda()) return memory::cuda::release_cached(device.index);
  }
  memory::cpu_cache.release_cached();
}

}  // namespace firn
