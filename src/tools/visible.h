// Hostile texts for people: control bytes made visible. Every tool has this file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace firn::tools {

/// What no terminal or page should be given is shown as an escape: control bytes, bytes that are no
/// UTF-8, and characters that turn the direction of a text. Line breaks and tabs too, unless
/// `keep_lines`. At most `most` bytes of the text, then how many there are.
std::string visible(std::string_view text, std::size_t most, bool keep_lines = false);

}  // namespace firn::tools
