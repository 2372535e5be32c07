#include "tools/report/page/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/log/format.h"

namespace firn::report {
namespace {

constexpr double kFarApart = 50;
// Limits of axes. Beyond them, neighbouring powers would be zero or infinite.
constexpr double kLeast = 1e-307, kMost = 1.7e308;

}  // namespace

Axis::Axis(Kind kind, double low, double high, double begin, double end)
    : kind_(kind), low_(low), high_(high), begin_(begin), end_(end) {}

Axis Axis::around(double low, double high, bool may_be_log, double begin, double end) {
  if (may_be_log && low > 0 && high / low > kFarApart) {
    const double margin = std::exp2((std::log2(high) - std::log2(low)) * 0.04);
    return Axis(Kind::log10, std::max(low / margin, kLeast), std::min(high * margin, kMost), begin,
                end);
  }
  // Both numbers are halved, since the difference of two numbers may overflow.
  double margin = (high / 2 - low / 2) * 0.1;
  if (margin == 0) margin = std::max(std::abs(high) * 0.1, 1e-12);
  const double bottom = low >= 0 && low < margin * 4 ? 0 : std::max(low - margin, -kMost);
  return Axis(Kind::linear, bottom, std::min(high + margin, kMost), begin, end);
}

Axis Axis::powers_of_two(double low, double high, double begin, double end) {
  if (!(low > 0)) return around(low, high, false, begin, end);
  const double from = std::max(std::floor(std::log2(low)) - 1, -1020.0);
  const double to = std::min(std::ceil(std::log2(high)) + 1, 1023.0);
  return Axis(Kind::log2, std::exp2(from), std::exp2(std::max(to, from + 1)), begin, end);
}

double Axis::place(double value) const {
  double share = 0;
  if (kind_ == Kind::linear) {
    share = (value / 2 - low_ / 2) / (high_ / 2 - low_ / 2);
  } else if (value > 0) {
    share = (std::log2(value) - std::log2(low_)) / (std::log2(high_) - std::log2(low_));
  }
  if (std::isnan(share)) share = 0;
  return begin_ + (end_ - begin_) * std::clamp(share, 0.0, 1.0);
}

std::vector<double> Axis::linear_ticks(int most) const {
  const double rough = high_ / most - low_ / most;
  const double ten = std::pow(10, std::floor(std::log10(rough)));
  if (!std::isfinite(ten) || ten <= 0) return {low_, high_};
  double step = ten * 10;
  for (const double nice : {1.0, 2.0, 5.0})
    if (ten * nice >= rough * (1 - 1e-9)) {
      step = ten * nice;
      break;
    }
  std::vector<double> out;
  const double first = std::ceil(low_ / step * (1 - 1e-12));
  for (int i = 0; i <= most + 1; ++i) {
    const double tick = (first + i) * step;
    if (tick > high_ * (high_ > 0 ? 1 + 1e-12 : 1 - 1e-12)) break;
    if (std::isfinite(tick)) out.push_back(tick == 0 ? 0 : tick);
  }
  return out;
}

std::vector<double> Axis::ticks(int most) const {
  if (kind_ == Kind::linear) return linear_ticks(most);
  const double base = kind_ == Kind::log2 ? 2 : 10;
  const auto exponent = [&](double x) { return std::log2(x) / std::log2(base); };
  const int from = static_cast<int>(std::ceil(exponent(low_) - 1e-9));
  const int to = static_cast<int>(std::floor(exponent(high_) + 1e-9));
  const int stride = std::max(1, (to - from + most) / most);
  std::vector<double> out;
  for (int e = from; e <= to; e += stride) {
    const double power = std::pow(base, e);
    out.push_back(power);
    // Few powers of ten leave space for more values between them.
    if (kind_ == Kind::log10 && to - from < 3)
      for (const double k : {2.0, 5.0})
        if (power * k <= high_) out.push_back(power * k);
  }
  if (kind_ == Kind::log10 && to - from < 3)
    for (const double k : {2.0, 5.0})
      if (const double x = std::pow(base, from - 1) * k; x >= low_) out.insert(out.begin(), x);
  std::sort(out.begin(), out.end());
  return out.size() < 2 && kind_ == Kind::log10 ? linear_ticks(most) : out;
}

std::string Axis::label(double value) {
  const double size = std::abs(value);
  if (value == std::trunc(value) && size < 1e7) return grouped(value);
  if (size != 0 && (size < 1e-3 || size >= 1e7)) return fmt::format("{:.3g}", value);
  return fmt::format("{:.6g}", value);
}

}  // namespace firn::report
