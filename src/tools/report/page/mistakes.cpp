#include <fmt/format.h>

#include <cmath>

#include "tools/report/log/format.h"
#include "tools/report/page/sections.h"

namespace firn::report {
namespace {

std::string class_name(const Mistakes& m, double number) {
  const bool named = number >= 0 && number < static_cast<double>(m.classes.size());
  return named ? escaped(m.classes[static_cast<std::size_t>(number)], 24) : rounded(number);
}

std::string picture(const Mistakes& m, const ShownMistake& s) {
  const std::string target = class_name(m, s.target), predicted = class_name(m, s.predicted);
  return fmt::format(
      "<li><img src=\"{}\" alt=\"{}, taken for {}\"><br><b>{}</b> with {} %<br>is {}\n", s.image,
      target, predicted, predicted, rounded(100 * s.probability), target);
}

}  // namespace

std::string mistakes_section(const Runs& runs) {
  std::string out;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (!runs[r].mistakes || runs[r].mistakes->list.empty()) continue;
    const Mistakes& m = *runs[r].mistakes;
    if (runs.size() > 1) out += "<h3>" + run_mark(runs, r) + "</h3>\n";
    out += fmt::format("<p>After epoch {}.</p>\n<ul class=mistakes>\n", rounded(m.epoch));
    for (const ShownMistake& s : m.list) out += picture(m, s);
    out += "</ul>\n";
  }
  return out.empty() ? out : section("mistakes", "Most confident mistakes", out);
}

}  // namespace firn::report
