// The caching allocator of a CUDA device (allocator.h), and the memory of captured graphs.
//
// While a thread captures a graph, its allocations come from the graph's pool. The graph replays
// the same kernels on the same addresses, so nothing else may use them. A block that is released
// during the capture serves later requests of the capture, and is then kept until the graph is
// destroyed. Two more kinds of blocks are kept that long. One is an outside block that is released
// during the capture, since captured kernels may read it. The other is a block of the pool that is
// released after it.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "runtime/cuda/api.h"
#include "runtime/cuda/cuda.h"
#include "runtime/graph/captured_graph.h"
#include "runtime/memory/accounts.h"
#include "runtime/memory/allocator.h"
#include "runtime/memory/cache.h"
#include "runtime/memory/graph_pool.h"
#include "runtime/plan/model.h"

namespace firn::memory {

struct GraphPool {
  Stream home;
  std::map<void*, FreeLists> free;  // free lists by stream, for the capture in progress
  std::vector<void*> owned;         // all blocks of the pool, in use or not
  FreeList kept;  // released blocks, of the pool and from outside, until the graph is destroyed
};

namespace cuda {
namespace {

/// Holds the links of the free list, since the host cannot write to the block itself.
struct Block : FreeBlock {
  void* address;
  void* stream;               // the stream that owns the block
  GraphPool* pool = nullptr;  // the graph pool that owns the block; null: none
  std::vector<void*> users;   // other streams whose work uses the block
};
Block* block_of(FreeBlock* link) noexcept { return static_cast<Block*>(link); }

#ifdef FIRN_EXACT_BLOCKS
constexpr bool kExactBlocks = true;
#else
constexpr bool kExactBlocks = false;
#endif

class DeviceCache {
 public:
  explicit DeviceCache(int device) : device_(device), accounts_(Device::cuda(device)) {}

  void allocate(MemoryBlock& b, Stream stream) {
    const CapturedGraph* captured = CapturedGraph::current(stream.device);
    GraphPool* pool = captured ? captured->pool() : nullptr;
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = b.bytes();
    if (bytes > kMostBytes) accounts_.fail(bytes, "no memory left");
    const std::size_t size = allocated_size(bytes);
    if (injected_failure()) accounts_.fail(bytes, "injected failure");
    FreeLists& lists = pool ? pool->free[stream.handle] : free_[stream.handle];
    FreeBlock* link = lists.pop(size);
    if (!link && pool) {
      if (pool->owned.size() == pool->owned.capacity())  // so that adopt() cannot fail
        pool->owned.reserve(2 * pool->owned.size() + 16);
      FreeLists& home = free_[pool->home.handle];
      link = home.pop(size);  // the graph's work runs after the work that used the block
      if (!link) link = from_system(bytes, size, stream.handle);
      adopt(*block_of(link), stream.handle, pool);
    }
    if (!link) link = from_system(bytes, size, stream.handle);
    accounts_.allocated(b, block_of(link)->address, size);
  }

