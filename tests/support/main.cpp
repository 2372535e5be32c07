// The entry point of every test program. With `--perf [part of a name]` the program measures the
// rows of its op table instead of testing them.
#define CATCH_CONFIG_RUNNER
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <string_view>

#include "support/op_row.h"

int main(int argc, char** argv) {
  if (argc >= 2 && std::string_view(argv[1]) == "--perf") {
    firn::testing::measure_rows(argc >= 3 ? argv[2] : "");
    return 0;
  }
  return Catch::Session().run(argc, argv);
}
