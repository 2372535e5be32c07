// The caching allocator of a CUDA device (allocator.h), and the memory of recorded graphs.
//
// While a thread records a graph, its allocations come from the graph's pool. The graph replays the
// same kernels on the same addresses, so nobody else may have them: a block that is released during
// the recording can be had again in the same recording, and is otherwise kept until the graph is
// destroyed. So is a block from outside that is released during the recording, since recorded
// kernels may read it; and a block of the pool that is released later, as the result of a replay.
#include <array>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/cuda/api.h"
#include "runtime/cuda/cuda.h"
#include "runtime/graph/recording.h"
#include "runtime/memory/allocator.h"
#include "runtime/memory/cache.h"
#include "runtime/memory/graph_pool.h"

namespace firn::memory {

struct GraphPool {
  Stream home;
  std::map<void*, FreeLists> free;  // by stream, for the recording under way
  std::vector<void*> owned;         // all blocks of the pool, in use or not
  std::vector<void*> kept;  // released blocks, own and others', that wait for the graph's end
};

namespace cuda {
namespace {

struct Block {
  std::size_t size;
  void* stream;               // that it belongs to
  GraphPool* pool = nullptr;  // of the graph that it belongs to
  std::vector<void*> users;   // other streams whose work uses it
};

#ifdef FIRN_EXACT_BLOCKS
constexpr bool kExactBlocks = true;
#else
constexpr bool kExactBlocks = false;
#endif

class DeviceCache {
 public:
  explicit DeviceCache(int device) : device_(device), accounts_(Device::cuda(device)) {}

  void* allocate(std::size_t bytes, Stream stream, Owner owner) {
    const std::size_t size = kExactBlocks ? std::max<std::size_t>(bytes, 1) : block_size(bytes);
    const Recording* recording = Recording::current(stream.device);
    GraphPool* pool = recording ? recording->pool() : nullptr;
    const std::lock_guard lock(mutex_);
    if (injected_failure()) accounts_.fail(bytes, "injected failure");
    void* p = pool ? pool->free[stream.handle].pop(size) : free_[stream.handle].pop(size);
    if (!p && pool) {
      p = free_[pool->home.handle].pop(size);  // the graph's work comes after what used it
      if (p) adopt(p, stream.handle, pool);
    }
    if (!p) {
      p = from_system(bytes, size);
      Block block{size, stream.handle, nullptr, {}};
      blocks_.emplace(p, std::move(block));
      if (pool) adopt(p, stream.handle, pool);
    }
    accounts_.allocated(size, owner);
    return p;
  }

  void release(void* p, Owner owner) noexcept {
    const Recording* recording = Recording::current(Device::cuda(device_));
    const std::lock_guard lock(mutex_);
    Block& block = blocks_.at(p);
    accounts_.released(block.size, owner);
    if (!recording) return put_back(p, block);
    GraphPool* pool = recording->pool();
    if (block.pool == pool && order_after_users(block)) {
      pool->free[block.stream].push(p, block.size);
    } else {
      pool->kept.push_back(p);
    }
  }

  void record_use(void* p, void* stream) {
    const std::lock_guard lock(mutex_);
    Block& block = blocks_.at(p);
    if (stream == block.stream) return;
    for (void* user : block.users) {
      if (user == stream) return;
    }
    block.users.push_back(stream);
  }

  void retire(GraphPool* pool) noexcept {
    const std::lock_guard lock(mutex_);
    std::vector<void*> kept = std::move(pool->kept);
    for (auto& [stream, lists] : pool->free) {
      lists.drain([&](void* p, std::size_t) { kept.push_back(p); });
    }
    for (void* p : pool->owned) {
      Block& block = blocks_.at(p);
      block.pool = nullptr;
      block.stream = pool->home.handle;
    }
    for (void* p : kept) put_back(p, blocks_.at(p));
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return accounts_.stats();
  }
  void reset_peak() noexcept {
    const std::lock_guard lock(mutex_);
    accounts_.reset_peak();
  }
  void release_cached() {
    const std::lock_guard lock(mutex_);
    drop_cached();
  }

 private:
  void adopt(void* p, void* stream, GraphPool* pool) {
    Block& block = blocks_.at(p);
    block.stream = stream;
    block.pool = pool;
    pool->owned.push_back(p);
  }

  // For its stream's next request, or to the graph that it belongs to.
  void put_back(void* p, Block& block) noexcept {
    if (block.pool) {
      block.pool->kept.push_back(p);
    } else if (order_after_users(block)) {
      free_[block.stream].push(p, block.size);
    }
    // Else CUDA refuses work on the device: the block stays where it is.
  }

