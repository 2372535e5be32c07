#include "tools/report/log/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/log/format.h"

namespace firn::report {
namespace {

constexpr std::size_t kMostSettings = 300;

/// Returns a + b, where a NaN is ignored.
double sum(double a, double b) { return std::isnan(a) ? b : std::isnan(b) ? a : a + b; }

void add_name(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

void flatten(const std::string& name, const Json& value,
             std::vector<std::pair<std::string, std::string>>& out) {
  if (out.size() >= kMostSettings) return;
  const bool records = value.is_array() && !value.empty() && value[0].is_object();
  if (value.is_object()) {
    for (const auto& [member, v] : value.items())
      flatten(name.empty() ? member : name + "." + member, v, out);
  } else if (records) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string own = value[i].is_object() ? text_of(value[i], "name") : std::string();
      flatten(value.size() == 1
                  ? name
                  : fmt::format("{}.{}", name, own.empty() ? std::to_string(i + 1) : own),
              value[i], out);
    }
  } else {
    out.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

}  // namespace

Ending ending_of(const Run& run) {
  if (!run.end) return {"not ended", "no end record: under way, or killed"};
  const std::string& ended = run.end->ended;
  if (ended == "epochs") return {"finished", "all epochs done"};
  if (ended == "early_stop") return {"stopped early", "no better value"};
  if (ended == "limit") return {"stopped", "at its limit"};
  if (ended == "interrupted") return {"interrupted", "by a signal"};
  if (ended == "asked") return {"stopped", "by a callback"};
  return {"ended", ended};
}

std::string model_text(const Run& run) {
  const auto list = run.head.find("modules");
  if (list == run.head.end() || !list->is_array() || list->empty()) return "unknown model";
  std::string out;
  std::size_t n = 0;
  for (const Json& m : *list) {
    if (!m.is_object()) continue;
    if (++n > 4) return out + fmt::format(", and {} more", list->size() - 4);
    const std::string name = text_of(m, "name"), type = text_of(m, "type");
    if (!out.empty()) out += "; ";
    out += name.empty() ? type : name + " (" + type + ")";
    const double parameters = number_of(m, "parameters");
    if (!std::isnan(parameters)) out += fmt::format(", {} parameters", grouped(parameters));
  }
  return out;
}

std::string start_time(const Run& run) {
  std::string time = text_of(object_of(run.head, "measured"), "time");
  if (time.size() == 20 && time[10] == 'T' && time.back() == 'Z')
    return time.substr(0, 10) + " " + time.substr(11, 5) + " UTC";
  return time;
}

double seconds_of(const Run& run) {
  double all = kNoNumber;
  for (const Epoch& e : run.epochs) all = sum(all, sum(e.seconds, e.validation_seconds));
  if (std::isnan(all))
    for (const Steps& s : run.steps) all = std::fmax(all, s.seconds);
  return all;
}

double applied_steps(const Run& run) {
  if (run.end && !std::isnan(run.end->applied_steps)) return run.end->applied_steps;
  double out = run.epochs.empty() ? kNoNumber : run.epochs.back().applied_steps;
  if (!run.steps.empty()) out = std::fmax(out, run.steps[0].last_step);
  return out;
}

double skipped_steps(const Run& run) {
  double out = run.epochs.empty() ? kNoNumber : run.epochs.back().skipped_steps;
  if (!run.steps.empty() && run.steps[0].records > 0)
    out = std::fmax(out, static_cast<double>(run.steps[0].skipped));
  return out;
}

double value_of(const Epoch& epoch, const std::string& name) {
  if (name == kTrainLoss) return epoch.train_loss;
  if (name == kValidationLoss) return epoch.validation_loss;
  return find(epoch.metrics, name);
}

Value best_of(const Run& run) {
  const double best = run.end ? run.end->best : kNoNumber;
  if (!std::isnan(best)) {
    for (const Epoch& e : run.epochs) {
      if (e.epoch != run.end->best_epoch) continue;
      std::vector<std::string> names = {kValidationLoss, kTrainLoss};
      for (const NamedNumber& m : e.metrics) names.push_back(m.name);
      // In logs without "best_of", only its number identifies the value.
      if (!run.end->best_of.empty() && run.end->best_of != "loss") names = {run.end->best_of};
      for (const std::string& name : names)
        if (value_of(e, name) == best) return {name, best, e.epoch};
    }
    return {run.end->best_of.empty() ? "best value" : run.end->best_of, best, run.end->best_epoch};
  }
  for (const char* name : {kValidationLoss, kTrainLoss}) {
    Value out{.name = name};
    for (const Epoch& e : run.epochs) {
      const double value = value_of(e, name);
      if (std::isfinite(value) && !(out.value <= value)) out = {name, value, e.epoch};
    }
    if (!std::isnan(out.value)) return out;
  }
  return {};
}

Value last_of(const Run& run, const std::string& name) {
  if (run.epochs.empty()) return {};
  return {name, value_of(run.epochs.back(), name), run.epochs.back().epoch};
}

std::vector<std::string> metric_names(const std::vector<Epoch>& epochs) {
  std::vector<std::string> names;
  for (const Epoch& e : epochs)
    for (const NamedNumber& m : e.metrics) add_name(names, m.name);
  return names;
}

std::vector<std::string> owner_names(const std::vector<Epoch>& epochs) {
  std::vector<std::string> names;
  for (const Epoch& e : epochs)
    for (const NamedNumber& m : e.bytes_at_peak) add_name(names, m.name);
  return names;
}

double find(const std::vector<NamedNumber>& list, const std::string& name) {
  for (const NamedNumber& n : list)
    if (n.name == name) return n.value;
  return kNoNumber;
}

std::vector<std::pair<std::string, std::string>> settings_of(const Run& run) {
  Json head = run.head;
  for (const char* name : {"record", "measured", "schema"}) head.erase(name);
  for (const char* name : {"modules", "optimizers"})
    if (head.contains(name) && head[name].is_array())
      for (Json& m : head[name])
        if (m.is_object()) m.erase("summary");
  std::vector<std::pair<std::string, std::string>> out;
  flatten("", head, out);
  return out;
}

Batches batches_of(const Run& run) {
  Batches out;
  const double ranks = number_of(run.head, "ranks");
  if (ranks >= 1) out.ranks = ranks;
  const auto list = run.head.find("optimizers");
  if (list != run.head.end() && list->is_array() && !list->empty() && (*list)[0].is_object())
    out.micro_steps = number_of((*list)[0], "accumulate");
  if (!run.epochs.empty()) {
    const Epoch& e = run.epochs.front();
    const double first_epoch = e.epoch == 1 ? sum(e.applied_steps, e.skipped_steps) : kNoNumber;
    out.steps_per_epoch = first_epoch;
    if (first_epoch > 0) out.effective = std::ceil(e.samples / first_epoch);
  }
  if (!run.steps.empty() && run.steps[0].records > 0) {
    const Steps& s = run.steps[0];
    if (s.micro_steps >= 1) out.micro_steps = s.micro_steps;
    if (s.first_cycles >= 1 && s.first_samples >= 1)
      out.effective = s.first_samples / s.first_cycles;
  }
  const double given = number_of(run.head, "micro_batch");
  out.micro = given >= 1 ? given : out.effective / (out.micro_steps * out.ranks);
  return out;
}

const Epoch* heaviest(const Run& run) {
  const Epoch* out = nullptr;
  for (const Epoch& e : run.epochs)
    if (e.training_peak_bytes > 0 && !e.bytes_at_peak.empty() &&
        (out == nullptr || e.training_peak_bytes > out->training_peak_bytes))
      out = &e;
  return out;
}

double scaling_bytes(const Epoch& epoch) {
  return sum(find(epoch.bytes_at_peak, "activations"), find(epoch.bytes_at_peak, "recomputed"));
}

double estimated_peak(const Epoch& epoch, double measured_pieces, double pieces) {
  const double scaling = scaling_bytes(epoch);
  return epoch.training_peak_bytes - scaling + scaling * measured_pieces / pieces;
}

}  // namespace firn::report
