// The types of the tensors in a GGUF file: plain numbers, and blocks of quantised ones.
#pragma once

#include <cstdint>
#include <string>

namespace firn::lm {

/// How a GGUF file stores a tensor's elements, by the numbers of the format (`ggml_type`). The
/// named types are those that firn reads. A file may have others, which keep their numbers.
enum class GgufType : std::uint32_t {
  f32 = 0,    ///< IEEE 754 binary32
  f16 = 1,    ///< IEEE 754 binary16
  bf16 = 30,  ///< bfloat16
  q4_0 = 2,   ///< 32 numbers of 4 bits, and their scale
  q4_1 = 3,   ///< 32 numbers of 4 bits, their scale and their minimum
  q8_0 = 8,   ///< 32 numbers of 8 bits, and their scale
  q4_k = 12,  ///< 256 numbers of 4 bits, with scales and minima of 6 bits for 32 of them each
  q6_k = 14,  ///< 256 numbers of 6 bits, with scales of 8 bits for 16 of them each
};

/// Elements of a block: 1 for plain numbers, 32 or 256; 0 for a type that firn does not read. A
/// block never reaches from one row of a tensor into the next.
constexpr std::int64_t block_elements(GgufType type) noexcept {
  switch (type) {
    case GgufType::f32:
    case GgufType::f16:
    case GgufType::bf16:
      return 1;
    case GgufType::q4_0:
    case GgufType::q4_1:
    case GgufType::q8_0:
      return 32;
    case GgufType::q4_k:
    case GgufType::q6_k:
      return 256;
  }
  return 0;
}

/// Bytes of a block; 0 for a type that firn does not read.
constexpr std::int64_t block_bytes(GgufType type) noexcept {
  switch (type) {
    case GgufType::f32:
      return 4;
    case GgufType::f16:
    case GgufType::bf16:
      return 2;
    case GgufType::q4_0:
      return 18;
    case GgufType::q4_1:
      return 20;
    case GgufType::q8_0:
      return 34;
    case GgufType::q4_k:
      return 144;
    case GgufType::q6_k:
      return 210;
  }
  return 0;
}

/// Returns the format's name of a type, such as "Q4_1", also of those that firn does not read, or
/// "type 99" for a number that has no name.
std::string to_string(GgufType type);

}  // namespace firn::lm
