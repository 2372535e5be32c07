#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/log/format.h"
#include "tools/report/page/sections.h"

namespace firn::report {
namespace {

constexpr std::size_t kMostCells = 3600;  // largest table of all pairs
constexpr std::size_t kMostPairs = 30;
constexpr int kShades = 9;

std::string class_name(const Confusion& c, std::size_t i) {
  return c.classes.empty() ? std::to_string(i) : escaped(c.classes[i], 24);
}

/// Each cell is shaded by its share of the samples of its true class.
std::string whole_table(const Confusion& c, std::size_t run) {
  std::string out = fmt::format(
      "<table class=confusion data-kind=confusion data-run={}><caption>Rows: true class. Columns: "
      "predicted class. Shades: share of the row.</caption><thead><tr><th scope=col>true \\ "
      "predicted",
      run);
  for (std::size_t i = 0; i < c.rows.size(); ++i) out += "<th scope=col>" + class_name(c, i);
  out += "\n</thead><tbody>\n";
  for (std::size_t i = 0; i < c.rows.size(); ++i) {
    double all = 0;
    for (const double n : c.rows[i]) all += n > 0 ? n : 0;
    out += "<tr><th scope=row>" + class_name(c, i);
    for (std::size_t k = 0; k < c.rows.size(); ++k) {
      const double n = c.rows[i][k];
      const int shade = n > 0 && all > 0
                            ? std::min(kShades, 1 + static_cast<int>(n / all * (kShades - 0.01)))
                            : 0;
      const std::string digits = full(n), text = rounded(n);
      out += fmt::format("<td class=\"h{}{}\"{}>{}", shade, i == k ? " right" : "",
                         digits == text || digits == "null" ? "" : " data-v=" + digits, text);
    }
    out += '\n';
  }
  return out + "</tbody></table>\n";
}

/// Returns the pairs of classes that were confused most often.
std::string frequent_pairs(const Confusion& c) {
  struct Pair {
    std::size_t row, column;
    double count;
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < c.rows.size(); ++i)
    for (std::size_t k = 0; k < c.rows.size(); ++k)
      if (i != k && c.rows[i][k] > 0) pairs.push_back({i, k, c.rows[i][k]});
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.count > b.count; });
  if (pairs.size() > kMostPairs) pairs.resize(kMostPairs);
  std::vector<std::vector<std::string>> rows;
  for (const Pair& p : pairs)
    rows.push_back({class_name(c, p.row), class_name(c, p.column), rounded(p.count)});
  return plain_table(fmt::format("The most frequent mistakes among {} classes", c.rows.size()),
                     {"true class", "predicted class", "samples"}, rows);
}

}  // namespace

std::string confusion_section(const Runs& runs) {
  std::string out;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (!runs[r].confusion) continue;
    const Confusion& c = *runs[r].confusion;
    if (runs.size() > 1) out += "<h3>" + run_mark(runs, r) + "</h3>\n";
    out += fmt::format("<p>After epoch {}.</p>\n", rounded(c.epoch)) +
           scrolled("Confusion matrix", c.rows.size() * c.rows.size() * runs.size() <= kMostCells
                                            ? whole_table(c, r)
                                            : frequent_pairs(c));
  }
  return out.empty() ? out : section("confusion", "Confusion matrix", out);
}

}  // namespace firn::report
