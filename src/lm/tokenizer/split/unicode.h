// Characters as tokenizers class them, and the normal forms of a text. Texts are valid UTF-8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace firn::lm::bpe {

/// Classes of a character; a character may have several.
enum Class : std::uint8_t {
  kLetter = 1,     ///< L
  kNumber = 2,     ///< N
  kSpace = 4,      ///< White_Space
  kNewline = 8,    ///< CR and LF; they are kSpace too
  kUpper = 16,     ///< Lu, Lt
  kLower = 32,     ///< Ll
  kCaseless = 64,  ///< Lm, Lo, M
};

struct Character {
  std::uint8_t classes;
  std::uint8_t bytes;
};

namespace detail {
constexpr std::array<std::uint8_t, 128> ascii_classes() {
  std::array<std::uint8_t, 128> table{};
  for (std::size_t c = 'a'; c <= 'z'; ++c) table[c] = kLetter | kLower;
  for (std::size_t c = 'A'; c <= 'Z'; ++c) table[c] = kLetter | kUpper;
  for (std::size_t c = '0'; c <= '9'; ++c) table[c] = kNumber;
  for (const char c : {'\t', '\v', '\f', ' '}) table[static_cast<std::size_t>(c)] = kSpace;
  table['\n'] = table['\r'] = kSpace | kNewline;
  return table;
}
inline constexpr std::array<std::uint8_t, 128> kAscii = ascii_classes();
}  // namespace detail

/// Returns the code point at `at`, and moves `at` behind it.
char32_t next_code_point(std::string_view text, std::size_t& at) noexcept;
/// Returns the code point that ends before `at`.
char32_t code_point_before(std::string_view text, std::size_t at) noexcept;
void append_utf8(std::string& text, char32_t code);

/// Returns the classes of a code point, from Unicode's categories.
std::uint8_t classes_of(char32_t code) noexcept;
/// Returns whether utf8proc's version of Unicode has this character.
bool is_assigned(char32_t code) noexcept;
bool is_white_space(char32_t code) noexcept;
/// Returns whether the code point is a character of words: \w of regular expressions.
bool is_word(char32_t code) noexcept;

Character wide_character(std::string_view text, std::size_t at) noexcept;
/// Returns the classes and the length of the character at `at`, which is < text.size().
inline Character character_at(std::string_view text, std::size_t at) noexcept {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {detail::kAscii[first], 1};
  return wide_character(text, at);
}

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };
/// Returns the text in a normal form (Unicode Standard Annex 15).
std::string normalize(std::string_view text, NormalForm form);
/// Returns the text with each character in lower case, without regard to its neighbours.
std::string lower_case(std::string_view text);

}  // namespace firn::lm::bpe
