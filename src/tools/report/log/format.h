// Formats numbers for readers: rounded, grouped, with units. Also has visible(), for hostile texts.
#pragma once

#include <string>

#include "tools/visible.h"

namespace firn::report {

/// Returns all digits, so that reading gives the same bits; "null" if not finite.
std::string full(double x);
/// Returns at most five significant digits; "–" if not finite.
std::string rounded(double x);
/// Returns a whole number in groups of three digits: "1,234,567".
std::string grouped(double x);
/// Returns a size such as "30.5 MiB".
std::string bytes_text(double bytes);
/// Returns a time such as "0.35 s", "2 min 5 s", "3 h 20 min".
std::string duration(double seconds);

using tools::visible;

}  // namespace firn::report
