// From a loader's threads to its device: batches in pinned memory, and copies beside the training.
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

/// Copies fields on the CPU to pinned memory. That memory is used again once nobody has it.
std::shared_ptr<const PinnedFields> pin(const Sample& fields);

/// Copies batches to a device on a stream of its own, while the device computes. A copy waits for
/// the work that is queued when it is begun, since it may get that work's memory. So the next batch
/// is sent right after the one before was handed over: its copy runs beside that one's step.
class Staging {
 public:
  explicit Staging(Device device) : device_(device), copies_(device) {}
  /// Waits for copies that still read.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Begins to copy a batch. The result is on the device, and may be used after receive().
  Sample send(const std::shared_ptr<const PinnedFields>& batch);
  /// Work that the current stream gets from now on comes after the latest copy.
  void receive();

 private:
  struct Copy {
    std::shared_ptr<const PinnedFields> from;  ///< is read until `done`
    Event done;
  };
  Device device_;
  SideStream copies_;
  std::array<Copy, 4> under_way_;  ///< a ring; the host waits for the one that is replaced
  std::size_t latest_ = 0;
  Event before_;
};

}  // namespace firn::data
