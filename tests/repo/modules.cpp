// The modules, as CMake has them (src/modules.cmake; the build writes modules.txt): layers and
// includes keep to what modules link. And how large the parts are.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include "repo/files.h"
#include "repo/floors.h"
#include "support/catch.h"

namespace repo {
namespace {

struct Module {
  std::vector<std::string> paths;
  std::set<std::string> links;
};
using Modules = std::map<std::string, Module>;

/// Lines "NAME path PATH" and "NAME links NAME".
Modules modules_of(std::istream& in) {
  Modules all;
  std::string name, word, value;
  while (in >> name >> word >> value) {
    if (word == "path")
      all[name].paths.push_back(value);
    else
      all[name].links.insert(value);
  }
  return all;
}

Modules modules_of_the_build() {
  std::ifstream in(FIRN_MODULES_FILE);
  if (!in) throw std::runtime_error("cannot read " FIRN_MODULES_FILE);
  return modules_of(in);
}

/// The module that names the longest part of the path; empty: none.
std::string module_of(const Modules& modules, const std::string& file) {
  std::string found;
  std::size_t longest = 0;
  for (const auto& [name, module] : modules)
    for (const std::string& path : module.paths)
      if ((file == path || file.starts_with(path + "/")) && path.size() > longest) {
        found = name;
        longest = path.size();
      }
  return found;
}

bool has_a_module(const Part& part) { return part.name != "roof" && part.name != "tools"; }

/// The module of each part: that of its files.
std::map<std::string, std::set<std::string>> modules_of_parts(const Modules& modules) {
  std::map<std::string, std::set<std::string>> found;
  for (const std::string& file : sources({"include", "src", "kernels"}))
    if (const Part* part = part_of(file); part && has_a_module(*part))
      found[std::string(part->name)].insert(module_of(modules, file));
  return found;
}

/// Where the table of layers allows more than the modules link, each a sentence.
std::vector<std::string> disagreements(const Modules& modules) {
  std::vector<std::string> found;
  auto of = modules_of_parts(modules);
  for (const Part& part : kParts) {
    if (!has_a_module(part)) continue;
    const std::string name(part.name);
    if (of[name].size() != 1 || of[name].contains("")) {
      found.push_back("the files of " + name + " are not all of one module");
      continue;
    }
    const std::string mine = *of[name].begin();
    for (const std::string_view other : part.may_include)
      for (const std::string& its : of[std::string(other)])
        if (its != mine && !modules.at(mine).links.contains(its))
          found.push_back(name + " may include " + std::string(other) + ", but " + mine +
                          " does not link " + its);
  }
  return found;
}

/// Pairs of modules of which one includes a file of the other.
std::set<std::pair<std::string, std::string>> included(const Modules& modules) {
  static const std::regex include(R"re(^\s*#\s*include\s*"([^"]+)")re");
  std::set<std::pair<std::string, std::string>> found;
  for (const std::string& file : sources({"include", "src", "kernels"})) {
    const Part* part = part_of(file);
    if (!part || !has_a_module(*part)) continue;
    std::istringstream lines(read(file));
    std::smatch m;
    for (std::string line; std::getline(lines, line);)
      if (std::regex_search(line, m, include))
        found.emplace(module_of(modules, file), module_of(modules, file_included(m[1])));
  }
  return found;
}

TEST_CASE("layers may include what their modules link, and no more") {
  const auto found = disagreements(modules_of_the_build());
  CAPTURE(found);
  CHECK(found.empty());
}

TEST_CASE("a layer that may include a module which its own does not link is seen") {
  Modules modules = modules_of_the_build();
  REQUIRE(modules.at("data").links.erase("io") == 1);
  const auto found = disagreements(modules);
  CHECK(found.size() == 1);
  CHECK(found.at(0) == "data may include io, but data does not link io");
}

TEST_CASE("a module includes each module that it links, and core links none") {
  const Modules modules = modules_of_the_build();
  CHECK(modules.at("core").links.empty());
  const auto pairs = included(modules);
  for (const auto& [name, module] : modules)
    for (const std::string& link : module.links) {
      CAPTURE(name, link);
      CHECK(pairs.contains({name, link}));
    }
  for (const auto& [from, to] : pairs) {
    CAPTURE(from, to);
    CHECK((from == to || modules.at(from).links.contains(to)));
  }
}

TEST_CASE("core.h includes the public headers of core, and firn.h those of the other modules") {
  const Modules modules = modules_of_the_build();
  static const std::regex include(R"re(#include "(firn/[^"]+)")re");
  const auto count = [&](const std::string& header, bool of_core) {
    const std::string text = read(header);
    int headers = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
      const std::string name = (*it)[1];
      CAPTURE(header, name);
      CHECK((module_of(modules, "include/" + name) == "core") ==
            (of_core || name == "firn/core.h" || name == "firn/deprecated.h"));
      ++headers;
    }
    return headers;
  };
  CHECK(count("include/firn/core.h", true) > 50);
  CHECK(count("include/firn/firn.h", false) > 35);
}

TEST_CASE("no part of the library has more lines than its budget") {
  std::map<std::string, std::ptrdiff_t> lines, budget;
  for (const std::string& file : sources({"include", "src", "kernels"}))
    if (const Part* part = part_of(file)) {
      const std::string text = read(file);
      lines[std::string(part->name)] += std::count(text.begin(), text.end(), '\n');
    }
  std::istringstream in(read("tests/repo/lines.txt"));
  std::string name;
  for (std::ptrdiff_t most = 0; in >> name >> most;) budget[name] = most;
  std::ptrdiff_t sum = 0;
  for (const auto& [part, count] : lines) {
    sum += count;
    std::cout << part << " " << count << " of " << budget[part] << "\n";
    CAPTURE(part, count);
    CHECK(count <= budget[part]);
  }
  std::cout << "all " << sum << "\n";
  CHECK(budget.size() == lines.size());  // no budget of a part that is gone
}

}  // namespace
}  // namespace repo
