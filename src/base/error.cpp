#include "firn/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <utility>

namespace firn {
namespace {

void print_warning(const std::string& text) {
  std::fputs(fmt::format("firn: warning: {}\n", text).c_str(), stderr);
}

/// Of the process.
struct Warnings {
  std::mutex mutex;
  WarningHandler handler = print_warning;
};
Warnings& warnings() {
  static Warnings w;
  return w;
}

std::string compose(std::string_view op, std::string_view message, std::string_view hint) {
  return hint.empty() ? fmt::format("[{}] {}", op, message)
                      : fmt::format("[{}] {}; hint: {}", op, message, hint);
}

}  // namespace

Error::Error(std::string_view op, std::string_view message, std::string_view hint)
    : std::runtime_error(compose(op, message, hint)), op_(op), hint_(hint) {}

OutOfMemory::OutOfMemory(std::string_view message, std::size_t requested_bytes)
    : Error("allocate", message, "use a smaller batch, or release tensors that are not needed"),
      requested_bytes_(requested_bytes) {}

IoError::IoError(std::string_view op, std::string_view path, std::string_view message,
                 std::string_view hint)
    : Error(op, fmt::format("{}: {}", path, message), hint), path_(path) {}

WarningHandler set_warning_handler(WarningHandler handler) {
  Warnings& w = warnings();
  const std::lock_guard lock(w.mutex);
  return std::exchange(w.handler, std::move(handler));
}

void warn(std::string_view op, std::string_view message, std::string_view hint) {
  WarningHandler handler;
  {
    Warnings& w = warnings();
    const std::lock_guard lock(w.mutex);
    handler = w.handler;
  }
  if (handler) handler(compose(op, message, hint));
}

}  // namespace firn
