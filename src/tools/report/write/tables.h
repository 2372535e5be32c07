// Writes a log as tables for other programs: steps.csv and epochs.csv (RFC 4180, all digits).
#pragma once

#include <string>
#include <vector>

#include "tools/report/log/run.h"

namespace firn::report {

/// Writes both files into `folder`, and makes the folder if it does not exist. A value that the log
/// lacks, or that is not finite, is an empty field. Returns the paths. Throws IoError.
std::vector<std::string> write_csv(const Run& run, const std::string& folder);

}  // namespace firn::report
