// What the documents promise about other files.
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "repo/files.h"
#include "support/catch.h"

namespace repo {
namespace {

/// The documents, relative to root(): those of docs/ and the ones elsewhere.
std::vector<std::string> pages() {
  std::vector<std::string> found = {"README.md",        "CONTRIBUTING.md", "LIMITATIONS.md",
                                    "CHANGELOG.md",     "tests/README.md", "tests/cusim/README.md",
                                    "samples/README.md"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root() / "docs"))
    if (entry.path().extension() == ".md")
      found.push_back(std::filesystem::relative(entry.path(), root()).string());
  return found;
}

TEST_CASE("README shows samples/from_scratch.cpp as it is") {
  CHECK(read("README.md").find("\n```cpp\n" + read("samples/from_scratch.cpp") + "```\n") !=
        std::string::npos);
}

TEST_CASE("docs/distributed.md shows the programs of tests/package as they are") {
  for (const char* name : {"ranks.cpp", "devices.cpp"}) {
    CAPTURE(name);
    CHECK(read("docs/distributed.md")
              .find("\n```c++\n" + read(std::string("tests/package/program/") + name) + "```\n") !=
          std::string::npos);
  }
}

TEST_CASE("links between the documents lead somewhere") {
  static const std::regex link(R"(\]\(([^) #:]+)\))");
  for (const std::string& page : pages()) {
    const std::string text = read(page);
    const auto folder = (root() / page).parent_path();
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      const std::string target = (*it)[1];
      CAPTURE(page, target);
      CHECK(std::filesystem::exists(folder / target));
    }
  }
}

TEST_CASE("docs/build.md lists every build option") {
  const std::string page = read("docs/build.md");
  const std::string cmake = read("CMakeLists.txt");
  static const std::regex option(R"(\n(?:option|set)\((FIRN_[A-Z]+) )");
  int options = 0;
  for (std::sregex_iterator it(cmake.begin(), cmake.end(), option), end; it != end; ++it) {
    const std::string name = (*it)[1];
    CAPTURE(name);
    CHECK(page.find("`" + name + "`") != std::string::npos);
    ++options;
  }
  CHECK(options >= 8);
}

}  // namespace
}  // namespace repo
