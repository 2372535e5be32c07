// The options that a program prints with --help, and those of its manual page.
#pragma once

#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "support/program/process.h"
#include "support/source_path.h"

namespace firn::test {

/// From the lines of CLI11 that begin with options: "  -o,--output TEXT   what it is", and since
/// CLI11 2.5 "  -o,     --output TEXT   what it is" or "          --output TEXT   what it is".
inline std::set<std::string> options_of_help(const std::string& help) {
  static const std::regex names(R"(^ {2,12}(--?[a-z][a-z-]*)(?:, *(--?[a-z][a-z-]*))?)");
  std::set<std::string> options;
  std::smatch found;
  for (const std::string& line : lines_of(help)) {
    if (!std::regex_search(line, found, names)) continue;
    options.insert(found[1]);
    if (found[2].matched) options.insert(found[2]);
  }
  return options;
}

/// From the tags of the section OPTIONS: the lines after .TP. `path` is relative to the repository.
inline std::set<std::string> options_of_manual(const std::string& path) {
  static const std::regex escaped_hyphen(R"(\\-)"), option(R"((?:^|[ "])(--?[a-z][a-z-]*))");
  std::set<std::string> options;
  std::ifstream in(testing::source_path(path));
  bool inside = false, tag = false;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(".SH", 0) == 0) inside = line == ".SH OPTIONS";
    if (inside && tag) {
      line = std::regex_replace(line, escaped_hyphen, "-");
      for (std::sregex_iterator it(line.begin(), line.end(), option), end; it != end; ++it)
        options.insert((*it)[1]);
    }
    tag = line == ".TP";
  }
  return options;
}

}  // namespace firn::test
