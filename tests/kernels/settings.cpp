// The switches of the kernels that the environment sets. Each case reads its switch in a child
// process, whose environment it changes first.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include "support/catch.h"

#include "firn/error.h"
#include "kernels/settings.h"

namespace firn::testing {
namespace {

/// What `read` says in a process in which the variable has this value.
template <class Read>
std::string in_child(const char* name, const char* value, const Read& read) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(name, value, 1);
    std::string said;
    try {
      said = read();
    } catch (const Error& e) {
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

std::string read_epilogues() {
  switch (kernels::epilogues().load()) {
    case kernels::Epilogues::fused:
      return "fused";
    case kernels::Epilogues::unfused:
      return "unfused";
    default:
      return "automatic";
  }
}

std::string read_conv_path() {
  return kernels::conv_path().load() == kernels::ConvPath::im2col ? "im2col" : "automatic";
}

TEST_CASE("settings: FIRN_EPILOGUES is one of its words, or an error that lists them", "[host]") {
  CHECK(in_child("FIRN_EPILOGUES", "unfused", read_epilogues) == "unfused");
  CHECK(in_child("FIRN_EPILOGUES", "", read_epilogues) == "automatic");
  CHECK(in_child("FIRN_EPILOGUES", "Fused", read_epilogues) ==
        "[FIRN_EPILOGUES] is 'Fused'; hint: set it to one of: fused, unfused, automatic");
}

TEST_CASE("settings: FIRN_CONVOLUTIONS is one of its words, or an error that lists them",
          "[host]") {
  CHECK(in_child("FIRN_CONVOLUTIONS", "im2col", read_conv_path) == "im2col");
  CHECK(in_child("FIRN_CONVOLUTIONS", "cudnn", read_conv_path) ==
        "[FIRN_CONVOLUTIONS] is 'cudnn'; hint: set it to one of: im2col, automatic");
}

}  // namespace
}  // namespace firn::testing
