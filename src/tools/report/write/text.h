// Describes a run in a screenful of plain text.
#pragma once

#include <string>

#include "tools/report/log/run.h"

namespace firn::report {

/// Returns about fifty lines or fewer of about 110 columns, without control bytes.
std::string text_report(const Run& run);

}  // namespace firn::report
