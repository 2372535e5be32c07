// The header of a safetensors file: as much JSON as the format needs, read without trusting it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "firn/dtype.h"
#include "firn/shape.h"

namespace firn::io {

/// Longest header that is written or read; other readers of the format have the same limit.
inline constexpr std::uint64_t kLongestHeader = 100'000'000;
/// Most tensors, and most metadata, that are written or read. They bound the memory that a hostile
/// header can claim.
inline constexpr std::size_t kMostNames = 200'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// One tensor as the header describes it.
struct Entry {
  std::string_view name;  ///< in the header's memory
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  ///< of its bytes, counted from the end of the header
};

/// Reads a header; `path` is for errors. Escapes in `json` are replaced in place: the entries refer
/// to it. Throws IoError, naming the byte within the header, unless it is an object of tensors and
/// of metadata in UTF-8, with each name once, dtypes that firn has, and sizes that fit into 62
/// bits. The caller checks that the tensors lie where they should.
std::vector<Entry> parse_header(const std::string& path, std::string& json);

/// Whether `text` is UTF-8 (RFC 3629).
bool is_utf8(std::string_view text) noexcept;
/// `name` in quotes for a message; a long one is cut.
std::string quoted_for_message(std::string_view name);

}  // namespace firn::io
