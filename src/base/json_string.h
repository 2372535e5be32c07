// A text as a JSON string. The memory report, the module io and the tools write JSON with it.
#pragma once

#include <string>
#include <string_view>

namespace firn {

/// Returns `text` in quotes, with escapes for quotes, backslashes and control characters (RFC 8259,
/// section 7). Other bytes stay as they are, so the result is UTF-8 if `text` is.
std::string json_string(std::string_view text);

}  // namespace firn
