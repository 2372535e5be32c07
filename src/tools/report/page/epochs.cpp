#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/report/log/facts.h"
#include "tools/report/log/format.h"
#include "tools/report/page/chart.h"
#include "tools/report/page/sections.h"

namespace firn::report {
namespace {

constexpr std::size_t kCells = 1500;  // limit for a table, so that the page stays small
constexpr std::size_t kMostBars = 120, kMostMetrics = 12;

std::size_t rows_for(std::size_t columns, std::size_t runs) {
  return std::clamp<std::size_t>(kCells / (columns * runs), 12, kMostBars);
}

/// Returns lines over epochs, one for each run.
std::vector<Line> epoch_lines(const Runs& runs, const std::function<double(const Epoch&)>& value) {
  std::vector<Line> out;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    Series s(200 / runs.size());
    for (const Epoch& e : runs[r].epochs) s.add(e.epoch, value(e));
    if (!s.empty())
      out.push_back({.label = escaped(runs[r].label, 60),
                     .colour = r % kColours,
                     .series = s,
                     .shape = Line::Shape::points});
  }
  return out;
}

std::string from_to(const std::vector<Line>& lines) {
  const Series& s = lines[0].series;
  return fmt::format("from {} in epoch {} to {} in epoch {}.", rounded(s.first().value),
                     rounded(s.first().x), rounded(s.last().value), rounded(s.last().x));
}

std::size_t epochs_in(const Runs& runs) {
  std::size_t n = 0;
  for (const Run& run : runs) n += run.epochs.size();
  return n;
}

/// Returns the memory owners with a non-zero share of some epoch's peak.
std::vector<std::string> owners_in(const Runs& runs) {
  std::vector<std::string> out;
  for (const Run& run : runs)
    for (const std::string& name : owner_names(run.epochs)) {
      const bool used = std::any_of(run.epochs.begin(), run.epochs.end(), [&](const Epoch& e) {
        return find(e.bytes_at_peak, name) > 0;
      });
      if (used && std::find(out.begin(), out.end(), name) == out.end() && out.size() < 16)
        out.push_back(name);
    }
  return out;
}

/// Returns the colour of an owner, which does not depend on the other owners. The usually largest
/// one has the calmest colour.
std::size_t colour_of(const std::string& owner) {
  constexpr const char* kOwners[] = {"activations", "gradients", "weights",    "optimizer",
                                     "workspace",   "data",      "recomputed", "masters"};
  const auto it = std::find(std::begin(kOwners), std::end(kOwners), owner);
  return static_cast<std::size_t>(it - std::begin(kOwners)) % kColours;
}

void add_owners(BarChart& chart, const std::vector<std::string>& owners) {
  for (const std::string& o : owners) {
    chart.parts.push_back(escaped(o, 40));
    chart.colours.push_back(colour_of(o));
  }
}

/// Draws the memory of one cycle over time, for the first run whose log has it.
std::string cycle_memory(const Runs& runs) {
  const auto run =
      std::find_if(runs.begin(), runs.end(), [](const Run& r) { return !r.moments.empty(); });
  if (run == runs.end()) return {};
  std::vector<std::string> owners;
  for (const Moment& m : run->moments)
    for (const NamedNumber& n : m.by_owner)
      if (n.value > 0 && owners.size() < 16 &&
          std::find(owners.begin(), owners.end(), n.name) == owners.end())
        owners.push_back(n.name);
  if (owners.empty()) return {};
  std::vector<Column> columns = {{"moment", "point", {}}, {"all", "measured/bytes", Shown::bytes}};
  for (const std::string& o : owners)
    columns.push_back({o, "measured/by_owner/" + o, Shown::bytes});
  Table table("Memory over one cycle, by owner", "memory", columns);
  table.group(static_cast<std::size_t>(run - runs.begin()), "", run->label);
  BarChart chart{.id = "chart-cycle-memory"};
  chart.title = "Memory over one cycle";
  chart.x_name = "moment, in the order of allocations and releases";
  chart.y_name = "memory";
  chart.bytes = true;
  add_owners(chart, owners);
  double most = 0;
  for (const Moment& m : run->moments) {
    std::vector<double> row = {m.point, m.bytes};
    auto& sizes = chart.sizes.emplace_back();
    for (const std::string& o : owners) sizes.push_back(find(m.by_owner, o));
    row.insert(row.end(), sizes.begin(), sizes.end());
    table.row(row);
    chart.bars.push_back(rounded(m.point));
    if (m.bytes > most) most = m.bytes;
  }
  chart.description =
      fmt::format("Memory over the second cycle{}. At most {}.",
                  runs.size() > 1 ? " of " + escaped(run->label, 60) : "", bytes_text(most));
  return figure(chart, "", table.html());
}

}  // namespace

