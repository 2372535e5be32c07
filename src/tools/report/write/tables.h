// A log as tables for other programs: steps.csv and epochs.csv (RFC 4180, all digits).
#pragma once

#include <string>
#include <vector>

#include "tools/report/log/run.h"

namespace firn::report {

/// Writes both files into `folder`, which is made if it is not there. A value that the log does not
/// have, or that is not finite, is an empty field. Returns the paths. Throws IoError.
std::vector<std::string> write_csv(const Run& run, const std::string& folder);

}  // namespace firn::report
