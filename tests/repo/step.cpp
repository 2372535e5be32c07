// The step knows no mode (src/optim/README.md): its words, its size, and who includes whom.
#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "repo/files.h"
#include "support/catch.h"

namespace repo {
namespace {

std::ptrdiff_t count(const std::string& text, const std::regex& expression) {
  return std::distance(std::sregex_iterator(text.begin(), text.end(), expression),
                       std::sregex_iterator());
}

TEST_CASE("src/optim/step.cpp has no word of the modes") {
  static const std::regex mode(
      "rank|peer|shard|divide|exact|quant|chunk|overlap|gather|bucket|stage|dry_run|planning|"
      "captur|replay|rollback|abandon");
  const std::string text = read("src/optim/step.cpp");
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), mode), end; it != end; ++it)
    found.push_back(it->str());
  CAPTURE(found);
  CHECK(found.empty());
  CHECK(std::count(text.begin(), text.end(), '\n') <= 200);
}

TEST_CASE("the optimizer and autograd include nothing of src/dist") {
  std::vector<std::string> found;
  for (const std::string& file : sources({"src/optim", "include/firn/optim", "src/autograd"}))
    if (read(file).find("#include \"dist/") != std::string::npos ||
        read(file).find("#include \"firn/dist/") != std::string::npos)
      found.push_back(file);
  CAPTURE(found);
  CHECK(found.empty());
}

TEST_CASE("an optimizer's state has at most 40 functions and 30 members of data") {
  const std::string text = read("src/optim/impl.h");
  const auto begin = text.find("struct Optimizer::Impl final");
  REQUIRE(begin != std::string::npos);
  // Declarations are indented by two, and what follows them by more.
  const std::string body = text.substr(begin, text.find("\n};\n", begin) - begin);
  static const std::regex function(R"(\n  (?!explicit|//)[A-Za-z~][^\n(;={]*\([^\n]*)");
  static const std::regex data(R"(\n  [A-Za-z][\w:<>& ]* \w+(?: = [^;(]*|\{[^;]*\})?;)");
  const std::ptrdiff_t functions = count(body, function), members = count(body, data);
  CAPTURE(functions, members);
  CHECK(functions >= 25);
  CHECK(functions <= 40);
  CHECK(members >= 10);
  CHECK(members <= 30);
}

TEST_CASE("few files reach behind an optimizer") {
  std::vector<std::string> found;
  for (const std::string& file : sources({"src/io", "src/train", "src/data", "src/metrics"}))
    if (read(file).find("#include \"optim/impl.h\"") != std::string::npos) found.push_back(file);
  CAPTURE(found);
  CHECK(found.empty());
}

}  // namespace
}  // namespace repo
