#include "tools/report/log/series.h"

#include <algorithm>
#include <cmath>

namespace firn::report {
namespace {

/// Joins two ranges, of which `b` comes after `a`.
Series::Range joined(const Series::Range& a, const Series::Range& b) {
  Series::Range out;
  const bool low_is_later = b.low.value < a.low.value;
  const bool high_is_later = b.high.value > a.high.value;
  out.low = low_is_later ? b.low : a.low;
  out.high = high_is_later ? b.high : a.high;
  out.low_first = low_is_later == high_is_later ? (low_is_later ? b : a).low_first : high_is_later;
  out.count = a.count + b.count;
  const double share = static_cast<double>(b.count) / static_cast<double>(out.count);
  out.mean_x = a.mean_x + (b.mean_x - a.mean_x) * share;
  // Each mean is scaled first, because the difference of two large numbers may overflow.
  out.mean = a.mean * (1 - share) + b.mean * share;
  return out;
}

}  // namespace

void Series::add(double x, double value) {
  if (!std::isfinite(value) || !std::isfinite(x)) {
    ++missing_;
    return;
  }
  const Point p{x, value};
  if (!first_) first_ = p;
  last_ = p;
  ++count_;
  const Range own{.low = p, .high = p, .low_first = true, .mean_x = x, .mean = value, .count = 1};
  if (!ranges_.empty() && ranges_.back().count < width_) {
    ranges_.back() = joined(ranges_.back(), own);
    return;
  }
  if (ranges_.size() == most_) halve();
  if (!ranges_.empty() && ranges_.back().count < width_) {
    ranges_.back() = joined(ranges_.back(), own);
  } else {
    ranges_.push_back(own);
  }
}

void Series::halve() {
  std::size_t n = 0;
  for (std::size_t i = 0; i < ranges_.size(); i += 2)
    ranges_[n++] = i + 1 < ranges_.size() ? joined(ranges_[i], ranges_[i + 1]) : ranges_[i];
  ranges_.resize(n);
  width_ *= 2;
}

Series Series::coarser(std::size_t most) const {
  Series out = *this;
  out.most_ = std::max<std::size_t>(most, 1);
  while (out.ranges_.size() > out.most_) out.halve();
  return out;
}

double Series::lowest() const {
  double out = ranges_.front().low.value;
  for (const Range& r : ranges_) out = std::min(out, r.low.value);
  return out;
}

double Series::highest() const {
  double out = ranges_.front().high.value;
  for (const Range& r : ranges_) out = std::max(out, r.high.value);
  return out;
}

std::vector<Point> Series::points() const {
  std::vector<Point> all;
  if (empty()) return all;
  const auto same = [](const Point& a, const Point& b) { return a.x == b.x && a.value == b.value; };
  const auto put = [&](const Point& p) {
    if (all.empty() || !same(all.back(), p)) all.push_back(p);
  };
  put(*first_);
  for (const Range& r : ranges_) {
    // The very first record was put before.
    const Point& one = r.low_first ? r.low : r.high;
    const Point& other = r.low_first ? r.high : r.low;
    if (!same(one, *first_)) put(one);
    if (!same(other, *first_) && r.low.value != r.high.value) put(other);
  }
  put(*last_);
  std::vector<Point> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool inside = i > 0 && i + 1 < all.size() && all[i].value == all[i - 1].value &&
                        all[i].value == all[i + 1].value;
    if (!inside) out.push_back(all[i]);
  }
  return out;
}

void Places::add(double x) {
  if (!std::isfinite(x)) return;
  first_in_cell_.emplace(std::floor(x / cell_), x);
  while (first_in_cell_.size() > kMost) {
    cell_ *= 2;
    std::map<double, double> wider;
    for (const auto& [cell, place] : first_in_cell_)
      wider.emplace(std::floor(place / cell_), place);
    first_in_cell_ = std::move(wider);
  }
}

std::vector<double> Places::all() const {
  std::vector<double> out;
  for (const auto& [cell, place] : first_in_cell_) out.push_back(place);
  return out;
}

}  // namespace firn::report