  // Makes the block's stream wait for what the others have been given, so that it can be had again.
  bool order_after_users(Block& block) noexcept {
    const bool captured = !block.users.empty() && is_capturing(block.stream);
    while (!block.users.empty()) {
      void* user = block.users.back();
      // An order between a captured stream and one that is not cannot be had.
      if (is_capturing(user) != captured) return false;
      if (!order(device_, block.stream, user)) return false;
      block.users.pop_back();
    }
    return true;
  }

  void* from_system(std::size_t bytes, std::size_t size) {
    set_device(device_, "allocate");
    const RelaxedCapture relaxed;
    void* p = nullptr;
    cudaError_t status = cudaMalloc(&p, size);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      drop_cached();
      status = cudaMalloc(&p, size);
    }
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      accounts_.fail(bytes, "no memory left");
    }
    check_cuda(status, "allocate", "cudaMalloc");
    accounts_.taken_from_system(size);
    return p;
  }

  // Waits for the streams that cached blocks belong to, and gives the blocks back.
  void drop_cached() {
    set_device(device_, "release_cached_memory");
    const RelaxedCapture relaxed;
    for (auto& free : free_) {
      const auto stream = free.first;  // no structured binding: Clang 14 does not capture one
      bool waited = false;
      if (is_capturing(stream)) continue;  // by another thread
      free.second.drain([&](void* p, std::size_t size) {
        if (!waited) {
          waited = true;
          count_host_wait();
          succeeded(cudaStreamSynchronize(native(stream)));  // an error of the work comes again
        }
        succeeded(cudaFree(p));
        blocks_.erase(p);
        accounts_.given_to_system(size);
      });
    }
  }

  const int device_;
  std::mutex mutex_;
  Accounts accounts_;
  std::unordered_map<void*, Block> blocks_;  // all that the device has given
  std::map<void*, FreeLists> free_;          // by stream
};

// Never destroyed: tensors with static storage duration may be released after main().
DeviceCache& cache_of(int device) {
  static std::mutex mutex;
  static auto& caches = *new std::array<DeviceCache*, kMaxDevices>{};
  const std::lock_guard lock(mutex);
  DeviceCache*& cache = caches[static_cast<std::size_t>(device)];
  if (!cache) cache = new DeviceCache(device);
  return *cache;
}

// Blocks of pinned memory by address.
struct Pinned {
  std::mutex mutex;
  std::map<std::uintptr_t, std::size_t> blocks;
};
Pinned& pinned() noexcept {
  static Pinned& all = *new Pinned;
  return all;
}

}  // namespace

void* allocate(std::size_t bytes, Stream stream, Owner owner) {
  return cache_of(stream.device.index).allocate(bytes, stream, owner);
}
void release(void* block, int device, Owner owner) noexcept {
  cache_of(device).release(block, owner);
}
void record_use(void* block, Stream stream) {
  cache_of(stream.device.index).record_use(block, stream.handle);
}
MemoryStats stats(int device) { return cache_of(device).stats(); }
void reset_peak(int device) noexcept { cache_of(device).reset_peak(); }
void release_cached(int device) { cache_of(device).release_cached(); }

void* pinned_allocate(std::size_t bytes) {
  void* block = nullptr;
  const RelaxedCapture relaxed;
  const cudaError_t status =
      cudaHostAlloc(&block, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status, "pinned_allocate", "cudaHostAlloc");
  void* seen_by_devices = nullptr;
  check_cuda(cudaHostGetDevicePointer(&seen_by_devices, block, 0), "pinned_allocate",
             "cudaHostGetDevicePointer");
  FIRN_CHECK(seen_by_devices == block, "pinned_allocate", "",
             "this device sees the host's memory at other addresses; firn needs one address space");
  const std::lock_guard lock(pinned().mutex);
  pinned().blocks.emplace(reinterpret_cast<std::uintptr_t>(block), bytes);
  return block;
}

void pinned_release(void* block) noexcept {
  {
    const std::lock_guard lock(pinned().mutex);
    pinned().blocks.erase(reinterpret_cast<std::uintptr_t>(block));
  }
  const RelaxedCapture relaxed;
  succeeded(cudaFreeHost(block));
}

bool is_pinned(const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(pinned().mutex);
  auto it = pinned().blocks.upper_bound(at);
  return it != pinned().blocks.begin() && (--it, at < it->first + it->second);
}

}  // namespace cuda

GraphPool* make_pool(Stream home) { return new GraphPool{home, {}, {}, {}}; }

void retire_pool(GraphPool* pool) noexcept {
  cuda::cache_of(pool->home.device.index).retire(pool);
  delete pool;
}

}  // namespace firn::memory
