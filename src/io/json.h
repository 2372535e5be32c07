// Reads the JSON of model files, without trusting it, and has the functions that write JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_string.h"

namespace firn::io {

/// Largest number of names in one object (tensors or metadata entries), for writing and reading. It
/// bounds the memory that a hostile file can claim.
inline constexpr std::size_t kMostNames = 200'000;

/// Origin of a JSON text, for its errors.
struct JsonSource {
  const char* op;
  std::string path;
  const char* what;  ///< the text's part of the file: "header"
  const char* hint;
};

/// Reads a text from front to back (RFC 8259). Decodes escapes in place, and returns texts that
/// point into it. If the text has something else next, each function throws IoError, which names
/// the byte of the text, from 0.
class JsonReader {
 public:
  JsonReader(const JsonSource& source, std::string& text) : source_(source), text_(text) {}

  /// Calls on_name(name) for each member of an object; on_name must read the member's value.
  template <class OnName>
  void object(const OnName& on_name) {
    expect('{');
    if (accept('}')) return;
    do {
      const std::string_view name = string();
      expect(':');
      on_name(name);
    } while (accept(','));
    expect('}');
  }
  /// Calls on_item() for each item of a list; on_item must read it.
  template <class OnItem>
  void list(const OnItem& on_item) {
    expect('[');
    if (accept(']')) return;
    do on_item();
    while (accept(','));
    expect(']');
  }
  std::string_view string();
  /// Reads a whole number of at most 64 bits.
  std::uint64_t number();
  /// Reads a list of at most `most` whole numbers.
  std::vector<std::uint64_t> numbers(std::size_t most);
  /// Skips null and returns true if it is next; else returns false.
  bool null();
  /// Reads any value, and sets `value` to the characters of a string, or to the value as it is
  /// written. Returns false for a list or an object.
  bool scalar(std::string_view& value);
  /// Throws unless only white space is left; `what` names what came before.
  void end(const char* what);
  /// Throws unless the first byte of the text opens an object.
  void begin_object() const;

  /// Adds a name to a list of at most kMostNames.
  void add(std::vector<std::string_view>& names, std::string_view name) const;
  /// Throws, naming the second occurrence, if a name occurs twice. Sorts the list.
  void check_distinct(std::vector<std::string_view>& names, const char* what) const;
  /// Returns the position at which the next value begins.
  std::size_t value_at();
  /// Returns the first character of the next value; NUL at the end.
  char peek();
  /// Returns the position of a text that is a part of this one.
  std::size_t place_of(std::string_view part) const {
    return static_cast<std::size_t>(part.data() - text_.data());
  }
  /// Throws an error at the current position.
  [[noreturn]] void fail(const std::string& what) const { fail_at(at_, what); }
  [[noreturn]] void fail_at(std::size_t byte, const std::string& what) const;

 private:
  void skip_value(int depth);
  void skip_literal();
  void digits(const char* expected);
  void whole(const char* expected);
  void escape(std::size_t& end);
  std::uint32_t hex();
  void put_utf8(std::size_t& end, std::uint32_t code);
  char next();
  void skip_space();
  bool accept(char c);
  void expect(char c);

  const JsonSource& source_;
  std::string& text_;
  std::size_t at_ = 0;
};

using firn::json_string;

/// Returns the position of the first byte of `text` that is not UTF-8 (RFC 3629), or npos.
std::size_t not_utf8(std::string_view text) noexcept;
inline bool is_utf8(std::string_view text) noexcept {
  return not_utf8(text) == std::string_view::npos;
}
/// Returns `name` in quotes for a message. A long name is truncated, and bytes that a terminal
/// should not get are escaped.
std::string quoted_for_message(std::string_view name);
/// Returns the name for a message without quotes if it is short and clean, else
/// quoted_for_message().
std::string name_for_message(std::string_view name);

}  // namespace firn::io
