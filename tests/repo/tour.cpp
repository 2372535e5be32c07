// What docs/tour.md, docs/design.md and the READMEs of the folders promise: names of files,
// lengths.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "repo/files.h"
#include "support/catch.h"

namespace repo {
namespace {

std::ptrdiff_t lines_of(const std::string& path) {
  const std::string text = read(path);
  return std::count(text.begin(), text.end(), '\n');
}

/// Paths of the READMEs below the folders that have some.
std::vector<std::string> folder_readmes() {
  std::vector<std::string> found;
  for (const char* folder : {"src", "kernels", "samples", "cmake", "scripts/docs_site"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root() / folder))
      if (entry.path().filename() == "README.md")
        found.push_back(std::filesystem::relative(entry.path(), root()).generic_string());
  std::sort(found.begin(), found.end());
  return found;
}

/// All that the expression's first group matches.
std::vector<std::string> matches(const std::string& text, const std::regex& expression) {
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it)
    found.push_back((*it)[1]);
  return found;
}

/// Whether a page in `folder` may call a file by this name.
bool names_file(const std::string& folder, const std::string& name) {
  for (const std::string& from : {folder, std::string(), std::string("include")})
    if (std::filesystem::exists(root() / from / name)) return true;
  return false;
}

TEST_CASE("the files that docs/tour.md names exist") {
  static const std::regex file(R"((\w[\w/]*\.(?:h|cpp|md)\b))");
  const auto names = matches(read("docs/tour.md"), file);
  CHECK(names.size() > 60);
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK((names_file("docs", name) || names_file("src/autograd", name)));
  }
}

TEST_CASE("the reading list of docs/tour.md is an afternoon's") {
  static const std::regex entry(R"(\n\d+\. \[([^\]]+)\])");
  const auto files = matches(read("docs/tour.md"), entry);
  CHECK(files.size() >= 20);
  std::ptrdiff_t lines = 0;
  for (const std::string& name : files) lines += lines_of(name);
  CAPTURE(files);
  CHECK(lines <= 7000);
}

TEST_CASE("pages about the design stay short, and the list of READMEs is whole") {
  CHECK(lines_of("docs/design.md") <= 150);
  CHECK(lines_of("docs/tour.md") <= 130);
  const std::string design = read("docs/design.md");
  const auto readmes = folder_readmes();
  CHECK(readmes.size() >= 20);
  for (const std::string& page : readmes) {
    CAPTURE(page);
    CHECK(lines_of(page) <= 150);
    CHECK(design.find("(../" + page + ")") != std::string::npos);
  }
}

std::string folder_of(const std::string& page) {
  return std::filesystem::path(page).parent_path().generic_string();
}

TEST_CASE("the files that a folder's README names exist") {
  static const std::regex file(R"(`((?:\w+/)*\w+\.(?:h|cpp|cu|cuh|cmake|py))`)");
  for (const std::string& page : folder_readmes()) {
    for (const std::string& name : matches(read(page), file)) {
      CAPTURE(page, name);
      CHECK(names_file(folder_of(page), name));
    }
  }
}

TEST_CASE("links of docs/tour.md and of the folders' READMEs lead somewhere") {
  static const std::regex link(R"(\]\(([^) #:]+)(?:#[^)]*)?\))");
  std::vector<std::string> pages = folder_readmes();
  pages.emplace_back("docs/tour.md");
  for (const std::string& page : pages) {
    for (const std::string& target : matches(read(page), link)) {
      CAPTURE(page, target);
      CHECK(std::filesystem::exists(root() / folder_of(page) / target));
    }
  }
}

}  // namespace
}  // namespace repo
