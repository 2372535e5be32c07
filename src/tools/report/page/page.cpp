#include "tools/report/page/page.h"

#include <fmt/format.h>

#include "tools/report/page/assets.h"
#include "tools/report/page/html.h"
#include "tools/report/page/sections.h"
#include "tools/report/write/sha256.h"

namespace firn::report {
namespace {

/// Returns links to the sections, with their headings.
std::string contents(const std::string& sections) {
  std::string out;
  const std::string before = "<h2 id=\"";
  for (std::size_t at = sections.find(before); at != std::string::npos;
       at = sections.find(before, at + 1)) {
    const std::size_t id = at + before.size(), quote = sections.find('"', id);
    const std::size_t title = quote + 2, end = sections.find('<', title);
    out += fmt::format("<li><a href=\"#{}\">{}</a>", sections.substr(id, quote - id),
                       sections.substr(title, end - title));
  }
  return "<nav aria-label=\"Sections\"><ul>" + out + "</ul></nav>\n";
}

}  // namespace

std::string page(const std::vector<Run>& runs) {
  std::string sections;
  for (const auto& make :
       {differing_settings, loss_section, scale_section, gradient_section, memory_section,
        time_section, metrics_section, confusion_section, mistakes_section, models, settings, accumulation_guide})
    sections += make(runs);
  const std::string title =
      runs.size() == 1 ? escaped(runs[0].label, 80) : fmt::format("{} runs", runs.size());
  std::string out = "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n";
  out += fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src {}; "
      "script-src {}; "
      "img-src data:; base-uri 'none'; form-action 'none'\">\n",
      policy_hash(kStyle), policy_hash(kScript));
  out +=
      "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=color-scheme content=\"light dark\">\n"
      "<meta name=generator content=firn-report>\n";
  out += "<title>" + title + " \u2013 firn</title>\n";
  out += "<style>" + std::string(kStyle) + "</style>\n</head>\n<body>\n";
  out += "<a class=skip href=\"#main\">Skip to the charts</a>\n";
  out += headline(runs) + contents(sections) + "<main id=main>\n" + sections + "</main>\n";
  out +=
      "<footer>Made by firn-report. In charts and tables, every number is one of the log, rounded "
      "to five digits. Computed ones say so.</footer>\n";
  return out + "<script>" + std::string(kScript) + "</script>\n</body>\n</html>\n";
}

}  // namespace firn::report
