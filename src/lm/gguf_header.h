// The header of a GGUF file: everything before the elements of its tensors, checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "firn/lm/gguf.h"
#include "io/file/input_file.h"

namespace firn::lm::detail {

/// Longest header that is read, in bytes. Vocabularies of the largest models take some 20 MB.
inline constexpr std::uint64_t kLongestHeader = std::uint64_t{256} << 20;

/// Returns the bytes of a number or a BOOL; 0 for texts and arrays.
std::uint64_t size_of(GgufValueType type) noexcept;

/// A piece of the header's bytes.
struct HeaderPiece {
  std::size_t begin = 0, bytes = 0;
};

/// A key of the metadata, and where its value is.
struct GgufField {
  HeaderPiece key;
  GgufValueType type = GgufValueType::u8;
  GgufValueType element_type = GgufValueType::u8;  ///< an array's; else `type`
  std::uint64_t count = 1;                         ///< an array's; else 1
  std::size_t begin = 0;  ///< byte of the value, or of an array's first element
};

/// A tensor, and where its bytes are.
struct GgufTensor {
  HeaderPiece name;
  GgufType type = GgufType::f32;
  Shape shape;
  std::uint64_t begin = 0;  ///< byte of the file
  std::uint64_t bytes = 0;  ///< 0 for a type that firn does not read
};

struct GgufHeader {
  std::string bytes;  ///< the file's bytes up to the end of the header, and some more
  std::uint32_t version = 0;
  std::vector<GgufField> fields;
  std::vector<GgufTensor> tensors;

  std::string_view text(HeaderPiece piece) const {
    return std::string_view(bytes).substr(piece.begin, piece.bytes);
  }
};

/// Reads the header from the first byte on. Throws IoError, which names the byte of the file: see
/// GgufFile.
GgufHeader read_gguf_header(io::InputFile& file);

}  // namespace firn::lm::detail
