// The page: one file that shows runs, needs no network and no script, and may run nothing but its
// own script.
#pragma once

#include <string>
#include <vector>

#include "tools/report/log/run.h"

namespace firn::report {

/// Most runs on a page: each has a colour.
inline constexpr std::size_t kMostRuns = 8;

/// HTML of one to kMostRuns runs.
std::string page(const std::vector<Run>& runs);

}  // namespace firn::report
