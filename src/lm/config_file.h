// A config.json: its values by key, each of which must be read or known to change nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace firn::lm {

/// A value of JSON.
struct JsonValue {
  enum class Kind : std::uint8_t { null, boolean, number, text, list, object };
  Kind kind = Kind::null;
  std::string text;  ///< the decoded text, or the number, true or false as written
  std::vector<std::pair<std::string, JsonValue>> members;  ///< items of a list have no name

  /// Returns true for null, and for a list or an object of nothing.
  bool empty() const {
    return kind == Kind::null || (text.empty() && members.empty() && kind != Kind::text);
  }
  /// Returns the value for a message: short, in the form of JSON.
  std::string shown() const;
};

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
  ConfigFile(const char* op, std::string path, std::string prefix, JsonValue value);
  const JsonValue* find(std::string_view key) const;
  /// Returns the value and marks it as read; null without the key.
  const JsonValue* take(std::string_view key);
  double number_of(std::string_view key, const JsonValue& value) const;
  std::int64_t integer_of(std::string_view key, const JsonValue& value, Range range) const;
  [[noreturn]] void refuse_kind(std::string_view key, const JsonValue& value,
                                const char* expected) const;

  const char* op_;
  std::string path_;  ///< the file
  std::string
      prefix_;  ///< path of this object in the file, with a dot behind; "" for the outermost
  JsonValue value_;
  std::vector<bool> read_;
};

}  // namespace firn::lm
