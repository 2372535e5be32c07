// Whether a report of memory adds up.
#pragma once

#include <numeric>

#include "firn/memory/report.h"
#include "support/catch.h"

namespace firn::testing {

inline std::size_t sum_of(const BytesByOwner& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
}

/// Owners and modules, now and at the peak, add up to the totals.
inline bool adds_up(const MemoryReport& r) {
  BytesByOwner now{}, at_peak{};
  for (const auto& m : r.modules) {
    for (std::size_t i = 0; i < kOwnerCount; ++i) {
      now[i] += m.now[i];
      at_peak[i] += m.at_peak[i];
    }
  }
  bool same = at_peak == r.stats.at_peak;
  for (std::size_t i = 0; i < kOwnerCount; ++i)
    same = same && now[i] == r.stats.by_owner[i].current;
  return same && sum_of(now) == r.stats.total.current && sum_of(at_peak) == r.stats.total.peak;
}

}  // namespace firn::testing
