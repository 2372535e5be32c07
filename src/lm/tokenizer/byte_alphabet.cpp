#include "lm/tokenizer/byte_alphabet.h"

#include <array>

#include "lm/tokenizer/split/unicode.h"

namespace firn::lm::bpe {
namespace {

/// Printable characters of Latin-1 stand for themselves. The other bytes get the characters from
/// U+0100 on, in their order.
struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int, 0x144> to_byte{};
  constexpr Alphabet() {
    to_byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
      of_byte[byte] = printable ? byte : next++;
      to_byte[of_byte[byte]] = static_cast<int>(byte);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t character_of_byte(unsigned char byte) noexcept { return kAlphabet.of_byte[byte]; }

std::optional<std::string> bytes_of_name(std::string_view name) {
  std::string bytes;
  for (std::size_t at = 0; at < name.size();) {
    const char32_t code = next_code_point(name, at);
    if (code >= kAlphabet.to_byte.size() || kAlphabet.to_byte[code] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.to_byte[code]);
  }
  return bytes;
}

std::string name_of_bytes(std::string_view bytes) {
  std::string name;
  for (const char byte : bytes)
    append_utf8(name, character_of_byte(static_cast<unsigned char>(byte)));
  return name;
}

}  // namespace firn::lm::bpe
