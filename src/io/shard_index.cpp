#include "io/shard_index.h"

#include <fmt/format.h>

#include <cstdint>

#include "io/file/input_file.h"
#include "io/safetensors_header.h"

namespace firn::io {
namespace {

/// Throws unless `file` is the name of a file in the index's own folder.
void check_file_name(const JsonReader& json, std::string_view name, std::string_view file) {
  const auto refuse = [&](const char* why) {
    json.fail(fmt::format("{} is said to be in {}, {}", quoted_for_message(name),
                          quoted_for_message(file), why));
  };
  if (file.empty()) refuse("which is no name of a file");
  if (file.find('\0') != std::string_view::npos) refuse("which has a NUL character");
  if (file.find('/') != std::string_view::npos || file == "." || file == "..")
    refuse("which is not a file of the index's folder");
  if (!file.ends_with(".safetensors")) refuse("whose name does not end in .safetensors");
}

}  // namespace

ShardIndex read_shard_index(const char* op, const std::string& path, std::string& text) {
  InputFile file(op, path);
  if (file.bytes() > kLongestHeader)
    file.fail(fmt::format("has {} bytes; an index has at most {}", file.bytes(), kLongestHeader));
  text.resize(file.bytes());
  file.read_all(text.data(), text.size());

  const JsonSource source{op, path, "index",
                          "this is not an index of safetensors files, or it is damaged"};
  JsonReader json(source, text);
  ShardIndex index;
  std::vector<std::string_view> fields, names, keys;
  bool has_map = false, has_metadata = false;
  json.object([&](std::string_view field) {
    json.add(fields, field);
    std::string_view value;
    if (field == "weight_map" && !has_map) {
      has_map = true;
      json.object([&](std::string_view name) {
        json.add(names, name);
        const std::string_view target = json.string();
        check_file_name(json, name, target);
        index.weights.push_back({name, target});
      });
      json.check_distinct(names, "name");
    } else if (field == "metadata" && !has_metadata) {
      has_metadata = true;
      json.object([&](std::string_view key) {
        json.add(keys, key);
        if (json.scalar(value)) index.metadata.emplace_back(key, value);
      });
      json.check_distinct(keys, "metadata key");
    } else {
      json.scalar(value);
    }
  });
  json.end("the index's object");
  json.check_distinct(fields, "field");
  if (!has_map) json.fail("has no weight_map");
  return index;
}

}  // namespace firn::io
