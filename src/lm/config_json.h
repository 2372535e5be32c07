// Parts of reading and writing a config.json that both models share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json_string.h"
#include "firn/lm/config.h"
#include "lm/config_file.h"

namespace firn::lm {

SpecialIds read_special_ids(ConfigFile& file);

/// Throws unless each of the file's architectures is known.
void check_architectures(ConfigFile& file, std::initializer_list<std::string_view> known);

/// Calls check(), and throws its Error as one that names the file.
template <class Check>
void with_path(const ConfigFile& file, const Check& check) {
  try {
    check();
  } catch (const Error& e) {
    file.fail(e.message(), e.hint());
  }
}

/// Writes an object of JSON, a member on each line.
class JsonWriter {
 public:
  explicit JsonWriter(std::string indent = "  ") : indent_(std::move(indent)) {}

  void add(const char* key, std::int64_t value) { put(key, fmt::format("{}", value)); }
  void add(const char* key, bool value) { put(key, value ? "true" : "false"); }
  void add(const char* key, double value);
  void add(const char* key, const std::string& text) { put(key, json_string(text)); }
  void add(const char* key, const char* text) { put(key, json_string(text)); }
  void add(const char* key, const std::vector<std::string>& texts);
  /// Adds the ids that are set.
  void add(const SpecialIds& ids);
  /// Adds an object or null.
  void put(const char* key, const std::string& json);
  /// Returns the object; the outermost one ends with a line break.
  std::string text() const {
    const std::string outside = indent_.substr(2);
    return "{" + text_ + "\n" + outside + "}" + (outside.empty() ? "\n" : "");
  }

 private:
  std::string indent_, text_;
};

}  // namespace firn::lm
