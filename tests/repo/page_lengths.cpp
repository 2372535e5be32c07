// Pages that a newcomer reads first stay short.
#include <algorithm>
#include <string>

#include "repo/files.h"
#include "support/catch.h"

namespace repo {
namespace {

std::ptrdiff_t lines(const std::string& page) {
  const std::string text = read(page);
  return std::count(text.begin(), text.end(), '\n');
}

TEST_CASE("README.md has at most 130 lines: examples and options have pages of their own") {
  CHECK(lines("README.md") <= 130);
}

TEST_CASE("CHANGELOG.md has at most 80 lines until 0.1.0 is tagged") {
  CHECK(lines("CHANGELOG.md") <= 80);
}

}  // namespace
}  // namespace repo
