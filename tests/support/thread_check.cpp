#include "support/thread_check.h"

#include <thread>

namespace firn::testing {
namespace {

const std::thread::id main_thread = std::this_thread::get_id();

}  // namespace

bool on_main_thread() noexcept { return std::this_thread::get_id() == main_thread; }

void thread_check(bool holds, const std::string& expression, std::source_location at) {
  if (holds) return;
  throw ThreadCheckFailed(std::string(at.file_name()) + ":" + std::to_string(at.line()) +
                          ": this does not hold: " + expression);
}

}  // namespace firn::testing
