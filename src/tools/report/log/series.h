// Stores a series of any length in bounded memory, as ranges of neighbouring records. Each range
// keeps its lowest and highest record, so that no spike is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace firn::report {

/// A number of one record, and its place on the x axis.
struct Point {
  double x = 0;
  double value = 0;
};

class Series {
 public:
  /// A range of neighbouring records. `low` and `high` are records of the file; the means are for
  /// drawing.
  struct Range {
    Point low, high;
    bool low_first = true;
    double mean_x = 0, mean = 0;
    std::int64_t count = 0;
  };

  /// Keeps at most `most` ranges. If there are more, each pair of neighbours becomes one.
  explicit Series(std::size_t most = 1024) : most_(most) {}
  /// Adds a value. A value that is not finite is counted but not kept.
  void add(double x, double value);

  bool empty() const noexcept { return ranges_.empty(); }
  std::int64_t count() const noexcept { return count_; }      ///< number of finite values
  std::int64_t missing() const noexcept { return missing_; }  ///< number of other values
  std::int64_t records_per_range() const noexcept { return width_; }
  const std::vector<Range>& ranges() const noexcept { return ranges_; }
  /// The first and the last finite value.
  const Point& first() const { return *first_; }
  const Point& last() const { return *last_; }
  double lowest() const;
  double highest() const;

  /// Returns the series in at most `most` ranges.
  Series coarser(std::size_t most) const;
  /// Returns the records that represent the series, in their order. If consecutive records have one
  /// value, it returns only the first and the last of them.
  std::vector<Point> points() const;

 private:
  void halve();

  std::size_t most_;
  std::int64_t width_ = 1, count_ = 0, missing_ = 0;
  std::vector<Range> ranges_;
  std::optional<Point> first_, last_;
};

/// Places on the x axis at which something happened, at most some thousand. Among places that are
/// close to each other, it keeps the first.
class Places {
 public:
  void add(double x);
  std::vector<double> all() const;

 private:
  static constexpr std::size_t kMost = 1000;
  double cell_ = 1;
  std::map<double, double> first_in_cell_;
};

}  // namespace firn::report
