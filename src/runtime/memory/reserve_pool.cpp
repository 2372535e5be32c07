#include "runtime/memory/reserve_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "firn/memory/plan.h"
#include "firn/memory/reserve.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/rollback.h"
#include "firn/thread_context.h"
#include "runtime/plan/model.h"

namespace firn {
namespace memory {
namespace {

/// Bytes of addresses to measure with. The system allocates pages on their first write.
constexpr std::size_t kSpace = std::size_t{1} << 36;
constexpr std::size_t kAligned = 256;

}  // namespace

ReservePool* ReservePool::current() noexcept { return thread_context.reserve; }
ReservePool* ReservePool::exchange_current(ReservePool* next) noexcept {
  return std::exchange(thread_context.reserve, next);
}

ReservePool::ReservePool(Device device) : device_(device) {
  void* const p = counts_address_space() ? MAP_FAILED
                                         : mmap(nullptr, kSpace, PROT_READ | PROT_WRITE,
                                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  // This address is apart from the blocks of models.
  base_ = p == MAP_FAILED ? reinterpret_cast<char*>(2 * kNoAddress)  // NOLINT: no memory
                          : static_cast<char*>(p);
  bytes_ = kSpace;
}

ReservePool::ReservePool(Device device, std::size_t bytes, Owner owner) : device_(device) {
  // The CPU's blocks begin at multiples of 64 bytes only.
  block_.allocate(bytes + kAligned, device, owner);
  block_.made_by("reserve");
  char* const p = static_cast<char*>(block_.data());
  base_ = p + -reinterpret_cast<std::uintptr_t>(p) % kAligned;
  bytes_ = bytes;
}

ReservePool::~ReservePool() {
  if (!block_.data() && base_ && !is_made_up(base_)) munmap(base_, bytes_);
}

bool ReservePool::serve(MemoryBlock& b) {
  const std::lock_guard lock(mutex_);
  if (b.bytes() > bytes_) return false;
  const std::size_t size = std::max((b.bytes() + kAligned - 1) / kAligned * kAligned, kAligned);
  std::size_t begin = 0;
  auto next = used_.begin();
  for (; next != used_.end() && next->begin - begin < size; ++next) begin = next->end;
  if (begin > bytes_ || size > bytes_ - begin) return false;
  used_.insert(next, {begin, begin + size});
  most_ = std::max(most_, begin + size);
  set_data(b, base_ + begin);
  set_source(b, this);
  retain();
  return true;
}

void ReservePool::give_back(MemoryBlock& b) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto begin = static_cast<std::size_t>(static_cast<char*>(b.data()) - base_);
    used_.erase(std::find_if(used_.begin(), used_.end(),
                             [begin](const Place& place) { return place.begin == begin; }));
    set_data(b, nullptr);
    set_source(b, nullptr);
  }
  if (release()) destroy(this);
}

}  // namespace memory

MemoryReserve::MemoryReserve() noexcept = default;
MemoryReserve::~MemoryReserve() = default;
MemoryReserve::MemoryReserve(MemoryReserve&& other) noexcept = default;
MemoryReserve& MemoryReserve::operator=(MemoryReserve&& other) noexcept = default;

MemoryReserve::MemoryReserve(const std::function<void()>& work, Device device, Owner owner) try {
  require_named("MemoryReserve", "Owner", owner, Owner::data);
  require_function("MemoryReserve", work, "give the work that it serves");
  MemoryReserve measured;
  measured.pool_ = Ref<memory::ReservePool>(new memory::ReservePool(device));
  const auto measure = [&] {
    const Use use(measured);
    work();
  };
  if (runtime::planning()) {  // the plan undoes the other changes at its end
    RollbackPoint start({Rollback::random, Rollback::data});
    measure();
    start.roll_back();
  } else {
    plan_memory(measure, device);
  }
  if (const std::size_t bytes = measured.pool_->most(); bytes > 0)
    pool_ = Ref<memory::ReservePool>(new memory::ReservePool(device, bytes, owner));
}
FIRN_OUT_OF_MEMORY("a reserve of memory")

std::size_t MemoryReserve::bytes() const noexcept { return pool_ ? pool_->bytes() : 0; }

MemoryReserve::Use::Use(const MemoryReserve& reserve) noexcept
    : before_(memory::ReservePool::exchange_current(reserve.pool_.get())) {}
MemoryReserve::Use::~Use() { memory::ReservePool::exchange_current(before_); }

}  // namespace firn
