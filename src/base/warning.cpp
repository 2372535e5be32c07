#include "firn/warning.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

#include "base/thread/fork.h"
#include "firn/error.h"

namespace firn {
namespace {

void print_warning(const std::string& text) {
  std::fputs(("firn: warning: " + text + "\n").c_str(), stderr);
}

/// The state of warnings of the process.
struct Warnings {
  std::mutex mutex;
  WarningHandler handler = print_warning;
};
std::mutex& warnings_mutex();
// Never destroyed: code that runs after main() may warn.
Warnings& warnings() {
  static Warnings& w = []() -> Warnings& {
    auto made = std::make_unique<Warnings>();
    hold_during_fork<warnings_mutex>();
    return *made.release();
  }();
  return w;
}
std::mutex& warnings_mutex() { return warnings().mutex; }

}  // namespace

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
  if (handler) handler(Error(op, message, hint).what());
}

}  // namespace firn
