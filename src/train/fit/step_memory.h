// How the memory of one step comes and goes, for the log.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "firn/memory/report.h"
#include "firn/train/record.h"

namespace firn::train {

/// Looks at the second cycle of a run: the first one makes what stays. Which cycle it is follows
/// from the run alone, so that a resumed run has the same records (S44).
class StepMemory {
 public:
  /// To be called between batches. `cycles` have ended since the start of the run; `within`:
  /// the epoch has begun. Returns the records of the cycle that has just ended, if it is the one.
  std::vector<Record> after_batch(std::int64_t cycles, bool within, Device device);
  /// The epoch ends: a cycle that goes on into the next one is not looked at.
  void drop() noexcept { timeline_.reset(); }

 private:
  std::optional<MemoryTimeline> timeline_;
};

}  // namespace firn::train
