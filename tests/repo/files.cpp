// The repository's own files, for the tests that read them.
#include "repo/files.h"
#include "support/source_path.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace repo {

std::filesystem::path root() { return firn::testing::source_path(""); }

std::string read(const std::string& path) {
  std::ifstream in(root() / path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> sources(std::initializer_list<const char*> folders) {
  std::vector<std::string> found;
  for (const char* folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root() / folder)) {
      const std::string extension = entry.path().extension();
      if (entry.is_regular_file() &&
          (extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh")) {
        found.push_back(std::filesystem::relative(entry.path(), root()));
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string file_included(const std::string& name) {
  if (name.starts_with("firn/")) return "include/" + name;
  if (name.starts_with("kernels/")) return name;
  return "src/" + name;
}

}  // namespace repo
