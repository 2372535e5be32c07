// Reads the log of a run, record by record, in memory that does not grow with it. docs/records.md
// has the schema.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace firn::report {

using Json = nlohmann::ordered_json;

inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

/// The part of a log that is read. It ends at the size at the first look, since a running program
/// adds to the log.
struct LogPart {
  std::string path;
  std::uint64_t begin = 0;  ///< bytes
  std::uint64_t end = 0;
};

/// Result of reading a log.
struct Reading {
  std::int64_t records = 0;
  std::int64_t broken = 0;        ///< lines that are not a record and were skipped
  std::int64_t first_broken = 0;  ///< first such line, counted from 1
  bool cut_off = false;           ///< true if the last line is incomplete
};

/// Returns the current log. Throws IoError if the file does not exist, is empty or is not a plain
/// file.
LogPart log_at(const std::string& path);

/// Calls on_record(kind, record, at) for each line of the part that is a JSON object with a kind.
/// The line begins at byte `at` of the file. A number that f64 cannot hold makes a line unreadable;
/// firn writes null. Throws IoError if the file cannot be read.
Reading read_records(const LogPart& log,
                     const std::function<void(const std::string& kind, const Json& record,
                                              std::uint64_t at)>& on_record);

// These functions return a member of a record. Readers ignore a member of another type.
double number_of(const Json& record, const char* name);  ///< NaN without the member
std::string text_of(const Json& record, const char* name);
/// Returns the member if it is an object, else an empty object.
const Json& object_of(const Json& record, const char* name);

/// A member of an object that is a number; `null` is NaN.
struct NamedNumber {
  std::string name;
  double value = 0;
};
std::vector<NamedNumber> numbers_of(const Json& object);

/// Returns false only if the member exists and is false.
bool applied(const Json& step);

}  // namespace firn::report
