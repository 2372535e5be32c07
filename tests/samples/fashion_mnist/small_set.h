// A small FashionMNIST to run the sample on, and what its output is looked at with.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "data/files.h"
#include "support/matchers.h"
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
    return run_program(IMAGES, arguments, options);
  }
  TempFolder folder;
};

inline bool has_control_bytes(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7f; });
}

/// The number before " MiB" or " KiB" at the end of a column, in KiB.
inline double kib(double number, const std::string& unit) {
  return unit == "MiB" ? 1024 * number : number;
}

/// A row of what --plan prints.
struct PlanRow {
  int micro_batch, per_step;
  double training;  ///< KiB
};

inline std::vector<PlanRow> plan_rows(const std::string& out) {
  std::vector<PlanRow> rows;
  for (const std::string& line : lines_of(out)) {
    std::istringstream words(line);
    PlanRow row{};
    std::string unit;
    if (words >> row.micro_batch >> row.per_step >> row.training >> unit) {
      row.training = kib(row.training, unit);
      rows.push_back(row);
    }
  }
  return rows;
}

/// The records of the run and its epochs.
inline std::vector<nlohmann::json> records_of(const std::string& path) {
  std::vector<nlohmann::json> records;
  for (const std::string& line : lines_of(read_file(path)))
    if (nlohmann::json record = nlohmann::json::parse(line);
        record["record"] == "run" || record["record"] == "epoch")
      records.push_back(std::move(record));
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
