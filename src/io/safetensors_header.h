// The header of a safetensors file, as text and parsed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "firn/dtype.h"
#include "firn/shape.h"
#include "io/json.h"

namespace firn::io {

/// Longest header that is written or read, in bytes; other readers of the format have the same
/// limit.
inline constexpr std::uint64_t kLongestHeader = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// One tensor as the header describes it.
struct Entry {
  std::string_view name;  ///< points into the header's text
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  ///< byte range, counted from the end of the header
  /// Reason why no tensor can hold it: a dtype that firn lacks, or too many axes. Empty: a tensor
  /// can.
  std::string foreign = {};
};

struct Header {
  std::vector<Entry> entries;  ///< in the order of the text
  /// Keys and values, in the order of the text, pointing into it.
  std::vector<std::pair<std::string_view, std::string_view>> metadata;
};

/// Parses a header. Decodes escapes in `text` in place, and the result points into it. Throws
/// IoError, naming the byte within the header, unless it is an object of tensors and metadata in
/// UTF-8. Each name may occur once, and a shape must have less than kMaxElements elements. A dtype
/// that firn lacks and more axes than a tensor has make the entry foreign. Further fields of an
/// entry are skipped, and metadata may be null. The caller checks the byte ranges of the tensors.
Header parse_header(const JsonSource& source, std::string& text);

/// Returns the format's name of a dtype, such as "F32".
std::string_view safetensors_name(DType t);

}  // namespace firn::io
