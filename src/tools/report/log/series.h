// The values of a series of any length in bounded memory: ranges of neighbouring records, each with
// its lowest and highest record, so that no spike is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace firn::report {

/// A number of one record, and where it is on the x axis.
struct Point {
  double x = 0;
  double value = 0;
};

class Series {
 public:
  /// Neighbouring records. `low` and `high` are records of the file; the means are for drawing.
  struct Range {
    Point low, high;
    bool low_first = true;
    double mean_x = 0, mean = 0;
    std::int64_t count = 0;
  };

  /// Keeps at most `most` ranges. As soon as there are more, each two neighbours become one.
  explicit Series(std::size_t most = 1024) : most_(most) {}
  /// A value that is not finite is counted and not kept.
  void add(double x, double value);

  bool empty() const noexcept { return ranges_.empty(); }
  std::int64_t count() const noexcept { return count_; }      ///< finite values
  std::int64_t missing() const noexcept { return missing_; }  ///< the others
  std::int64_t records_per_range() const noexcept { return width_; }
  const std::vector<Range>& ranges() const noexcept { return ranges_; }
  /// The first and the last finite value.
  const Point& first() const { return *first_; }
  const Point& last() const { return *last_; }
  double lowest() const;
  double highest() const;

  /// The same in at most `most` ranges.
  Series coarser(std::size_t most) const;
  /// The records that stand for the series, in their order. Of records in a row that all have one
  /// value, the first and the last.
  std::vector<Point> points() const;

 private:
  void halve();

  std::size_t most_;
  std::int64_t width_ = 1, count_ = 0, missing_ = 0;
  std::vector<Range> ranges_;
  std::optional<Point> first_, last_;
};

/// Places on the x axis at which something happened, at most some thousand: of those that are close
/// to each other, the first.
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
