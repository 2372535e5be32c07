// A JSON text as a tree, for files whose members come in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"

namespace firn::lm {

/// A value of a JSON text. Texts point into the text that was read. The functions that expect a
/// kind of value throw IoError, which names the file, the place and what was found.
class JsonValue {
 public:
  enum Kind : std::uint8_t { null, boolean, number, text, list, object };
  using Member = std::pair<std::string_view, JsonValue>;

  Kind kind() const noexcept { return kind_; }
  bool is_null() const noexcept { return kind_ == null; }
  /// The characters of a text, or the spelling of a number or a boolean.
  std::string_view spelling() const noexcept { return spelling_; }
  const std::vector<JsonValue>& items() const noexcept { return items_; }
  const std::vector<Member>& members() const noexcept { return members_; }
  /// Position of its first byte in the text.
  std::size_t byte() const noexcept { return byte_; }
  /// Returns the member of this name, or nullptr if there is none.
  const JsonValue* find(std::string_view name) const noexcept;

 private:
  friend class JsonTree;
  Kind kind_ = null;
  std::size_t byte_ = 0;
  std::string_view spelling_;
  std::vector<JsonValue> items_;
  std::vector<Member> members_;
};

/// Returns "an object", "a text", ...
const char* name_of(JsonValue::Kind kind) noexcept;

/// A tree and the text that it points into.
class JsonTree {
 public:
  /// Reads a file of at most `most` bytes. Throws IoError if it cannot be read, is not JSON, is
  /// nested more than 32 deep, or has an object with a name that occurs twice.
  JsonTree(const io::JsonSource& source, std::size_t most);
  JsonTree(const JsonTree&) = delete;
  JsonTree& operator=(const JsonTree&) = delete;

  const JsonValue& root() const noexcept { return root_; }
  const io::JsonSource& source() const noexcept { return source_; }

 private:
  JsonValue read(io::JsonReader& json, int depth);

  io::JsonSource source_;
  std::string text_;
  JsonValue root_;
};

}  // namespace firn::lm
