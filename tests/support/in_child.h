// A function run in a child process, for limits of a process and settings that it reads once.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "support/catch.h"

namespace firn::testing {

/// The text that `read` returns, or the message of what it throws, in a child process.
template <class Read>
std::string in_child(const Read& read) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said;
    try {
      said = read();
    } catch (const std::exception& e) {
      said = e.what();
    }
    const auto written = ::write(ends[1], said.data(), said.size());
    ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string out;
  char buffer[512];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof(buffer))) > 0;)
    out.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  return out;
}

/// The same in a process in which the environment variable `name` has this value.
template <class Read>
std::string in_child(const char* name, const char* value, const Read& read) {
  return in_child([&] {
    ::setenv(name, value, 1);
    return read();
  });
}

}  // namespace firn::testing
