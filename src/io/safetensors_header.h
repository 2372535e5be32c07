// The header of a safetensors file: a parser for the JSON that the format needs, which trusts no
// input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "firn/dtype.h"
#include "firn/shape.h"

namespace firn::io {

/// Longest header that is written or read, in bytes; other readers of the format have the same
/// limit.
inline constexpr std::uint64_t kLongestHeader = 100'000'000;
/// Most tensors, and most metadata entries, that are written or read. This bounds the memory that a
/// hostile header can claim.
inline constexpr std::size_t kMostNames = 200'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// One tensor as the header describes it.
struct Entry {
  std::string_view name;  ///< points into the header's text
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  ///< byte range, counted from the end of the header
};

/// Parses a header; `path` is for errors. Decodes escapes in `json` in place; the entries point
/// into it. Throws IoError, naming the byte within the header, unless it is an object of tensors
/// and metadata in UTF-8. Each name may occur once, dtypes must be firn's, and a shape must be one
/// that tensors can have (kMaxElements). The caller checks the byte ranges of the tensors.
std::vector<Entry> parse_header(const std::string& path, std::string& json);

/// Whether `text` is UTF-8 (RFC 3629).
bool is_utf8(std::string_view text) noexcept;
/// `name` in quotes for a message; a long one is truncated, and bytes that no terminal should get
/// are escaped.
std::string quoted_for_message(std::string_view name);

}  // namespace firn::io
