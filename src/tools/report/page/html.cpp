#include "tools/report/page/html.h"

#include <fmt/format.h>

#include <utility>

#include "tools/report/log/format.h"

namespace firn::report {

std::string escaped(std::string_view text, std::size_t most, bool keep_lines) {
  std::string out;
  for (const char c : visible(text, most, keep_lines)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Table::Table(std::string caption, std::string kind, std::vector<Column> columns)
    : caption_(std::move(caption)), kind_(std::move(kind)), columns_(std::move(columns)) {}

void Table::group(std::size_t run, const std::string& optimizer, const std::string& label) {
  Group g{.run = run, .optimizer = optimizer, .label = label, .rows = {}};
  groups_.push_back(std::move(g));
}

void Table::row(const std::vector<double>& numbers, const std::vector<std::string>& texts) {
  std::string& out = groups_.back().rows;
  out += "<tr>";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double x = numbers[i];
    const std::string text = columns_[i].shown == Shown::bytes ? bytes_text(x) : rounded(x);
    const std::string all = full(x);
    out +=
        all == text || all == "null" ? "<td>" + text : fmt::format("<td data-v={}>{}", all, text);
  }
  for (const std::string& text : texts) out += "<td class=t>" + escaped(text, 240);
  out += '\n';
  ++rows_;
}

std::string Table::html() const {
  std::string out =
      fmt::format("<table data-kind=\"{}\"><caption>{}</caption><thead><tr>", kind_, caption_);
  for (const Column& c : columns_)
    out += fmt::format("<th scope=col{} data-name=\"{}\">{}",
                       c.shown == Shown::text ? " class=t" : "", escaped(c.name), escaped(c.title));
  out += "\n</thead>";
  for (const Group& g : groups_) {
    out += fmt::format("<tbody data-run={} data-optimizer=\"{}\" data-label=\"{}\">\n", g.run,
                       escaped(g.optimizer), escaped(g.label));
    if (groups_.size() > 1)
      out += fmt::format("<tr class=group><th scope=rowgroup colspan={}>{}\n", columns_.size(),
                         escaped(g.label));
    out += g.rows + "</tbody>";
  }
  return out + "</table>\n";
}

std::string plain_table(const std::string& caption, const std::vector<std::string>& head,
                        const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<table class=plain><caption>" + caption + "</caption><thead><tr>";
  for (const std::string& h : head) out += "<th scope=col>" + h;
  out += "\n</thead><tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      out += (i == 0 ? "<th scope=row>" : "<td>") + row[i];
    out += '\n';
  }
  return out + "</tbody></table>\n";
}

std::string scrolled(const std::string& label, const std::string& content, const char* element) {
  return fmt::format("<{0} class=scroll tabindex=0 role=group aria-label=\"{1}\">{2}</{0}>\n",
                     element, label, content);
}

std::string folded(const std::string& summary, const std::string& content) {
  return "<details><summary>" + summary + "</summary>" + scrolled("Table", content) +
         "</details>\n";
}

}  // namespace firn::report
