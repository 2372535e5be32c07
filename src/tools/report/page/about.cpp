#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tools/report/log/facts.h"
#include "tools/report/log/format.h"
#include "tools/report/page/chart.h"
#include "tools/report/page/sections.h"

namespace firn::report {
namespace {

constexpr std::size_t kLongestSummary = 20'000, kLongestSetting = 500;

std::string value_text(const Value& v) {
  if (v.name.empty()) return rounded(kNoNumber);
  return fmt::format("{}{}", rounded(v.value),
                     std::isnan(v.epoch) ? "" : " in epoch " + rounded(v.epoch));
}

std::string fact(const std::string& name, const std::string& value, const std::string& more = {}) {
  return "<div><dt>" + name + "</dt><dd>" + value +
         (more.empty() ? "" : "<small>" + more + "</small>") + "</dd></div>";
}

std::string facts_of(const Run& run) {
  std::string out = "<dl class=facts>";
  const Value best = best_of(run);
  if (!best.name.empty()) {
    out += fact("Best " + escaped(best.name, 40), rounded(best.value),
                std::isnan(best.epoch) ? "" : "epoch " + rounded(best.epoch));
    const Value last = last_of(run, best.name);
    if (!std::isnan(last.value))
      out += fact("Last " + escaped(last.name, 40), rounded(last.value),
                  "epoch " + rounded(last.epoch));
  }
  const double skipped = skipped_steps(run);
  out += fact("Applied steps", grouped(applied_steps(run)),
              std::isnan(skipped) ? "" : grouped(skipped) + " skipped");
  out += fact("Training and validation", duration(seconds_of(run)),
              run.epochs.empty() ? "" : fmt::format("{} epochs", run.epochs.size()));
  const Ending ending = ending_of(run);
  out += fact("How it ended", ending.word, escaped(ending.phrase, 60));
  return out + "</dl>\n";
}

std::string list_of_notes(const Runs& runs) {
  std::string out;
  for (const Run& run : runs)
    for (const std::string& note : run.notes)
      out += "<li>" + (runs.size() > 1 ? escaped(run.label, 60) + ": " : "") + escaped(note);
  return out.empty() ? out : "<ul class=notes>" + out + "</ul>\n";
}

std::string optimizers_of(const Run& run) {
  const auto list = run.head.find("optimizers");
  if (list == run.head.end() || !list->is_array()) return {};
  std::vector<std::vector<std::string>> rows;
  for (const Json& o : *list) {
    if (!o.is_object() || rows.size() == 16) continue;
    const std::string name = text_of(o, "name"), kind = text_of(o, "kind");
    const double clip = number_of(o, "clip_norm");
    rows.push_back({escaped(name.empty() ? kind : name + " (" + kind + ")", 80),
                    escaped(text_of(o, "description"), 400), rounded(number_of(o, "accumulate")),
                    clip == 0 ? "none" : rounded(clip), escaped(text_of(o, "device"), 40)});
  }
  if (rows.empty()) return {};
  return scrolled("Optimizers", plain_table("Optimizers",
                                            {"optimizer", "what it does", "backward passes a step",
                                             "clip norm", "device"},
                                            rows));
}

}  // namespace

std::string section(const std::string& id, const std::string& title, const std::string& content) {
  return fmt::format("<section aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1}</h2>\n{2}</section>\n",
                     id, title, content);
}

std::string run_mark(const Runs& runs, std::size_t run) {
  const std::string label = escaped(runs[run].label, 60);
  if (runs.size() == 1) return label;
  return fmt::format("<i class=\"b{}\"></i>{}", run % kColours, label);
}

std::string headline(const Runs& runs) {
  if (runs.size() == 1) {
    const std::string time = start_time(runs[0]);
    return fmt::format(
               "<header><p class=kicker>Training run</p><h1>{}</h1><p class=lead>{}{}</p>\n",
               escaped(runs[0].label, 80), escaped(model_text(runs[0]), 400),
               time.empty() ? "" : ". Started " + escaped(time, 40)) +
           facts_of(runs[0]) + list_of_notes(runs) + "</header>\n";
  }
  std::vector<std::vector<std::string>> rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Run& run = runs[r];
    const Value best = best_of(run);
    rows.push_back({run_mark(runs, r), escaped(model_text(run), 200),
                    escaped(best.name, 40) + ": " + value_text(best),
                    rounded(last_of(run, best.name).value), grouped(applied_steps(run)),
                    grouped(skipped_steps(run)), duration(seconds_of(run)),
                    escaped(ending_of(run).word, 60), escaped(start_time(run), 40)});
  }
  return fmt::format("<header><p class=kicker>Training runs</p><h1>{} runs</h1>\n", runs.size()) +
         scrolled("The runs", plain_table("The runs",
                                          {"run", "model", "best", "last", "applied steps",
                                           "skipped", "time", "ended", "started"},
                                          rows)) +
         list_of_notes(runs) + "</header>\n";
}

