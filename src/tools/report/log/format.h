// Numbers for people: rounded, grouped, with units. And visible(), for hostile texts.
#pragma once

#include <string>

#include "tools/visible.h"

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

using tools::visible;

}  // namespace firn::report
