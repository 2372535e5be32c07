#include "lm/json_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/file/input_file.h"

namespace firn::lm {

const JsonValue* JsonValue::find(std::string_view name) const noexcept {
  for (const Member& member : members_)
    if (member.first == name) return &member.second;
  return nullptr;
}

const char* name_of(JsonValue::Kind kind) noexcept {
  static constexpr const char* kNames[] = {"null",   "a boolean", "a number",
                                           "a text", "a list",    "an object"};
  return kNames[kind];
}

JsonTree::JsonTree(const io::JsonSource& source, std::size_t most) : source_(source) {
  io::InputFile file(source_.op, source_.path);
  if (file.bytes() > most)
    file.fail(fmt::format("has {} bytes; such a file has at most {}", file.bytes(), most));
  text_.resize(file.bytes());
  file.read_all(text_.data(), text_.size());
  io::JsonReader json(source_, text_);
  root_ = read(json, 0);
  json.end("the value");
}

JsonValue JsonTree::read(io::JsonReader& json, int depth) {
  if (depth == 32) json.fail("lists and objects are nested more than 32 deep");
  JsonValue value;
  value.byte_ = json.value_at();
  const char first = json.peek();
  if (first == '{') {
    value.kind_ = JsonValue::object;
    std::vector<std::string_view> names;
    json.object([&](std::string_view name) {
      names.push_back(name);
      value.members_.emplace_back(name, read(json, depth + 1));
    });
    json.check_distinct(names, "name");
  } else if (first == '[') {
    value.kind_ = JsonValue::list;
    json.list([&] { value.items_.push_back(read(json, depth + 1)); });
  } else {
    json.scalar(value.spelling_);
    value.kind_ = first == '"'                   ? JsonValue::text
                  : first == 'n'                 ? JsonValue::null
                  : first == 't' || first == 'f' ? JsonValue::boolean
                                                 : JsonValue::number;
  }
  return value;
}

}  // namespace firn::lm
