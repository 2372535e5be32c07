// Moves batches from a loader's threads to its device: pinned memory, and copies that overlap
// training.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "firn/data/dataset.h"
#include "firn/data/loader.h"
#include "firn/memory.h"
#include "firn/runtime/stream.h"

namespace firn::data {

/// The fields of a batch, one after the other in pinned memory of the host.
struct PinnedFields {
  struct Field {
    Shape shape;
    DType dtype;
    std::size_t offset;
  };
  explicit PinnedFields(PinnedMemory m) noexcept : memory(std::move(m)) {}
  PinnedMemory memory;
  std::vector<Field> fields;
};

/// Copies fields on the CPU to pinned memory, which is reused when its last owner is gone.
std::shared_ptr<const PinnedFields> pin(const Sample& fields);

/// Copies batches to a device on its own stream, while the device computes. A copy waits for the
/// work that is queued when it begins, since it may get that work's memory. So the next batch is
/// sent right after the previous one was returned: its copy overlaps that one's step.
class Staging {
 public:
  explicit Staging(Device device) : device_(device), copies_(device) {}
  /// Waits for copies that still read pinned memory.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Begins to copy a batch. The result is on the device, and may be used after receive().
  Sample send(const std::shared_ptr<const PinnedFields>& batch);
  /// Makes work that is queued on the current stream from now on wait for the latest copy.
  void receive();

 private:
  struct Copy {
    std::shared_ptr<const PinnedFields> from;  ///< the copy reads it until `done`
    Event done;
  };
  Device device_;
  SideStream copies_;
  std::array<Copy, 4> under_way_;  ///< ring; the host waits for the replaced one
  std::size_t latest_ = 0;
  Event before_;
};

}  // namespace firn::data
