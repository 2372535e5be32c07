// The page: one file that shows runs and needs neither a network nor a script. It may run only its
// own script.
#pragma once

#include <string>
#include <vector>

#include "tools/report/log/run.h"

namespace firn::report {

/// Largest number of runs on a page, since each has a colour.
inline constexpr std::size_t kMostRuns = 8;

/// Returns the HTML of one to kMostRuns runs.
std::string page(const std::vector<Run>& runs);

}  // namespace firn::report