std::string differing_settings(const Runs& runs) {
  if (runs.size() == 1) return {};
  std::vector<std::string> order;
  std::vector<std::map<std::string, std::string>> values(runs.size());
  for (std::size_t r = 0; r < runs.size(); ++r)
    for (const auto& setting : settings_of(runs[r])) {
      if (std::find(order.begin(), order.end(), setting.first) == order.end())
        order.push_back(setting.first);
      values[r].insert(setting);
    }
  std::vector<std::vector<std::string>> rows;
  for (const std::string& name : order) {
    std::vector<std::string> row = {"<code>" + escaped(name, 80) + "</code>"};
    bool differs = false;
    for (const auto& of_run : values) {
      const auto it = of_run.find(name);
      const auto first = std::as_const(values[0]).find(name);
      const bool here = it != of_run.end(), there = first != values[0].end();
      differs |= here != there || (here && it->second != first->second);
      row.push_back(here ? escaped(it->second, 200) : rounded(kNoNumber));
    }
    if (differs && rows.size() < 80) rows.push_back(row);
  }
  std::string content = "<p>All settings that the logs name are the same.</p>\n";
  if (!rows.empty()) {
    std::vector<std::string> head = {"setting"};
    for (std::size_t r = 0; r < runs.size(); ++r) head.push_back(run_mark(runs, r));
    content = scrolled("Settings by run", plain_table("By run", head, rows));
  }
  return section("differences", "Settings that differ", content);
}

std::string models(const Runs& runs) {
  std::string out, last;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto list = runs[r].head.find("modules");
    if (list == runs[r].head.end() || !list->is_array()) continue;
    std::string own;
    std::size_t n = 0;
    for (const Json& m : *list) {
      if (!m.is_object() || ++n > 16) continue;
      const std::string name = text_of(m, "name"), type = text_of(m, "type");
      own += "<h3>" + escaped(name.empty() ? type : name + " (" + type + ")", 80) + "</h3>\n";
      const std::size_t most =
          kLongestSummary / runs.size() / std::min<std::size_t>(list->size(), 16);
      own += scrolled("Summary of the model", escaped(text_of(m, "summary"), most, true), "pre");
    }
    if (own == last) {
      out += "<p>" + run_mark(runs, r) + ": as the run before.</p>\n";
    } else {
      out += (runs.size() > 1 ? "<p>" + run_mark(runs, r) + "</p>\n" : "") + own;
    }
    last = own;
  }
  return out.empty() ? out : section("model", "Model", out);
}

std::string settings(const Runs& runs) {
  std::string out;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, value] : settings_of(runs[r]))
      if (rows.size() < 150 / runs.size() && name.rfind("optimizers", 0) != 0)
        rows.push_back({"<code>" + escaped(name, 80) + "</code>",
                        escaped(value, kLongestSetting / runs.size())});
    std::string own = optimizers_of(runs[r]);
    if (!rows.empty())
      own += scrolled("Settings", plain_table("Settings", {"name", "value"}, rows));
    if (own.empty()) continue;
    out += runs.size() == 1 ? own : folded(run_mark(runs, r), own);
  }
  return out.empty() ? out : section("settings", "Settings and optimizers", out);
}

}  // namespace firn::report
