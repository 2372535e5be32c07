// Makes control bytes in hostile texts visible. Every tool uses this file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace firn::tools {

/// Escapes everything that a terminal or page should not get: control bytes, bytes that are not
/// UTF-8, and characters that change the direction of a text. Line breaks and tabs are escaped too,
/// unless `keep_lines`. Returns at most `most` bytes of the text; if it is longer, its size
/// follows.
std::string visible(std::string_view text, std::size_t most, bool keep_lines = false);

}  // namespace firn::tools
