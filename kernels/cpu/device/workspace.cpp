#include "kernels/cpu/device/workspace.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "kernels/cpu/device/thread_state.h"

namespace firn::kernels::cpu {

namespace {

constinit std::atomic<std::uint64_t> too_small{0};

}  // namespace

Slot::Slot(void* memory, std::int64_t bytes) noexcept
    : memory_(static_cast<char*>(memory)),
      bytes_(bytes),
      outer_(std::exchange(thread_state.workspace, this)) {}
Slot::~Slot() { thread_state.workspace = outer_; }

std::uint64_t Slot::overflows() noexcept { return too_small.load(); }

void* Slot::take(std::int64_t bytes) noexcept {
  const std::int64_t size = slot_bytes(bytes);
  if (size > bytes_ - taken_) {
    too_small.fetch_add(1);
    return nullptr;
  }
  void* const data = memory_ + taken_;
  taken_ += size;
  most_ = std::max(most_, taken_);
  return data;
}

void Slot::give_back(void* data, std::int64_t bytes) noexcept {
  const std::int64_t size = slot_bytes(bytes);
  if (memory_ + taken_ - size == data) taken_ -= size;
}

ScratchMemory::ScratchMemory(std::int64_t bytes) : bytes_(bytes) {
  if (Slot* const current = thread_state.workspace) {
    data_ = current->take(bytes);
    if (data_) {
      slot_ = current;
      return;
    }
  }
  storage_ = Storage::allocate(static_cast<std::size_t>(bytes), Device::cpu(), Owner::workspace);
  data_ = storage_->data();
}

ScratchMemory::~ScratchMemory() {
  if (slot_) slot_->give_back(data_, bytes_);
}

ScratchMemory::ScratchMemory(ScratchMemory&& other) noexcept { *this = std::move(other); }
ScratchMemory& ScratchMemory::operator=(ScratchMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(slot_, other.slot_);
  std::swap(storage_, other.storage_);
  return *this;
}

}  // namespace firn::kernels::cpu
