// Charts as SVG: lines over applied steps, and stacked bars. Colours are classes of the page's
// style, so they follow light, dark and print.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tools/report/log/series.h"

namespace firn::report {

/// Number of colours in the style, which limits the lines, owners or runs that can be told apart.
inline constexpr std::size_t kColours = 8;

struct Line {
  /// line: means of ranges in a band from lowest to highest. records: the records themselves,
  /// joined by lines. points: records with a dot at each.
  enum class Shape { line, stairs, records, points };
  std::string label = {};  ///< HTML for the legend
  std::size_t colour = 0;
  Series series;
  Shape shape = Shape::line;
  bool dashed = false;
};

/// A horizontal line.
struct Level {
  std::string label = {};
  double value = 0;
  std::size_t colour = 0;
};

struct LineChart {
  std::string id = {}, title = {};
  std::string description = {};  ///< HTML for readers who do not see the chart
  std::string x_name = "applied steps";
  std::string y_name = {};  ///< with the unit
  enum class Scale { linear, any, powers_of_two } scale = Scale::linear;
  std::vector<Line> lines = {};
  std::vector<Level> levels = {};
  std::vector<double> marks = {};  ///< places of events on the x axis; marks_label names them
  std::string marks_label = {};
  bool smoothing = false;  ///< true: the script offers a slider
  bool small = false;      ///< true: half the width
};

/// Returns a figure: title, legend, drawing, and `table` folded below. `note` says what was
/// thinned.
std::string figure(const LineChart& chart, const std::string& note, const std::string& table);

struct BarChart {
  std::string id = {}, title = {}, description = {};
  std::string x_name = {}, y_name = {};
  std::vector<std::string> parts = {};          ///< from the bottom up; names for the legend; HTML
  std::vector<std::string> bars = {};           ///< names below the bars; HTML
  std::vector<std::vector<double>> sizes = {};  ///< by bar, then by part; NaN counts as 0
  std::vector<std::size_t> colours = {};        ///< colours of the parts; empty: in order
  bool bytes = false;                           ///< true: sizes are bytes
};
std::string figure(const BarChart& chart, const std::string& note, const std::string& table);

}  // namespace firn::report
