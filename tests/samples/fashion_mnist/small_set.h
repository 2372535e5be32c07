// A small FashionMNIST to run the sample on, and what its output is looked at with.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "data/files.h"
#include "data/matchers.h"
#include "support/program/process.h"

namespace firn::test {

/// A folder with a few training and test images.
class SmallSet {
 public:
  explicit SmallSet(int training = 600, int test = 100) {
    write_split(folder.path(), "train", training);
    write_split(folder.path(), "t10k", test, true);
  }
  Ran run(std::vector<std::string> arguments, RunOptions options = {}) const {
    arguments.insert(arguments.begin(), {"--data", folder.path().string()});
    return run_program(FASHION_MNIST, arguments, options);
  }
  TempFolder folder;
};

inline bool has_control_bytes(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7f; });
}

inline std::vector<nlohmann::json> records_of(const std::string& path) {
  std::vector<nlohmann::json> records;
  for (const std::string& line : lines_of(read_file(path)))
    records.push_back(nlohmann::json::parse(line));
  return records;
}

/// What a run has said on stderr but for its progress, which is a line each ten seconds where
/// stderr is no terminal: a slow machine sees some.
inline std::string complaints(const Ran& ran) {
  return std::regex_replace(ran.err, std::regex(R"(epoch \d+/\d+ +\d+%[^\n]*\n)"), "");
}

inline void check_fails(const Ran& ran, const std::string& message) {
  CHECK(ran.exit_code == 1);
  CHECK_THAT(ran.err, contains(message));
  CHECK(lines_of(ran.err).size() == 1);
  CHECK(ran.err.rfind("error: ", 0) == 0);
  CHECK(!has_control_bytes(ran.err));
}

}  // namespace firn::test