std::vector<std::size_t> chosen_epochs(const std::vector<Epoch>& epochs, std::size_t most,
                                       const std::function<double(const Epoch&)>& value) {
  std::set<std::size_t> out;
  if (epochs.size() <= most) {
    for (std::size_t i = 0; i < epochs.size(); ++i) out.insert(i);
  } else {
    Series s(std::max<std::size_t>(most / 2, 2));
    for (std::size_t i = 0; i < epochs.size(); ++i) s.add(static_cast<double>(i), value(epochs[i]));
    out.insert(0);
    for (const Point& p : s.points()) out.insert(static_cast<std::size_t>(p.x));
    out.insert(epochs.size() - 1);
  }
  return {out.begin(), out.end()};
}

std::string thinned_note(std::size_t shown, std::size_t all, const std::string& what) {
  if (shown == all) return {};
  return fmt::format("{} of {} {}", grouped(static_cast<double>(shown)),
                     grouped(static_cast<double>(all)), what);
}

std::string memory_section(const Runs& runs) {
  const std::vector<std::string> owners = owners_in(runs);
  if (owners.empty()) return {};
  const bool several = runs.size() > 1;
  std::vector<Column> columns = {
      {"epoch", "epoch", {}}, {"peak of training", "measured/training_peak_bytes", Shown::bytes}};
  for (const std::string& o : owners)
    columns.push_back({o, "measured/training_bytes_at_peak/" + o, Shown::bytes});
  columns.push_back({"process, peak so far", "measured/peak_rss_bytes", Shown::bytes});
  Table table("Memory at the peak of training, by owner", "epoch", columns);

  BarChart chart{.id = "chart-memory"};
  chart.title = several ? "Memory at the peak of training, in the epoch with the highest"
                        : "Memory at the peak of training, by epoch";
  chart.x_name = several ? "run" : "epoch";
  chart.y_name = "memory";
  chart.bytes = true;
  add_owners(chart, owners);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto& epochs = runs[r].epochs;
    std::vector<std::size_t> chosen;
    if (!several) {
      chosen = chosen_epochs(epochs, rows_for(columns.size(), 1),
                             [](const Epoch& e) { return e.training_peak_bytes; });
    } else if (const Epoch* e = heaviest(runs[r])) {
      chosen = {static_cast<std::size_t>(e - epochs.data())};
    }
    if (chosen.empty()) continue;
    table.group(r, "", runs[r].label);
    for (const std::size_t i : chosen) {
      const Epoch& e = epochs[i];
      std::vector<double> row = {e.epoch, e.training_peak_bytes};
      auto& sizes = chart.sizes.emplace_back();
      for (const std::string& o : owners) sizes.push_back(find(e.bytes_at_peak, o));
      row.insert(row.end(), sizes.begin(), sizes.end());
      row.push_back(e.peak_rss_bytes);
      table.row(row);
      chart.bars.push_back(several ? escaped(runs[r].label, 12) : rounded(e.epoch));
    }
  }
  chart.description = "Memory by owner.";
  const Epoch* e = heaviest(runs[0]);
  if (e != nullptr)
    chart.description = fmt::format("Memory by owner. Highest peak{}: {} in epoch {}.",
                                    several ? " of " + escaped(runs[0].label, 60) : "",
                                    bytes_text(e->training_peak_bytes), rounded(e->epoch));
  const std::string note =
      several ? std::string() : thinned_note(table.rows(), epochs_in(runs), "epochs");
  return section("memory", "Memory",
                 "<p>Each owner's bytes at the moment at which all of them together were the most. "
                 "Memory of firn's tensors on the training's device counts.</p>\n" +
                     figure(chart, note, table.html()) + cycle_memory(runs));
}

