// The index of a model that is sharded into several safetensors files.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"

namespace firn::io {

/// File names of a folder's index and of an unsharded model (huggingface.co/docs/safetensors).
inline constexpr std::string_view kIndexName = "model.safetensors.index.json";
inline constexpr std::string_view kModelName = "model.safetensors";
/// The key of an index's metadata that holds the bytes of all tensors.
inline constexpr std::string_view kTotalSize = "total_size";

/// A parsed index. Its names point into the text of the index.
struct ShardIndex {
  struct Weight {
    std::string_view name, file;
  };
  std::vector<Weight> weights;  ///< in the order of the text
  std::vector<std::pair<std::string_view, std::string_view>> metadata;
};

/// Reads an index into `text` and parses it there. Throws IoError, naming the byte, unless it is an
/// object with a "weight_map" from names to names of files, each without a folder.
ShardIndex read_shard_index(const char* op, const std::string& path, std::string& text);

}  // namespace firn::io
