// The page's style and script: style.css and script.js, which the build puts into the program.
#pragma once

#include <string_view>

namespace firn::report {

extern const std::string_view kStyle;
extern const std::string_view kScript;

}  // namespace firn::report
