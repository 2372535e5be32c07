#include "support/thread_check.h"

#include <thread>

namespace firn::testing {
namespace {

const std::thread::id main_thread = std::this_thread::get_id();

}  // namespace

bool on_main_thread() noexcept { return std::this_thread::get_id() == main_thread; }

void thread_check(bool holds, const std::string& expression, const char* file, int line) {
  if (holds) return;
  throw ThreadCheckFailed(std::string(file) + ":" + std::to_string(line) +
                          ": this does not hold: " + expression);
}

}  // namespace firn::testing
