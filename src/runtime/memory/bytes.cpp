#include "runtime/memory/bytes.h"

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "firn/memory.h"

namespace firn {

memory::ScaledBytes memory::scaled(std::size_t bytes) noexcept {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  double number = static_cast<double>(bytes);
  // 1023.96 KiB would be shown as 1024.0 KiB.
  while (number >= 1023.95 && unit < 6) number /= 1024, ++unit;
  const double tenths = std::round(10 * number);
  return {tenths / 10, std::fmod(tenths, 10) == 0 ? 0 : 1, units[unit]};
}

std::string bytes_to_string(std::size_t bytes) {
  const auto [number, decimals, unit] = memory::scaled(bytes);
  return fmt::format("{:.{}f} {}", number, decimals, unit);
}

std::size_t parse_bytes(std::string_view text) {
  constexpr std::pair<std::string_view, double> units[] = {
      {"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
      {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, bytes] : units) {
    // Above 2^53 not every number of bytes is a double; no memory is that large.
    if (error == std::errc() && unit == name && number >= 0 && number * bytes < 0x1p63)
      return static_cast<std::size_t>(std::llround(number * bytes));
  }
  throw Error("parse_bytes", fmt::format("'{}' is no number of bytes", text),
              "write 512MiB, 1.5GiB or 4096");
}

}  // namespace firn
