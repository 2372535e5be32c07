#include "data/loader/staging.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>

#include "firn/ops/ops.h"
#include "firn/runtime/storage.h"

namespace firn::data {
namespace {

constexpr std::size_t kAlign = 256;    // alignment of a field, as in device memory
constexpr std::size_t kMostIdle = 16;  // largest number of unused blocks

/// Blocks of pinned memory, whose sizes are powers of two. Allocating one takes milliseconds, so
/// they are reused.
class Pool {
 public:
  PinnedMemory take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(bytes);
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::find_if(idle_.begin(), idle_.end(),
                                      [&](const PinnedMemory& m) { return m.bytes() == size; });
      if (found != idle_.end()) {
        PinnedMemory block = std::move(*found);
        idle_.erase(found);
        return block;
      }
    }
    return PinnedMemory(size);
  }
  void give(PinnedMemory block) noexcept try {
    const std::lock_guard lock(mutex_);
    if (idle_.size() == kMostIdle) idle_.erase(idle_.begin());  // the one that is unused longest
    idle_.push_back(std::move(block));
  } catch (const std::exception&) {  // no memory to keep it: it is freed
  }

 private:
  std::mutex mutex_;
  std::vector<PinnedMemory> idle_;
};

Pool& pool() {
  static Pool& all = *new Pool;  // batches may outlive static objects
  return all;
}

}  // namespace

std::shared_ptr<const PinnedFields> pin(const Sample& fields) {
  std::vector<PinnedFields::Field> places;
  std::size_t bytes = 0;
  for (const Tensor& field : fields) {
    places.push_back({field.shape(), field.dtype(), bytes});
    bytes += (field.bytes() + kAlign - 1) / kAlign * kAlign;
  }
  const std::shared_ptr<PinnedFields> pinned(new PinnedFields(pool().take(std::max(bytes, kAlign))),
                                             [](PinnedFields* p) {
                                               pool().give(std::move(p->memory));
                                               delete p;
                                             });
  pinned->fields = std::move(places);
  for (std::size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].bytes() == 0) continue;
    const Tensor packed = contiguous(fields[f]);
    std::memcpy(static_cast<char*>(pinned->memory.data()) + pinned->fields[f].offset,
                packed.view().data, packed.bytes());
  }
  return pinned;
}

Staging::~Staging() {
  for (const Copy& copy : under_way_) {
    try {
      copy.done.synchronize();
    } catch (const std::exception&) {  // the device reports it at its next use
    }
  }
}

Sample Staging::send(const std::shared_ptr<const PinnedFields>& batch) {
  Sample fields;
  for (const PinnedFields::Field& field : batch->fields)
    fields.push_back(empty(field.shape, field.dtype, device_));
  Copy& copy = under_way_[(latest_ + 1) % under_way_.size()];
  copy.done.synchronize();
  copy.from = batch;
  before_.record(current_stream(device_));
  before_.block(copies_);
  {
    const StreamScope scope(copies_);
    for (std::size_t f = 0; f < fields.size(); ++f) {
      copy_bytes_async(fields[f].mutable_view().data, device_,
                       static_cast<const char*>(batch->memory.data()) + batch->fields[f].offset,
                       Device::cpu(), fields[f].bytes());
      fields[f].storage()->record_use(copies_);
    }
  }
  copy.done.record(copies_);
  latest_ = (latest_ + 1) % under_way_.size();
  return fields;
}

void Staging::receive() { under_way_[latest_].done.block(current_stream(device_)); }

}  // namespace firn::data
