// Environment variables: those that firn reads beside those that environment() knows.
#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "environment/parts.h"
#include "repo/files.h"
#include "support/catch.h"

namespace repo {

TEST_CASE("environment() knows every variable FIRN_ that anything reads") {
  // A name in a string, and after a shell's $ or in Python's environ.
  static const std::regex in_code(
      R"re((?:getenv|from_environment<\w+>|word|setting)\(\s*"(FIRN_\w+)")re");
  static const std::regex in_script(R"re((?:\$\{|\$|environ\.get\("|environ\[")(FIRN_[A-Z_]+))re");
  std::set<std::string> found;
  const auto take = [&found](const std::string& text, const std::regex& pattern) {
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
      found.insert((*it)[1]);
  };
  for (const auto& file : sources({"include", "src", "kernels", "samples", "bench", "tests"}))
    take(read(file), in_code);
  for (const auto& entry : std::filesystem::directory_iterator(root() / "scripts"))
    if (entry.is_regular_file())
      take(read(std::filesystem::relative(entry.path(), root())), in_script);
  CHECK(found.size() >= 12);
  for (const std::string& name : found) {
    CAPTURE(name);
    CHECK(firn::environment_parts::is_known_variable(name));
  }
  CHECK_FALSE(firn::environment_parts::is_known_variable("FIRN_THREAD"));
}

}  // namespace repo