  void release(MemoryBlock& b) noexcept {
    const CapturedGraph* captured = CapturedGraph::current(Device::cuda(device_));
    const std::lock_guard lock(mutex_);
    Block& block = blocks_.at(b.data());
    accounts_.released(b);
    if (!captured) return put_back(block);
    GraphPool* pool = captured->pool();
    if (block.pool == pool && order_after_users(block)) {
      pool->free.find(block.stream)->second.push(&block);
    } else {
      pool->kept.push(&block);
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
    for (auto& [stream, lists] : pool->free)
      lists.drain([&](FreeBlock* link) { pool->kept.push(link); });
    for (void* p : pool->owned) {
      Block& block = blocks_.at(p);
      block.pool = nullptr;
      block.stream = pool->home.handle;
    }
    while (FreeBlock* link = pool->kept.pop()) put_back(*block_of(link));
  }

  void look(const std::function<void(Accounts&)>& fn) {
    const std::lock_guard lock(mutex_);
    fn(accounts_);
  }
  void begin(Model& model) {
    const std::lock_guard lock(mutex_);
    model.begin_as(accounts_);
    for (const auto& [stream, lists] : free_) model.add_free(stream, lists);
  }
  void release_cached() {
    const std::lock_guard lock(mutex_);
    drop_cached();
  }

 private:
  void adopt(Block& block, void* stream, GraphPool* pool) {
    block.stream = stream;
    block.pool = pool;
    pool->owned.push_back(block.address);
  }

  // Returns the block to its stream's free list, or to the graph that it belongs to.
  void put_back(Block& block) noexcept {
    if (block.pool) {
      block.pool->kept.push(&block);
    } else if (order_after_users(block)) {
      free_.find(block.stream)->second.push(&block);
    }
    // Otherwise CUDA refuses work on the device, and the block is not reused.
  }

  // Makes the block's stream wait for the work of its users, so that the block can be used again.
  bool order_after_users(Block& block) noexcept {
    const bool captured = !block.users.empty() && is_capturing(block.stream);
    while (!block.users.empty()) {
      void* user = block.users.back();
      // CUDA cannot order a captured stream with one that is not captured.
      if (is_capturing(user) != captured) return false;
      if (!order(device_, block.stream, user)) return false;
      block.users.pop_back();
    }
    return true;
  }

  /// Allocates a block from the system and lists it in blocks_.
  FreeBlock* from_system(std::size_t bytes, std::size_t size, void* stream) {
    set_device(device_, "allocate");
    const RelaxedCapture relaxed;
    void* p = nullptr;
    cudaError_t status = cudaErrorMemoryAllocation;
    if (accounts_.may_take(size)) status = cudaMalloc(&p, size);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      drop_cached();
      if (!accounts_.may_take(size)) accounts_.fail(bytes, "the limit is reached");
      status = cudaMalloc(&p, size);
    }
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      accounts_.fail(bytes, "no memory left");
    }
    check_cuda(status, "allocate", "cudaMalloc");
    try {
      Block block{{nullptr, size}, p, stream, nullptr, {}};
      FreeBlock* const link = &blocks_.emplace(p, std::move(block)).first->second;
      accounts_.taken_from_system(size);
      return link;
    } catch (const std::bad_alloc&) {
      succeeded(cudaFree(p));
      accounts_.fail(bytes, "no memory left on the host for the list of blocks");
    }
  }

  // Waits for the streams of the cached blocks, then returns the blocks to the system. Does nothing
  // during a capture: cudaFree waits for the whole device, which ends captures of other threads.
  void drop_cached() {
    if (CapturedGraph::any()) return;
    set_device(device_, "release_cached_memory");
    const RelaxedCapture relaxed;
    for (auto& free : free_) {
      const auto stream = free.first;  // no structured binding: Clang 14 does not capture one
      bool waited = false;
      free.second.drain([&](FreeBlock* link) {
        void* const p = block_of(link)->address;
        const std::size_t size = link->size;
        if (!waited) {
          waited = true;
          count_host_wait();
          succeeded(cudaStreamSynchronize(native(stream)));  // a later call reports the error
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
  std::unordered_map<void*, Block> blocks_;  // all blocks allocated from the device
  std::map<void*, FreeLists> free_;          // free lists by stream
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

std::size_t allocated_size(std::size_t bytes) noexcept {
  return kExactBlocks ? std::max<std::size_t>(bytes, 1) : block_size(bytes);
}

void allocate(MemoryBlock& b, Stream stream) { cache_of(stream.device.index).allocate(b, stream); }
void release(MemoryBlock& b) noexcept { cache_of(b.device().index).release(b); }
void record_use(void* block, Stream stream) {
  cache_of(stream.device.index).record_use(block, stream.handle);
}
void look(int device, const std::function<void(Accounts&)>& fn) { cache_of(device).look(fn); }
void begin_model(Model& model) { cache_of(model.device().index).begin(model); }
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
