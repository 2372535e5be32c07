// Who may assert: Catch2's assertions belong to the main thread, those of thread_check.h to others.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include "firn/dist/local.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/thread_check.h"
#include "support/values.h"

namespace firn::testing {
namespace {

TEST_CASE("tests: what does not hold on a rank fails on the main thread", "[host]") {
  const auto low = [](const dist::Group& group) { THREAD_CHECK(group.rank() < 1); };
  CHECK_NOTHROW(dist::run_local(1, low));
  CHECK_THROWS_WITH(dist::run_local(2, low), test::contains("group.rank() < 1"));
  const auto silent = [](const dist::Group&) { error_of([] {}); };
  CHECK_THROWS_WITH(dist::run_local(2, silent), test::contains("a firn::Error is thrown"));
  const auto no_throw = [](const dist::Group&) { THREAD_CHECK_THROWS_AS(ones({1}), Error); };
  CHECK_THROWS_WITH(dist::run_local(2, no_throw), test::contains("ones({1}) throws Error"));
}

TEST_CASE("tests: an assertion of Catch2 in a thread ends the program", "[host]") {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    ::close(STDERR_FILENO);
    std::thread([] { CHECK(true); }).join();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
}

}  // namespace
}  // namespace firn::testing
