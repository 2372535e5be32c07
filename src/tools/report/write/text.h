// A run in a screenful of plain text.
#pragma once

#include <string>

#include "tools/report/log/run.h"

namespace firn::report {

/// At most some fifty lines of about 110 columns, without control bytes.
std::string text_report(const Run& run);

}  // namespace firn::report
