// A reader for the JSON that model files contain, which trusts no input, and what is needed to
// write it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_string.h"

namespace firn::io {

/// Most names in one object that are written or read: tensors, or metadata entries. This bounds the
/// memory that a hostile file can claim.
inline constexpr std::size_t kMostNames = 200'000;

/// Where a JSON text comes from, for its errors.
struct JsonSource {
  const char* op;
  std::string path;
  const char* what;  ///< the text's part of the file: "header"
  const char* hint;
};

/// Goes through a text from front to back (RFC 8259). Decodes escapes in place, and what it returns
/// points into the text. Every function throws IoError if something else comes next. It names the
/// byte of the text, from 0, at which that is.
class JsonReader {
 public:
  JsonReader(const JsonSource& source, std::string& text) : source_(source), text_(text) {}

  /// Calls on_name(name) for each member of an object. It has to read the member's value.
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
  std::string_view string();
  /// A whole number of at most 64 bits.
  std::uint64_t number();
  /// A list of at most `most` whole numbers.
  std::vector<std::uint64_t> numbers(std::size_t most);
  /// Whether null is next, which is then behind.
  bool null();
  /// The text of a string, a number, true, false or null. Skips a list or an object and returns
  /// false.
  bool scalar(std::string_view& value);
  /// Throws unless only white space is left; `what` is what came before.
  void end(const char* what);
  /// Throws unless the first byte of the text opens an object.
  void begin_object() const;

  /// Adds a name to a list of at most kMostNames.
  void add(std::vector<std::string_view>& names, std::string_view name) const;
  /// Throws if a name occurs twice, about the second of them. Sorts the list.
  void check_distinct(std::vector<std::string_view>& names, const char* what) const;
  /// Where the next value begins.
  std::size_t value_at();
  /// Where a text begins that is a part of this one.
  std::size_t place_of(std::string_view part) const {
    return static_cast<std::size_t>(part.data() - text_.data());
  }
  /// Throws about what comes next.
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
  char peek();
  bool accept(char c);
  void expect(char c);

  const JsonSource& source_;
  std::string& text_;
  std::size_t at_ = 0;
};

using firn::json_string;

/// Where `text` is no UTF-8 (RFC 3629): the first byte of what no character is; npos if it is all
/// UTF-8.
std::size_t not_utf8(std::string_view text) noexcept;
inline bool is_utf8(std::string_view text) noexcept {
  return not_utf8(text) == std::string_view::npos;
}
/// `name` in quotes for a message; a long one is truncated, and bytes that no terminal should get
/// are escaped.
std::string quoted_for_message(std::string_view name);
/// The same without quotes if the name is short and clean.
std::string name_for_message(std::string_view name);

}  // namespace firn::io