std::string time_section(const Runs& runs) {
  Table table("Time by epoch", "epoch",
              {{"epoch", "epoch", {}},
               {"training (s)", "measured/seconds", {}},
               {"of these, waiting for data (s)", "measured/data_seconds", {}},
               {"validation (s)", "measured/validation_seconds", {}},
               {"checkpoints (s)", "measured/saving_seconds", {}},
               {"samples/s in training", "measured/samples_per_second", {}}});
  BarChart bars{.id = "chart-time", .title = "Time by epoch"};
  bars.x_name = "epoch";
  bars.y_name = "time (s)";
  bars.parts = {"data", "steps", "validation", "checkpoints"};
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto& epochs = runs[r].epochs;
    if (epochs.empty()) continue;
    table.group(r, "", runs[r].label);
    for (const std::size_t i : chosen_epochs(epochs, rows_for(6, runs.size()),
                                             [](const Epoch& e) { return e.seconds; })) {
      const Epoch& e = epochs[i];
      table.row({e.epoch, e.seconds, e.data_seconds, e.validation_seconds, e.saving_seconds,
                 e.samples_per_second});
      bars.bars.push_back(rounded(e.epoch));
      const double data = std::isfinite(e.data_seconds) ? e.data_seconds : 0;
      bars.sizes.push_back({data, e.seconds - data, e.validation_seconds, e.saving_seconds});
    }
  }
  const std::vector<Line> seconds = epoch_lines(runs, [](const Epoch& e) { return e.seconds; });
  if (seconds.empty()) return {};
  const std::string note = thinned_note(table.rows(), epochs_in(runs), "epochs");
  std::string out;
  if (runs.size() == 1) {
    bars.description = "Seconds of training " + from_to(seconds);
    out += figure(bars, note, table.html());
  } else {
    LineChart chart{.id = "chart-time", .title = "Time of training by epoch"};
    chart.description = "Seconds of training " + from_to(seconds);
    chart.x_name = "epoch";
    chart.y_name = "time (s)";
    chart.lines = seconds;
    out += figure(chart, note, table.html());
  }
  double samples = 0, training = 0;
  for (const Epoch& e : runs[0].epochs) {
    if (std::isfinite(e.samples) && e.seconds > 0) {
      samples += e.samples;
      training += e.seconds;
    }
  }
  if (training > 0)
    out += fmt::format(
        "<p class=note>{}{} samples/s on average over all epochs (computed: samples / "
        "seconds of training).</p>\n",
        runs.size() > 1 ? escaped(runs[0].label, 60) + ": " : "", grouped(samples / training));
  return section("time", "Time", out);
}

std::string metrics_section(const Runs& runs) {
  std::vector<std::string> names;
  for (const Run& run : runs)
    for (const std::string& name : metric_names(run.epochs))
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  if (names.empty()) return {};
  std::string note;
  if (names.size() > kMostMetrics) {
    note = fmt::format("<p class=note>The page shows the first {} of {} metrics.</p>\n",
                       kMostMetrics, names.size());
    names.resize(kMostMetrics);
  }
  std::string charts;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    const std::vector<Line> lines =
        epoch_lines(runs, [&](const Epoch& e) { return find(e.metrics, name); });
    Table table(escaped(name, 60) + " by epoch", "epoch",
                {{"epoch", "epoch", {}}, {name, "metrics/" + name, {}}});
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const auto& epochs = runs[r].epochs;
      const auto value = [&](const Epoch& e) { return find(e.metrics, name); };
      table.group(r, "", runs[r].label);
      for (const std::size_t k :
           chosen_epochs(epochs, rows_for(2 * names.size(), runs.size()), value))
        table.row({epochs[k].epoch, value(epochs[k])});
    }
    if (lines.empty()) continue;
    LineChart chart{.id = fmt::format("chart-metric-{}", i + 1), .title = escaped(name, 60)};
    chart.description = escaped(name, 60) + " " + from_to(lines);
    chart.x_name = "epoch";
    chart.y_name = escaped(name, 24);
    chart.lines = lines;
    chart.small = names.size() > 1;
    charts += figure(chart, thinned_note(table.rows(), epochs_in(runs), "epochs"), table.html());
  }
  return section("metrics", "Metrics", note + "<div class=tiles>" + charts + "</div>");
}

}  // namespace firn::report
