#include "tools/report/log/format.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "firn/memory.h"

namespace firn::report {
namespace {

constexpr double kWhole = 9007199254740992;  // 2^53; a double represents every smaller integer
constexpr const char* kNone = "\u2013";

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

}  // namespace firn::report
