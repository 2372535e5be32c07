#include "lm/tokenizer/split/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <new>

#include "base/check.h"

namespace firn::lm::bpe {

char32_t next_code_point(std::string_view text, std::size_t& at) noexcept {
  const auto byte = [&] { return static_cast<unsigned char>(text[at++]); };
  const auto tail = [&] { return static_cast<char32_t>(byte() & 0x3f); };
  const char32_t first = byte();
  if (first < 0x80) return first;
  if (first < 0xe0) return (first & 0x1f) << 6 | tail();
  char32_t code = first < 0xf0 ? first & 0x0f : first & 0x07;
  for (int left = first < 0xf0 ? 2 : 3; left > 0; --left) code = code << 6 | tail();
  return code;
}

char32_t code_point_before(std::string_view text, std::size_t at) noexcept {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return next_code_point(text, at);
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  const auto tail = [&](int shift) { put(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6), tail(0);
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12), tail(6), tail(0);
  } else {
    put(0xf0 | code >> 18), tail(12), tail(6), tail(0);
  }
}

bool is_assigned(char32_t code) noexcept {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code)) != UTF8PROC_CATEGORY_CN;
}

bool is_white_space(char32_t code) noexcept {
  if (code < 0x80) return (detail::kAscii[code] & kSpace) != 0;
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

std::uint8_t classes_of(char32_t code) noexcept {
  if (code < 0x80) return detail::kAscii[code];
  if (is_white_space(code)) return kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kLetter | kUpper;
    case UTF8PROC_CATEGORY_LL:
      return kLetter | kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kCaseless;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kCaseless;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    default:
      return 0;
  }
}

/// Letters, marks, decimal digits, connectors and joiners (Unicode Technical Standard 18, annex C),
/// and the letter numbers and symbols that are Alphabetic.
bool is_word(char32_t code) noexcept {
  if (code == 0x200c || code == 0x200d) return true;
  if ((code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
      (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189))
    return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return code < 0x80 ? (detail::kAscii[code] & kLetter) != 0
                         : (classes_of(code) & (kLetter | kCaseless)) != 0;
  }
}

Character wide_character(std::string_view text, std::size_t at) noexcept {
  const std::size_t first = at;
  const char32_t code = next_code_point(text, at);
  return {classes_of(code), static_cast<std::uint8_t>(at - first)};
}

std::string normalize(std::string_view text, NormalForm form) {
  int options = UTF8PROC_STABLE;
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  options |= composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const auto bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                  static_cast<utf8proc_ssize_t>(text.size()), &result,
                                  static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(result, std::free);
  if (bytes == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  FIRN_CHECK(bytes >= 0, "Tokenizer", "this text cannot be normalized", "utf8proc: {}",
             utf8proc_errmsg(bytes));
  return std::string(reinterpret_cast<const char*>(result), static_cast<std::size_t>(bytes));
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    if (code == 0x130) {  // the one character whose lower case has two
      out += "i\xcc\x87";
    } else {
      append_utf8(out,
                  static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
    }
  }
  return out;
}

}  // namespace firn::lm::bpe
