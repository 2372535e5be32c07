// Findings as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/doctor/diagnose.h"
#include "tools/visible.h"

namespace doctor {
namespace {

constexpr int kStateWidth = 9;

std::string indented(const char* label, const std::string& text) {
  std::string out = fmt::format("  {:{}}{}", "", kStateWidth, label);
  const std::string margin(out.size(), ' ');
  for (const char c : text) {
    out += c;
    if (c == '\n') out += margin;
  }
  return out + '\n';
}

const char* colour_of(State state) {
  switch (state) {
    case State::ok:
      return "\x1b[32m";
    case State::note:
      return "\x1b[36m";
    case State::missing:
      return "\x1b[33m";
    case State::broken:
      return "\x1b[31m";
  }
  return "";
}

}  // namespace

const char* to_string(State state) noexcept {
  switch (state) {
    case State::ok:
      return "ok";
    case State::note:
      return "note";
    case State::missing:
      return "missing";
    case State::broken:
      return "broken";
  }
  return "?";
}

bool all_well(const std::vector<Finding>& findings) noexcept {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& f) { return f.state == State::broken; });
}

std::string to_text(const std::vector<Finding>& findings, bool colours) {
  // Messages repeat values of variables and names of files. The messages' own line breaks stay.
  const auto shown = [](const std::string& text) {
    return firn::tools::visible(text, text.size(), true);
  };
  std::string out, section;
  for (const Finding& f : findings) {
    if (f.section != section) {
      out += (out.empty() ? "" : "\n") + f.section + "\n";
      section = f.section;
    }
    const std::string state = fmt::format("{:{}}", to_string(f.state), kStateWidth);
    out += fmt::format("  {}{}\n", colours ? colour_of(f.state) + state + "\x1b[0m" : state,
                       shown(f.what));
    if (!f.why.empty()) out += indented("why:  ", shown(f.why));
    if (!f.mend.empty()) out += indented("mend: ", shown(f.mend));
  }
  return out;
}

std::string to_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Finding& f : findings)
    all.push_back({{"section", f.section},
                   {"state", to_string(f.state)},
                   {"what", f.what},
                   {"why", f.why},
                   {"mend", f.mend}});
  return all.dump();
}

}  // namespace doctor
