// Warnings: what looks like a mistake, but is none that firn could refuse.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace firn {

/// Takes a warning's text, which reads as that of an Error (error.h).
using WarningHandler = std::function<void(const std::string& text)>;

/// From now on, in all threads, warnings go to `handler`; to none where it is empty. Returns the
/// one before. At first they go to stderr, a line each: "firn: warning: [BatchNorm2d] ...".
WarningHandler set_warning_handler(WarningHandler handler);

/// Gives a warning, whose text is composed as an Error's is. Passes on what the handler throws.
void warn(std::string_view op, std::string_view message, std::string_view hint = {});

}  // namespace firn
