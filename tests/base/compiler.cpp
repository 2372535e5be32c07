// What the compiler must get right for anything else to be: see cmake/FirnCompiler.cmake.
#include <cstdint>
#include <vector>

#include "support/catch.h"

namespace {

// Out of line, so that the list is built in memory rather than folded away.
template <class T>
__attribute__((noinline)) T last(const std::vector<T>& values) {
  return values.back();
}

}  // namespace

TEST_CASE("the compiler keeps the last of a list of constants") {
  CHECK(last(std::vector<std::int64_t>{3, 3, 3, 0}) == 0);
  CHECK(last(std::vector<std::int64_t>{7, 7, 7, 1}) == 1);
  CHECK(last(std::vector<double>{1, 1, 1, 0}) == 0);
  CHECK(last(std::vector<double>{0.5, 0.5, 0, 0}) == 0);
  CHECK(last(std::vector<float>{2, 2, 2, 2, 2, 2, 2, 0}) == 0);
}
