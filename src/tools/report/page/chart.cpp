#include "tools/report/page/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "tools/report/log/format.h"
#include "tools/report/page/axis.h"
#include "tools/report/page/html.h"

namespace firn::report {
namespace {

constexpr double kLeft = 72, kRight = 16, kTop = 12, kBottom = 44;

struct Frame {
  double width, height;
  double right() const { return width - kRight; }
  double bottom() const { return height - kBottom; }
};

/// Returns a coordinate with at most one decimal.
std::string at(double x) {
  std::string out = fmt::format("{:.1f}", x);
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out;
}

std::string grid(const Frame& f, const Axis& y, const std::function<std::string(double)>& label) {
  std::string lines, texts;
  for (const double tick : y.ticks(y.kind() == Axis::Kind::log2 ? 7 : 5)) {
    const std::string place = at(y.place(tick));
    lines += fmt::format("M{} {}H{}", at(kLeft), place, at(f.right()));
    texts += fmt::format("<text x={} y={} dy=4>{}</text>", at(kLeft - 8), place, label(tick));
  }
  return fmt::format("<path class=grid d=\"{}\"/><g class=end>{}</g>", lines, texts);
}

std::string names(const Frame& f, const std::string& x_name, const std::string& y_name) {
  return fmt::format(
      "<text class=mid x={} y={}>{}</text>"
      "<text class=mid transform=\"translate(14 {}) rotate(-90)\">{}</text>",
      at((kLeft + f.right()) / 2), at(f.height - 6), x_name, at((kTop + f.bottom()) / 2), y_name);
}

std::string x_ticks(const Frame& f, const Axis& x, int most) {
  std::string out = "<g class=mid>";
  for (const double tick : x.ticks(most))
    if (tick == std::trunc(tick))
      out += fmt::format("<text x={} y={}>{}</text>", at(x.place(tick)), at(f.bottom() + 18),
                         Axis::label(tick));
  return out + "</g>";
}

std::string begin_figure(const std::string& id, const std::string& title, bool small,
                         const std::string& attributes) {
  return fmt::format("<figure id=\"{}\"{}{}><figcaption><h3>{}</h3>", id,
                     small ? " class=small" : "", attributes, title);
}

std::string begin_drawing(const Frame& f, const std::string& description,
                          const std::string& attributes) {
  return fmt::format(
      "</figcaption><div class=plot><svg viewBox=\"0 0 {} {}\" role=img aria-label=\"{}\"{}>",
      at(f.width), at(f.height), description, attributes);
}

std::string end_figure(const std::string& note, const std::string& table) {
  return "</svg></div>" + folded("Table" + (note.empty() ? "" : ": " + note), table) +
         "</figure>\n";
}

// ---- Lines
// ---------------------------------------------------------------------------------------

/// Draws the band from the lowest to the highest record of each range.
std::string band(const Series& s, const Axis& x, const Axis& y) {
  std::string up, down;
  for (const Series::Range& r : s.ranges())
    up += fmt::format("{} {} ", at(x.place(r.mean_x)), at(y.place(r.high.value)));
  for (auto r = s.ranges().rbegin(); r != s.ranges().rend(); ++r)
    down += fmt::format("{} {} ", at(x.place(r->mean_x)), at(y.place(r->low.value)));
  return "M" + up + down + "z";
}

std::string draw(const Line& line, const Axis& x, const Axis& y) {
  const Series& s = line.series;
  std::string out, path = "M", dots;
  if (line.shape == Line::Shape::stairs) {
    for (const Point& p : s.points()) {
      const std::string px = at(x.place(p.x)), py = at(y.place(p.value));
      path += path.size() == 1 ? fmt::format("{} {}", px, py) : fmt::format("H{}V{}", px, py);
    }
  } else if (line.shape != Line::Shape::line) {
    for (const Point& p : s.points()) {
      const std::string px = at(x.place(p.x)), py = at(y.place(p.value));
      path += px + " " + py + " ";
      dots += fmt::format("M{} {}h0", px, py);
    }
    if (line.shape == Line::Shape::records ? s.count() > 1 : s.count() > 60) dots.clear();
  } else {
    if (s.records_per_range() > 1)
      out += fmt::format("<path class=\"band f{}\" d=\"{}\"/>", line.colour, band(s, x, y));
    for (const Series::Range& r : s.ranges())
      path += fmt::format("{} {} ", at(x.place(r.mean_x)), at(y.place(r.mean)));
    if (s.count() == 1) dots = path + "h0";
  }
  out += fmt::format("<path class=\"line l{}{}{}\" d=\"{}\"/>", line.colour,
                     line.dashed ? " dashed" : "", line.shape == Line::Shape::line ? " mean" : "",
                     path);
  if (!dots.empty()) out += fmt::format("<path class=\"dots l{}\" d=\"{}\"/>", line.colour, dots);
  return out;
}

std::string legend(const LineChart& chart) {
  std::string out;
  for (const Line& l : chart.lines)
    out += fmt::format("<li><i class=\"b{}{}\"></i>{}", l.colour, l.dashed ? " dash" : "", l.label);
  for (const Level& l : chart.levels)
    out += fmt::format("<li><i class=\"b{} dash\"></i>{}", l.colour, l.label);
  if (!chart.marks.empty()) out += "<li><i class=mark></i>" + chart.marks_label;
  return "<ul class=legend>" + out + "</ul>";
}

struct Extent {
  std::optional<double> low, high;
  void add(double x) {
    low = low ? std::min(*low, x) : x;
    high = high ? std::max(*high, x) : x;
  }
};

Axis y_axis(const LineChart& chart, const Extent& e, const Frame& f) {
  const double low = e.low.value_or(0), high = e.high.value_or(1);
  if (chart.scale == LineChart::Scale::powers_of_two)
    return Axis::powers_of_two(low, high, f.bottom(), kTop);
  return Axis::around(low, high, chart.scale == LineChart::Scale::any, f.bottom(), kTop);
}

}  // namespace

std::string figure(const LineChart& chart, const std::string& note, const std::string& table) {
  const Frame f{chart.small ? 440.0 : 880.0, chart.small ? 220.0 : 290.0};
  Extent xs, ys;
  for (const Line& l : chart.lines) {
    if (l.series.empty()) continue;
    for (const double x : {l.series.first().x, l.series.last().x}) xs.add(x);
    for (const double y : {l.series.lowest(), l.series.highest()}) ys.add(y);
  }
  for (const Level& l : chart.levels) ys.add(l.value);
  for (const double x : chart.marks) xs.add(x);
  const double first = xs.low.value_or(0);
  const double last = xs.high.value_or(1) > first ? *xs.high : first + 1;
  const Axis x(Axis::Kind::linear, first, last, kLeft + 4, f.right() - 4);
  const Axis y = y_axis(chart, ys, f);

  std::string out =
      begin_figure(chart.id, chart.title, chart.small, chart.smoothing ? " data-smooth" : "");
  if (!chart.small || chart.lines.size() > 1) out += legend(chart);
  out += begin_drawing(
      f, chart.description,
      fmt::format(" data-x0={} data-x1={} data-l={} data-r={} data-t={} data-b={}", full(first),
                  full(last), at(kLeft + 4), at(f.right() - 4), at(kTop), at(f.bottom())));
  out += grid(f, y, Axis::label) + x_ticks(f, x, chart.small ? 5 : 8);
  out +=
      names(f, chart.x_name, chart.y_name + (y.kind() == Axis::Kind::log10 ? " (log scale)" : ""));
  for (const Level& l : chart.levels) {
    const std::string place = at(y.place(l.value));
    out += fmt::format("<path class=\"line dashed l{}\" d=\"M{} {}H{}\"/>", l.colour, at(kLeft),
                       place, at(f.right()));
  }
  for (const Line& l : chart.lines)
    if (!l.series.empty()) out += draw(l, x, y);
  std::string marks;
  for (const double m : chart.marks)
    marks += fmt::format("M{} {}l-4 8h8z", at(x.place(m)), at(f.bottom() - 9));
  if (!marks.empty()) out += "<path class=marks d=\"" + marks + "\"/>";
  return out + end_figure(note, table);
}

// ---- Bars
// ----------------------------------------------------------------------------------------

namespace {

/// Returns the power of 1024 by which bytes are named, and its unit.
std::pair<double, std::string> byte_unit(double most) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double unit = 1;
  std::size_t i = 0;
  while (most / unit >= 1024 && i + 1 < kUnits.size()) {
    unit *= 1024;
    ++i;
  }
  return {unit, kUnits[i]};
}

}  // namespace

