// Records the use of memory during one step, for the log.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "firn/memory/report.h"
#include "firn/train/record.h"

namespace firn::train {

/// Records the second cycle of a run, since the first one allocates memory that stays. The choice
/// depends on the run alone, so a resumed run has the same records (S44).
class StepMemory {
 public:
  /// Must be called between batches. `cycles` have ended since the start of the run; `within` is
  /// true if the epoch has begun. Returns the records of the cycle that has just ended, if it is
  /// the recorded one.
  std::vector<Record> after_batch(std::int64_t cycles, bool within, Device device);
  /// Drops a cycle that continues from the ended epoch into the next one.
  void drop() noexcept { timeline_.reset(); }

 private:
  std::optional<MemoryTimeline> timeline_;
};

}  // namespace firn::train
