// Warnings about probable mistakes that are not errors.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace firn {

/// Receives a warning's text, which has the form of Error::what() (error.h).
using WarningHandler = std::function<void(const std::string& text)>;

/// Sends warnings of all threads to `handler` from now on; an empty one discards them. Returns the
/// previous handler. By default each is a line on stderr: "firn: warning: [BatchNorm2d] ...".
WarningHandler set_warning_handler(WarningHandler handler);

/// Emits a warning; its text is composed as an Error's. Passes on what the handler throws.
void warn(std::string_view op, std::string_view message, std::string_view hint = {});

}  // namespace firn
