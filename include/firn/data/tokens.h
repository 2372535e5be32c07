// Files of tokens for language models, read as windows of a text with the tokens that follow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "firn/data/dataset.h"

namespace firn::data {

/// Format of a token in a file: an unsigned or signed little-endian integer of 8 to 64 bits. u8
/// also reads any file as the bytes of a text.
enum class TokenFormat : std::uint8_t { u8, u16, u32, i32, i64 };

/// Returns "u8", "u16", "u32", "i32" or "i64".
const char* to_string(TokenFormat format) noexcept;

struct TokenOptions {
  std::int64_t length = 0;  ///< T, the number of tokens of x and of y; must be given
  std::int64_t stride = 0;  ///< tokens from the start of one window to the next; 0: length
  /// Format of a token. nullopt means the format in the header of a .npy file, and u16 for any
  /// other file.
  std::optional<TokenFormat> format = std::nullopt;
  std::int64_t header_bytes = 0;  ///< bytes before the first token of a file that is not .npy
  std::int64_t vocabulary = 0;    ///< if > 0, a token must be in [0, vocabulary)
};

/// Windows of a file of tokens. Sample i is {x i64 [T], y i64 [T]}: x has the tokens from i *
/// stride on, and y the tokens one place later. A set of n tokens has (n - 1 - T) / stride + 1
/// samples, rounded down; the tokens left at the end belong to no sample. A Loader shuffles
/// windows.
///
///   const data::TokenDataset text("train.bin", {.length = 1024, .vocabulary = 50257});
///
/// The file is raw: it holds only tokens after header_bytes. A file whose name ends in ".npy" is
/// read as a NumPy array of one axis and the dtype u1, u2, u4, i4 or i8.
///
/// The file stays open, and each window is read from it (pread) when its sample is made. So it may
/// be larger than memory. If it shrinks meanwhile, a sample throws an error, where mapped memory
/// would end the program with SIGBUS. Several threads may share one set.
class TokenDataset : public Dataset {
 public:
  /// Throws Error unless length >= 1 and the other numbers are >= 0. Throws IoError if the file
  /// cannot be read, its size is not a multiple of a token's, or it has fewer than T + 1 tokens.
  /// Also throws IoError if its NumPy header is damaged or differs from `format`. A sample throws
  /// SampleError, naming token and place, if a token is outside the vocabulary.
  TokenDataset(const std::string& path, TokenOptions options);
};

/// Writes tokens as a raw file, which replaces `path` atomically. Throws Error, naming the first
/// such token, if a token does not fit the format, and if `path` ends in ".npy". Throws IoError if
/// the file cannot be written; the old file is then unchanged.
void write_tokens(const std::string& path, std::span<const std::int64_t> tokens,
                  TokenFormat format = TokenFormat::u16);

}  // namespace firn::data
