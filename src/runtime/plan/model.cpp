#include "runtime/plan/model.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <utility>

#include "base/check.h"
#include "firn/thread_context.h"
#include "runtime/memory/allocator.h"
#include "runtime/memory/fail_allocation.h"

namespace firn::memory {
namespace {

/// Bytes of each mapping that blocks are cut from. The system allocates pages on their first
/// write.
constexpr std::size_t kSpace = std::size_t{1} << 36;
/// Where address space counts, bytes of the only mapping, and the largest block that comes from it:
/// the host itself writes small blocks only.
constexpr std::size_t kCountedSpace = std::size_t{1} << 24;
constexpr std::size_t kCountedBlock = std::size_t{1} << 20;
constexpr std::size_t kAligned = 256;

Model*& place_of(Device device) noexcept {
  return device.is_cpu() ? thread_context.cpu_model : thread_context.cuda_model;
}

}  // namespace

Model* Model::current(Device device) noexcept {
  Model* const model = place_of(device);
  return model && model->device_ == device ? model : nullptr;
}
Model* Model::exchange_current(Device device, Model* model) noexcept {
  return std::exchange(place_of(device), model);
}

bool counts_address_space() noexcept {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return true;
  void* const p = ::mmap(nullptr, kSpace, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return true;
  ::munmap(p, kSpace);
  char mode = 0;  // a stream would allocate
  const int file = ::open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool strict = ::read(file, &mode, 1) == 1 && mode == '2';
  ::close(file);
  return strict;
}

bool is_made_up(const void* data) noexcept {
  return reinterpret_cast<std::uintptr_t>(data) >= kNoAddress;
}

Model::Model(Device device)
    : device_(device),
      accounts_(std::make_unique<Accounts>(device)),
      counted_(counts_address_space()) {}

Model::~Model() {
  for (const auto& [space, size] : spaces_) munmap(space, size);
}

Ref<Model> Model::of(Device device) try {
  Ref<Model> model(new Model(device));
  begin_model(*model);
  model->accounts_->set_limit(0);  // a plan reports what it would take without a limit
  return model;
}
FIRN_OUT_OF_MEMORY("a model of the allocator")

void Model::add_free(void* stream, const FreeLists& lists) {
  lists.each([&](std::size_t size) { ++free_[{stream, size}]; });
}

void Model::allocate(MemoryBlock& b) {
  const std::lock_guard lock(mutex_);
  // These are the steps of the allocators, request by request.
  if (b.bytes() > kMostBytes) accounts_->fail(b.bytes(), "no memory left");
  const std::size_t size = allocated_size(device_, b.bytes());
  if (injected_failure()) accounts_->fail(b.bytes(), "injected failure");
  const auto free = free_.find({stream_of(b), size});
  const bool reused = free != free_.end() && free->second > 0;
  if (!reused && !accounts_->may_take(size)) {
    drop_cached();
    if (!accounts_->may_take(size)) accounts_->fail(b.bytes(), "the limit is reached");
  }
  void* const data = address(size);
  free_.try_emplace({stream_of(b), size}, 0);  // so that a release needs no memory
  if (reused) {
    --free->second;
  } else {
    accounts_->taken_from_system(size);
  }
  accounts_->allocated(b, data, size);
  set_source(b, this);
  retain();
}

void* Model::mapped(std::size_t size) noexcept {
  if (counted_ && size > kCountedBlock) return nullptr;
  if (spaces_.empty() || size > spaces_.back().second - used_) {
    if (counted_ && !spaces_.empty()) return nullptr;
    const std::size_t space = counted_ ? kCountedSpace : std::max(kSpace, size);
    void* const p = mmap(nullptr, space, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    try {
      spaces_.emplace_back(static_cast<char*>(p), space);
    } catch (const std::bad_alloc&) {
      munmap(p, space);
      return nullptr;
    }
    used_ = 0;
  }
  void* const data = spaces_.back().first + used_;
  used_ += size;
  return data;
}

void* Model::address(std::size_t size) {
  const std::size_t whole = (size + kAligned - 1) / kAligned * kAligned;
  if (void* const data = mapped(whole)) return data;
  // Different blocks have different addresses: operations ask whether tensors overlap.
  const std::uintptr_t data = kNoAddress + made_up_;
  made_up_ = (made_up_ + whole) % kNoAddress;
  return reinterpret_cast<void*>(data);  // NOLINT: never read or written
}

void Model::put_back(const MemoryBlock& b) noexcept {
  // A real block may be of a size that this model has not seen: then it counts as given back.
  const auto free = free_.find({stream_of(b), size_of_block(b)});
  if (free != free_.end()) {
    ++free->second;
  } else {
    accounts_->given_to_system(size_of_block(b));
  }
}

void Model::give_back(MemoryBlock& b) noexcept {
  {
    const std::lock_guard lock(mutex_);
    put_back(b);
    accounts_->released(b);
    set_source(b, nullptr);
  }
  if (release()) destroy(this);
}

void Model::lost(const MemoryBlock& b) noexcept {
  const std::lock_guard lock(mutex_);
  accounts_->released_elsewhere(b);
  put_back(b);
}

MemoryReport Model::report() {
  const std::lock_guard lock(mutex_);
  return accounts_->report();
}

void Model::release_cached() noexcept {
  const std::lock_guard lock(mutex_);
  drop_cached();
}

void Model::drop_cached() noexcept {
  for (auto& [key, count] : free_) {
    accounts_->given_to_system(key.second * count);
    count = 0;
  }
}

}  // namespace firn::memory
