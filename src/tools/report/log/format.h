// Numbers and hostile texts for people: rounded, grouped, with units; control bytes made visible.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace firn::report {

/// All digits: reading gives the same bits. "null" if not finite.
std::string full(double x);
/// At most five significant digits; "–" if not finite.
std::string rounded(double x);
/// A whole number in groups of three digits: "1,234,567".
std::string grouped(double x);
/// "30.5 MiB"
std::string bytes_text(double bytes);
/// "0.35 s", "2 min 5 s", "3 h 20 min"
std::string duration(double seconds);

/// What no terminal or page should be given is shown as an escape: control bytes, and characters
/// that turn the direction of a text. Line breaks and tabs too, unless `keep_lines`. At most
/// `most` bytes of the text, then how many there are. The text is UTF-8.
std::string visible(std::string_view text, std::size_t most, bool keep_lines = false);

}  // namespace firn::report
