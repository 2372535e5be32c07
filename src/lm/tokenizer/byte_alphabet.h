// GPT-2's alphabet: each byte as a printable character. The files spell tokens of bytes with it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace firn::lm::bpe {

/// Returns the bytes that a token's name spells, or nullopt if it has a character outside of the
/// alphabet. The name is UTF-8.
std::optional<std::string> bytes_of_name(std::string_view name);
/// Returns the name that spells these bytes.
std::string name_of_bytes(std::string_view bytes);
/// Returns the character of a byte.
char32_t character_of_byte(unsigned char byte) noexcept;

}  // namespace firn::lm::bpe
