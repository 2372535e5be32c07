#include "firn/runtime/storage.h"

#include <new>

#include "base/check.h"
#include "firn/memory/labels.h"
#include "firn/runtime/kernel_support.h"
#include "firn/runtime/stream.h"
#include "firn/thread_context.h"
#include "runtime/memory/allocator.h"
#include "runtime/memory/pool.h"
#include "runtime/plan/model.h"
#include "runtime/plan/plan_number.h"

namespace firn {

namespace {

/// Throws Error unless `bytes` bytes from `offset` on lie inside `block`.
void check_inside(const char* op, const Ref<Storage>& block, std::size_t offset,
                  std::size_t bytes) {
  FIRN_CHECK(block, op, "allocate the block first", "the block is null");
  FIRN_CHECK(offset <= block->bytes() && bytes <= block->bytes() - offset, op,
             "a part lies inside its block", "{} bytes from byte {} on of a block of {} bytes",
             bytes, offset, block->bytes());
}

}  // namespace

Ref<Storage> Storage::allocate(std::size_t bytes, Device device, Owner owner) {
  if (!device.is_cpu()) [[unlikely]]
    require_device("allocate", device);
  // Allocate the header first: if the block's allocation throws, the reference releases the header.
  Ref<Storage> storage(new (memory::pool_allocate(sizeof(Storage))) Storage);
  storage->memory_.allocate(bytes, device, owner);
  storage->data_ = storage->memory_.data();
  storage->bytes_ = bytes;
  storage->device_ = device;
  storage->owner_ = owner;
  storage->segment_ = thread_context.labels.segment;
  storage->of_plan_ = runtime::planning();
  storage->absent_ = memory::is_made_up(storage->data_);
  return storage;
}

Ref<Storage> Storage::borrow(void* data, std::size_t bytes, Device device) {
  auto* s = new (memory::pool_allocate(sizeof(Storage))) Storage;
  s->data_ = data;
  s->bytes_ = bytes;
  s->device_ = device;
  return Ref<Storage>(s);
}

Ref<Storage> Storage::adopt(void* data, std::size_t bytes, Device device,
                            void (*release)(void* handle, std::size_t bytes) noexcept,
                            void* handle) {
  Ref<Storage> storage = borrow(data, bytes, device);
  storage->release_ = release;
  storage->handle_ = handle ? handle : data;
  return storage;
}

Ref<Storage> Storage::part_of(Ref<Storage> block, std::size_t offset, std::size_t bytes) {
  check_inside("Storage::part_of", block, offset, bytes);
  auto* s = new (memory::pool_allocate(sizeof(Storage))) Storage;
  s->data_ = static_cast<char*>(block->data_) + offset;
  s->bytes_ = bytes;
  s->device_ = block->device_;
  s->owner_ = block->owner_;
  s->segment_ = block->segment_;
  s->of_plan_ = block->of_plan_;
  s->absent_ = block->absent_ && memory::is_made_up(block->data_);
  s->block_ = std::move(block);
  return Ref<Storage>(s);
}

std::uint32_t Storage::writes_of_plan() const noexcept {
  return planned_.plan == runtime::plan_number() ? planned_.writes : 0;
}

const char* Storage::last_writer() const noexcept {
  return planned_.writes > 0 && writes_of_plan() > 0 ? planned_.last_writer : last_writer_;
}

void Storage::bump_version(const char* op) noexcept {
  const std::uint32_t plan = runtime::dry_run() ? runtime::plan_number() : 0;
  if (plan == 0) [[likely]] {
    ++version_;
    last_writer_ = op;
    return;
  }
  planned_ = {plan, writes_of_plan() + 1, op};
}

void Storage::record_use(Stream stream) {
  if (block_) return block_->record_use(stream);
  if (memory_.data() && !memory_.borrowed() && device_.is_cuda() && stream.device == device_)
    memory::record_use(data_, stream);
}

void Storage::move_into(Ref<Storage> block, std::size_t offset) {
  check_inside("Storage::move_into", block, offset, bytes_);
  FIRN_CHECK(!runtime::dry_run() || of_plan_, "Storage::move_into",
             "move it before the plan, or make it in the plan",
             "memory that was made before a plan cannot be moved in it");
  FIRN_CHECK(!place_is_held(), "Storage::move_into", "move it first, then give its address away",
             "another library has the address of this memory of {} bytes", bytes_);
  if (absent_) fetch();
  void* place = static_cast<char*>(block->data_) + offset;
  copy_bytes(place, block->device_, data_, device_, bytes_);
  if (device_.is_cuda()) record_use(current_stream(device_));
  give_back();
  data_ = place;
  device_ = block->device_;
  owner_ = block->owner_;
  release_ = nullptr;
  block_ = std::move(block);
}

void Storage::set_provider(StorageProvider* provider) noexcept {
  go();
  provider_ = provider;
}

void Storage::come(Ref<Storage> block, std::size_t offset) noexcept {
  data_ = static_cast<char*>(block->data_) + offset;
  block_ = std::move(block);
  absent_ = memory::is_made_up(data_);
}

void Storage::go() noexcept {
  give_back();
  release_ = nullptr;
  block_ = nullptr;
  data_ = nullptr;
  absent_ = true;
}

void Storage::fetch() {
  if (memory::is_made_up(data_)) {
    FIRN_CHECK(runtime::planning(), "Tensor::view", "use tensors that were made outside of plans",
               "a tensor that was made in a plan has no memory after it");
    return;
  }
  FIRN_CHECK(provider_, "Tensor::view",
             "keep the optimizer as long as the model, and save the run before",
             "a weight that was sharded over ranks has lost its optimizer, and its values");
  provider_->fetch(*this);
}

void Storage::give_back() noexcept {
  memory_.release();
  if (release_) release_(handle_, bytes_);
}

void Storage::destroy(Storage* s) noexcept {
  s->give_back();
  s->~Storage();
  memory::pool_release(s, sizeof(Storage));
}

}  // namespace firn
