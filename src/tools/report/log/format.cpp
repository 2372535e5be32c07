#include "tools/report/log/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "firn/memory.h"

namespace firn::report {
namespace {

constexpr double kWhole = 9007199254740992;  // 2^53: below it, every whole number is a double
constexpr const char* kNone = "\u2013";

/// The length of the UTF-8 character at `i`, and its code.
std::size_t character(std::string_view text, std::size_t i, std::uint32_t& code) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  const std::size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  code = n == 1 ? lead : lead & (0x7fu >> n);
  for (std::size_t k = 1; k < n && i + k < text.size(); ++k)
    code = code << 6 | (byte(i + k) & 0x3f);
  return std::min(n, text.size() - i);
}

bool shown_as_escape(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff ||
         (c & 0xfffe) == 0xfffe;
}

}  // namespace

std::string full(double x) {
  if (!std::isfinite(x)) return "null";
  if (x == std::trunc(x) && std::abs(x) < kWhole) return fmt::format("{:.0f}", x);
  return fmt::format("{}", x);
}

std::string rounded(double x) {
  if (!std::isfinite(x)) return kNone;
  if (x == std::trunc(x) && std::abs(x) < 1e7) return fmt::format("{:.0f}", x);
  return fmt::format("{:.5g}", x);
}

std::string grouped(double x) {
  if (!std::isfinite(x)) return kNone;
  if (std::abs(x) >= kWhole) return fmt::format("{:.5g}", x);
  std::string digits = fmt::format("{:.0f}", std::abs(x));
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<std::size_t>(i), ",");
  return x < 0 && digits != "0" ? "-" + digits : digits;
}

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes)) return kNone;
  if (bytes < 0 || bytes >= 1e18) return fmt::format("{:.5g} B", bytes);
  return bytes_to_string(static_cast<std::size_t>(bytes));
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return kNone;
  if (std::abs(seconds) < 10) return fmt::format("{:.2g} s", seconds);
  if (std::abs(seconds) < 60) return fmt::format("{:.1f} s", seconds);
  if (std::abs(seconds) >= 1e12) return fmt::format("{:.5g} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (std::abs(seconds) < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string visible(std::string_view text, std::size_t most, bool keep_lines) {
  std::string out;
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint32_t code = 0;
    const std::size_t n = character(text, i, code);
    if (i + n > most) return out + fmt::format("\u2026 ({} bytes)", text.size());
    if (!(keep_lines && (code == '\n' || code == '\t')) && shown_as_escape(code)) {
      out += code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
    } else {
      out.append(text.substr(i, n));
    }
    i += n;
  }
  return out;
}

}  // namespace firn::report