std::string figure(const BarChart& chart, const std::string& note, const std::string& table) {
  const Frame f{880, 290};
  double highest = 0;
  const auto colour = [&](std::size_t part) {
    return (chart.colours.empty() ? part : chart.colours[part]) % kColours;
  };
  const auto size = [&](std::size_t bar, std::size_t part) {
    const double x = chart.sizes[bar][part];
    return std::isfinite(x) && x > 0 ? x : 0;
  };
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    double all = 0;
    for (std::size_t k = 0; k < chart.parts.size(); ++k) all += size(i, k);
    highest = std::max(highest, all);
  }
  const auto [unit, unit_name] =
      chart.bytes ? byte_unit(highest) : std::pair<double, std::string>(1, "");
  const double top = highest > 0 && std::isfinite(highest) ? highest / unit * 1.05 : 1;
  const Axis y(Axis::Kind::linear, 0, top, f.bottom(), kTop);

  std::string out = begin_figure(chart.id, chart.title, false, " data-bars") + "<ul class=legend>";
  for (std::size_t k = 0; k < chart.parts.size(); ++k)
    out += fmt::format("<li><i class=\"b{}\"></i>{}", colour(k), chart.parts[k]);
  out += "</ul>" + begin_drawing(f, chart.description,
                                 fmt::format(" data-l={} data-r={} data-t={} data-b={}", at(kLeft),
                                             at(f.right()), at(kTop), at(f.bottom())));
  out += grid(f, y, Axis::label);
  out += names(f, chart.x_name, chart.y_name + (unit_name.empty() ? "" : " (" + unit_name + ")"));

  const double room =
      (f.right() - kLeft) / static_cast<double>(std::max<std::size_t>(chart.bars.size(), 1));
  const double width = std::min(room * 0.66, 44.0);
  const std::size_t each = std::max<std::size_t>(1, (chart.bars.size() + 11) / 12);
  std::vector<std::string> paths(chart.parts.size());
  std::string texts = "<g class=mid>";
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    const double middle = kLeft + room * (static_cast<double>(i) + 0.5);
    double below = 0;
    for (std::size_t k = 0; k < chart.parts.size(); ++k) {
      const double from = y.place(below / unit);
      below += size(i, k);
      const double to = y.place(below / unit);
      if (from - to < 0.05) continue;
      paths[k] += fmt::format("M{} {}h{}V{}h-{}z", at(middle - width / 2), at(from), at(width),
                              at(to), at(width));
    }
    if (i % each == 0)
      texts +=
          fmt::format("<text x={} y={}>{}</text>", at(middle), at(f.bottom() + 18), chart.bars[i]);
  }
  for (std::size_t k = 0; k < paths.size(); ++k)
    if (!paths[k].empty())
      out += fmt::format("<path class=\"bar f{}\" d=\"{}\"/>", colour(k), paths[k]);
  return out + texts + "</g>" + end_figure(note, table);
}

}  // namespace firn::report
