#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check/check.h"
#include "engine/fiber.h"

#ifdef CUSIM_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace cusim {
namespace {

constexpr std::size_t kReserved = std::size_t{1} << 40;  // addresses, not memory
constexpr std::size_t kPage = 4096;
constexpr std::size_t kGap = 256;  // around each block; also cudaMalloc's alignment
constexpr std::size_t kFree = std::size_t{128} << 10;  // closing as much as this costs 15 us

std::size_t up(std::size_t n, std::size_t step) { return (n + step - 1) / step * step; }

void poison([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#ifdef CUSIM_ADDRESS_SANITIZER
  __asan_poison_memory_region(p, bytes);
#endif
}
void unpoison([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#ifdef CUSIM_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(p, bytes);
#endif
}

// ---- The arena: all devices' memory ----
//
// While host code runs it is closed (PROT_NONE): a host that reads a device pointer faults, as it
// would with a GPU. Opening and closing costs time by the page, so with much memory in use it stays
// open for some launches in a row.
class Arena {
 public:
  char* take(std::size_t bytes) {
    if (!base_) reserve();
    const std::size_t need = up(kGap + bytes + kGap, kPage);
    if (!base_ || need > kReserved - top_) return nullptr;
    char* const pages = base_ + top_;
    char* const block = pages + kGap;
    top_ += need;
    in_use_ += need;
    set_access(pages, need, true);
    std::memset(block, 0xff, bytes);
    poison(pages, kGap);
    poison(block + bytes, need - kGap - bytes);
    if (!is_open_) set_access(pages, need, false);
    return block;
  }

  void give_back(char* block, std::size_t bytes) {
    const std::size_t need = up(kGap + bytes + kGap, kPage);
    in_use_ -= need;
    poison(block, bytes);
    madvise(block - kGap, need, MADV_DONTNEED);
  }

  bool holds(const void* p) const {
    const char* const c = static_cast<const char*>(p);
    return base_ && c >= base_ && c < base_ + kReserved;
  }

  void open() {
    if (users_++ > 0 || is_open_ || top_ == 0) return;
    set_access(base_, top_, true);
    is_open_ = true;
  }
  void close() {
    if (--users_ > 0 || !is_open_ || !config().protect) return;
    const std::size_t every = std::clamp<std::size_t>(in_use_ / kFree, 1, 4096);
    if (++closings_ % every != 0) return;
    set_access(base_, top_, false);
    is_open_ = false;
  }

 private:
  void reserve() {
    void* p =
        mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base_ = p == MAP_FAILED ? nullptr : static_cast<char*>(p);
  }
  void set_access(char* p, std::size_t bytes, bool allowed) {
    mprotect(p, bytes, allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
  }

  char* base_ = nullptr;
  std::size_t top_ = 0, in_use_ = 0, closings_ = 0;
  int users_ = 0;
  bool is_open_ = false;
};

Arena arena;
// By their first address. Never destroyed: see streams.cpp.
std::map<const void*, Block>& blocks = *new std::map<const void*, Block>;
std::vector<std::size_t>& used = *new std::vector<std::size_t>;  // bytes, by device

/// Counts an allocation; true if this is the one to fail.
bool fail_this_allocation() {
  return static_cast<std::int64_t>(stats().allocs++) == config().fail_alloc;
}

void add(char* begin, std::size_t bytes, int device) {
  blocks[begin] = {begin, bytes, device, nullptr};
  check::forget_blocks();
}

}  // namespace

cudaError_t allocate_device(void** out, std::size_t bytes, int device) {
  *out = nullptr;
  if (fail_this_allocation()) return cudaErrorMemoryAllocation;
  if (bytes == 0) return cudaSuccess;
  used.resize(std::max(used.size(), static_cast<std::size_t>(device) + 1));
  std::size_t& in_use = used[static_cast<std::size_t>(device)];
  if (in_use > config().device_bytes || bytes > config().device_bytes - in_use) {
    return cudaErrorMemoryAllocation;
  }
  char* const block = arena.take(bytes);
  if (!block) return cudaErrorMemoryAllocation;
  in_use += bytes;
  add(block, bytes, device);
  *out = block;
  return cudaSuccess;
}

cudaError_t free_device(void* p) {
  if (!p) return cudaSuccess;
  const auto found = blocks.find(p);
  if (found == blocks.end() || found->second.pinned()) return cudaErrorInvalidValue;
  Block& block = found->second;
  check::forget_block(block);
  arena.give_back(block.begin, block.bytes);
  used[static_cast<std::size_t>(block.device)] -= block.bytes;
  blocks.erase(found);
  return cudaSuccess;
}

cudaError_t allocate_pinned(void** out, std::size_t bytes) {
  *out = nullptr;
  if (fail_this_allocation()) return cudaErrorMemoryAllocation;
  if (bytes == 0) return cudaSuccess;
  if (posix_memalign(out, kGap, bytes) != 0) return cudaErrorMemoryAllocation;
  add(static_cast<char*>(*out), bytes, -1);
  return cudaSuccess;
}

cudaError_t free_pinned(void* p) {
  if (!p) return cudaSuccess;
  const auto found = blocks.find(p);
  if (found == blocks.end() || !found->second.pinned()) return cudaErrorInvalidValue;
  check::forget_block(found->second);
  blocks.erase(found);
  std::free(p);
  return cudaSuccess;
}

Block* find_block(const void* p) {
  auto after = blocks.upper_bound(p);
  if (after == blocks.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  return block.contains(p, 1) ? &block : nullptr;
}

bool is_device_pointer(const void* p) { return arena.holds(p); }

bool is_device_range(const void* p, std::size_t bytes) {
  const Block* const block = find_block(p);
  return block && block->contains(p, bytes);
}

std::size_t bytes_in_use(int device) {
  return static_cast<std::size_t>(device) < used.size() ? used[static_cast<std::size_t>(device)]
                                                        : 0;
}

void free_all_device_memory() {
  std::vector<void*> all;
  for (auto& [p, block] : blocks) {
    if (!block.pinned()) all.push_back(block.begin);
  }
  for (void* p : all) free_device(p);
}

DeviceAccess::DeviceAccess() { arena.open(); }
DeviceAccess::~DeviceAccess() { arena.close(); }

}  // namespace cusim
