// A config.json: its values by key, each of which must be read or known to change nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lm/json_tree.h"

namespace firn::lm {

/// Limits of a whole number.
struct Range {
  std::int64_t least, most;
};
/// Largest number of positions and tokens: they are counted in 32 bits.
inline constexpr Range kCounts{1, 2147483647};

/// The members of an object of a config.json, each read once. A value of another kind or outside of
/// its limits throws IoError, which names file, key and value.
class ConfigFile {
 public:
  /// Reads a file, or config.json of a folder.
  ConfigFile(const char* op, const std::string& path);

  std::int64_t integer(std::string_view key, Range range, std::optional<std::int64_t> without = {});
  /// Reads a whole number or null, which is none.
  std::optional<std::int64_t> optional_integer(std::string_view key, Range range);
  /// Reads a whole number, a list of them, or null.
  std::vector<std::int64_t> integers(std::string_view key, Range range);
  double number(std::string_view key, double without);
  std::optional<double> optional_number(std::string_view key);
  bool flag(std::string_view key, bool without);
  std::string text(std::string_view key, std::string_view without);
  /// Reads a list of texts, or null.
  std::vector<std::string> texts(std::string_view key);
  /// Returns the members of an object as a ConfigFile; nothing for null and without the key.
  std::optional<ConfigFile> object(std::string_view key);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Throws unless the value has one of these texts.
  void require_one_of(std::string_view key, std::string_view without,
                      std::initializer_list<std::string_view> values, const char* hint);
  /// Throws if the flag is true: firn has nothing for it.
  void refuse_flag(std::string_view key, const char* hint);
  /// Marks keys as read, whose values change no computation of the model.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Throws that the key's value is not right.
  [[noreturn]] void refuse(std::string_view key, const std::string& what,
                           const std::string& hint) const;
  /// Throws IoError with this text.
  [[noreturn]] void fail(const std::string& what, const std::string& hint) const;
  /// Throws if a key was not read, has a value, and is none of those that change no computation in
  /// any model.
  void finish() const;

 private:
  explicit ConfigFile(std::shared_ptr<const JsonTree> tree);
  ConfigFile(std::shared_ptr<const JsonTree> tree, const JsonValue& value, std::string prefix);
  const JsonValue* find(std::string_view key) const { return value_.find(key); }
  /// Returns the value and marks it as read; null without the key.
  const JsonValue* take(std::string_view key);
  double number_of(std::string_view key, const JsonValue& value) const;
  std::int64_t integer_of(std::string_view key, const JsonValue& value, Range range) const;
  [[noreturn]] void refuse_kind(std::string_view key, const JsonValue& value,
                                const char* expected) const;

  std::shared_ptr<const JsonTree> tree_;  ///< the file
  const JsonValue& value_;                ///< the object in it
  std::string prefix_;      ///< path of the object in the file, with a dot behind; "" for all of it
  std::vector<bool> read_;  ///< for each member, true if it was read
};

}  // namespace firn::lm
