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

/// The part of a log that is read: its size when the program looked first, since a run under way
/// adds to it.
struct LogPart {
  std::string path;
  std::uint64_t begin = 0;  ///< bytes
  std::uint64_t end = 0;
};

/// What a reading came to.
struct Reading {
  std::int64_t records = 0;
  std::int64_t broken = 0;        ///< lines that are no record: passed over
  std::int64_t first_broken = 0;  ///< the first of them, counted from 1
  bool cut_off = false;           ///< the last line ends half-way
};

/// A log as it is now. Throws IoError if there is no such file, or if it is empty or no plain file.
LogPart log_at(const std::string& path);

/// Calls on_record(kind, record, at) for each line of the part that is a JSON object with a kind.
/// A number that f64 cannot hold makes a line unreadable; firn writes null.
/// The line begins at byte `at` of the file. Throws IoError if the file cannot be read.
Reading read_records(const LogPart& log,
                     const std::function<void(const std::string& kind, const Json& record,
                                              std::uint64_t at)>& on_record);

// A member of a record. Readers pass over what has another type than they expect.
double number_of(const Json& record, const char* name);  ///< NaN if there is none
std::string text_of(const Json& record, const char* name);
/// The member if it is an object, else an empty one.
const Json& object_of(const Json& record, const char* name);

/// Members of an object that are numbers; `null` is NaN.
struct NamedNumber {
  std::string name;
  double value = 0;
};
std::vector<NamedNumber> numbers_of(const Json& object);

/// False only if the member is there and is false.
bool applied(const Json& step);

}  // namespace firn::report
