// The parts of a profile, each in its own file.
#pragma once

#include <string>
#include <vector>

#include "firn/profile.h"

namespace firn::profile_parts {

/// Throws unless a file can be written to `path`. Leaves no file behind.
void check_trace_path(const std::string& path);
/// Throws IoError.
void write_trace(const runtime::SpanLog& log, const std::string& path);

std::vector<ProfileRow> rows_of(const runtime::SpanLog& log, ProfileBy by);
std::string table_of(const runtime::SpanLog& log, ProfileBy by, int rows);

}  // namespace firn::profile_parts
