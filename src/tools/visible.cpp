#include "tools/visible.h"

#include <fmt/format.h>

#include <cstdint>

namespace firn::tools {
namespace {

/// Returns the length of the UTF-8 character at `i`, and sets its code; 1 and the byte if none
/// begins there.
std::size_t character(std::string_view text, std::size_t i, std::uint32_t& code) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  code = lead;
  if (lead < 0xc2 || lead > 0xf4) return 1;
  const std::size_t n = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (i + n > text.size()) return 1;
  std::uint32_t whole = lead & (0x7fu >> n);
  for (std::size_t k = 1; k < n; ++k) {
    if ((byte(i + k) & 0xc0) != 0x80) return 1;
    whole = whole << 6 | (byte(i + k) & 0x3f);
  }
  code = whole;
  return n;
}

bool shown_as_escape(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff ||
         (c & 0xfffe) == 0xfffe;
}

}  // namespace

std::string visible(std::string_view text, std::size_t most, bool keep_lines) {
  std::string out;
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint32_t code = 0;
    const std::size_t n = character(text, i, code);
    if (i + n > most) return out + fmt::format("\u2026 ({} bytes)", text.size());
    const bool no_utf8 = n == 1 && code >= 0x80;
    if (!(keep_lines && (code == '\n' || code == '\t')) && (no_utf8 || shown_as_escape(code))) {
      out += code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
    } else {
      out.append(text.substr(i, n));
    }
    i += n;
  }
  return out;
}

}  // namespace firn::tools
