// Checks within ranks and coroutines. Catch2's assertions are for the main thread alone. These
// throw, and run_local() or resume() throws that again on the main thread, where the case fails.
#pragma once

#include <stdexcept>
#include <string>

namespace firn::testing {

/// Not a firn::Error: a test that catches those does not catch this.
struct ThreadCheckFailed : std::logic_error {
  using std::logic_error::logic_error;
};

/// Whether this is the thread that main() runs on.
bool on_main_thread() noexcept;

/// Throws ThreadCheckFailed unless `holds`. Clang 14 has no std::source_location.
void thread_check(bool holds, const std::string& expression, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE());

}  // namespace firn::testing

/// Throws ThreadCheckFailed unless the expression holds.
#define THREAD_CHECK(...) \
  ::firn::testing::thread_check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__)

/// Throws ThreadCheckFailed unless the expression throws an exception of this type.
#define THREAD_CHECK_THROWS_AS(expression, type)                              \
  do {                                                                        \
    bool firn_thrown = false;                                                 \
    try {                                                                     \
      expression;                                                             \
    } catch (const type&) {                                                   \
      firn_thrown = true;                                                     \
    }                                                                         \
    ::firn::testing::thread_check(firn_thrown, #expression " throws " #type); \
  } while (0)
