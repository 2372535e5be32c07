// An axis of a chart: maps values to places, and chooses the values that it names.
#pragma once

#include <string>
#include <vector>

namespace firn::report {

class Axis {
 public:
  enum class Kind { linear, log10, log2 };

  /// Makes an axis from `low` at place `begin` to `high` at place `end`.
  Axis(Kind kind, double low, double high, double begin, double end);
  /// Makes an axis for values from `low` to `high`, with a margin. It is logarithmic if
  /// `may_be_log` and the values are positive and far apart.
  static Axis around(double low, double high, bool may_be_log, double begin, double end);
  static Axis powers_of_two(double low, double high, double begin, double end);

  Kind kind() const noexcept { return kind_; }
  double low() const noexcept { return low_; }
  double high() const noexcept { return high_; }
  double place(double value) const;
  /// Returns about `most` values or fewer that are easy to read.
  std::vector<double> ticks(int most) const;
  static std::string label(double value);

 private:
  std::vector<double> linear_ticks(int most) const;

  Kind kind_;
  double low_, high_, begin_, end_;
};

}  // namespace firn::report
