#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/log/facts.h"
#include "tools/report/log/format.h"
#include "tools/report/page/chart.h"
#include "tools/report/page/sections.h"

namespace firn::report {
namespace {

constexpr std::size_t kMostCurves = 16;
constexpr std::size_t kRanges = 512;  // ranges of a single curve

/// The steps of one optimizer of one run.
struct Curve {
  std::size_t run = 0;
  const Steps* steps = nullptr;
  std::string label;  ///< label from the log, not escaped
  std::size_t colour = 0;
};

std::vector<Curve> curves_of(const Runs& runs) {
  std::vector<Curve> out;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto records = std::count_if(runs[r].steps.begin(), runs[r].steps.end(),
                                       [](const Steps& s) { return s.records > 0; });
    for (const Steps& s : runs[r].steps) {
      if (s.records == 0 || out.size() == kMostCurves) continue;
      std::string label = runs.size() > 1 ? runs[r].label : "";
      if (records > 1) label += (label.empty() ? "" : ", ") + s.optimizer;
      const std::size_t colour = runs.size() > 1 && records == 1 ? r : out.size();
      out.push_back(
          {.run = r, .steps = &s, .label = std::move(label), .colour = colour % kColours});
    }
  }
  return out;
}

std::size_t ranges_of(std::size_t curves) {
  return curves <= 1 ? kRanges : std::max<std::size_t>(kRanges * 5 / 4 / curves, 32);
}

/// Returns an epoch's place on the x axis: applied steps, or the epoch if the log does not count
/// steps.
double place_of(const Epoch& e) { return std::isnan(e.applied_steps) ? e.epoch : e.applied_steps; }

/// Values of one member of the step records: a chart's lines and its table.
struct StepValues {
  std::vector<Line> lines;
  std::string table, note;
  std::int64_t missing = 0;
};

StepValues step_values(const std::vector<Curve>& curves, Series Steps::*member, const char* name,
                       const std::string& title, Line::Shape shape, std::size_t ranges) {
  StepValues out;
  Table table(title + " by applied step", "step", {{"step", "step", {}}, {title, name, {}}});
  std::int64_t records = 0, together = 1;
  for (const Curve& c : curves) {
    const Series& whole = c.steps->*member;
    out.missing += whole.missing();
    if (whole.empty()) continue;
    const Series series = whole.coarser(ranges);
    records += whole.count();
    together = std::max(together, series.records_per_range());
    table.group(c.run, c.steps->optimizer, c.label);
    for (const Point& p : series.points()) table.row({p.x, p.value});
    out.lines.push_back({.label = c.label.empty() ? title : escaped(c.label, 60),
                         .colour = c.colour,
                         .series = series,
                         .shape = shape});
  }
  if (out.lines.empty()) return out;
  out.table = table.html();
  const auto shown = static_cast<std::int64_t>(table.rows());
  const std::string all = grouped(static_cast<double>(records));
  if (shown >= records || together == 1) {
    // The table shows the first and the last of equal neighbours.
    out.note = fmt::format("{} of {} records", grouped(static_cast<double>(shown)), all);
  } else {
    out.note = fmt::format("{} of {} records: of {} neighbours, the lowest and the highest",
                           grouped(static_cast<double>(shown)), all, together);
  }
  return out;
}

/// Adds losses by epoch: validation, and training if there are no step records.
void add_epoch_losses(const Runs& runs, bool with_training, LineChart& chart, std::string& tables) {
  Table table("Loss by epoch", "epoch",
              {{"epoch", "epoch", {}},
               {"applied steps", "applied_steps", {}},
               {"training loss", "train_loss", {}},
               {"validation loss", "validation_loss", {}}});
  const std::size_t most = std::clamp<std::size_t>(240 / runs.size(), 20, 240);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto& epochs = runs[r].epochs;
    if (epochs.empty()) continue;
    table.group(r, "", runs[r].label);
    const auto value = [](const Epoch& e) {
      return std::isnan(e.validation_loss) ? e.train_loss : e.validation_loss;
    };
    for (const std::size_t i : chosen_epochs(epochs, most, value)) {
      const Epoch& e = epochs[i];
      table.row({e.epoch, e.applied_steps, e.train_loss, e.validation_loss});
    }
    for (const bool validation : {false, true}) {
      if (!validation && !with_training) continue;
      Series s(most);
      for (const Epoch& e : epochs)
        s.add(place_of(e), validation ? e.validation_loss : e.train_loss);
      if (s.empty()) continue;
      const std::string name = validation ? "validation" : "training";
      const bool several = runs.size() > 1;
      chart.lines.push_back({.label = several ? escaped(runs[r].label, 60) + ", " + name : name,
                             .colour = several ? r % kColours : std::size_t{validation ? 1u : 0u},
                             .series = s,
                             .shape = Line::Shape::points,
                             .dashed = validation && several});
    }
  }
  if (table.rows() > 0) tables += table.html();
}

std::string missing_note(const StepValues& values, const char* what) {
  if (values.missing == 0) return {};
  return fmt::format(
      "<p class=note>{} step records have {} that is not finite. They are not drawn.</p>\n",
      grouped(static_cast<double>(values.missing)), what);
}

/// Returns the norms to which gradients are clipped; one line if all are equal.
std::vector<Level> clip_levels(const Runs& runs, const std::vector<Curve>& curves) {
  std::vector<Level> out;
  for (const Curve& c : curves) {
    const auto list = runs[c.run].head.find("optimizers");
    if (list == runs[c.run].head.end() || !list->is_array()) continue;
    for (const Json& o : *list) {
      if (!o.is_object() || text_of(o, "name") != c.steps->optimizer) continue;
      const double clip = number_of(o, "clip_norm");
      if (!(clip > 0) || !std::isfinite(clip)) continue;
      const std::string label = c.label.empty() ? "" : escaped(c.label, 60) + ", ";
      out.push_back(
          {.label = label + "clipped to " + rounded(clip), .value = clip, .colour = c.colour});
    }
  }
  const bool same =
      std::all_of(out.begin(), out.end(), [&](const Level& l) { return l.value == out[0].value; });
  if (!out.empty() && same && out.size() == curves.size())
    out = {{.label = "clipped to " + rounded(out[0].value),
            .value = out[0].value,
            .colour = kColours - 1}};
  return out;
}

std::string skip_table(const std::vector<Curve>& curves) {
  Table table("Skipped steps", "step",
              {{"after step", "step", {}},
               {"epoch", "epoch", {}},
               {"samples", "samples", {}},
               {"loss", "loss", {}},
               {"loss scale", "loss_scale", {}},
               {"cause", "cause", Shown::text},
               {"parameter", "parameter", Shown::text}});
  std::int64_t all = 0;
  const std::size_t most = Steps::kSkips / std::max<std::size_t>(curves.size(), 1);
  for (const Curve& c : curves) {
    if (c.steps->skipped == 0) continue;
    all += c.steps->skipped;
    table.group(c.run, c.steps->optimizer, c.label);
    const auto put = [&](const Skip& s) {
      table.row({s.step, s.epoch, s.samples, s.loss, s.loss_scale}, {s.cause, s.parameter});
    };
    const auto& first = c.steps->first_skips;
    const auto& last = c.steps->last_skips;
    for (std::size_t i = 0; i < std::min(first.size(), most); ++i) put(first[i]);
    for (std::size_t i = last.size() - std::min(last.size(), most); i < last.size(); ++i)
      put(last[i]);
  }
  if (all == 0) return {};
  const std::string note = thinned_note(table.rows(), static_cast<std::size_t>(all), "skips");
  const std::string html = table.html();
  if (table.rows() <= 12)
    return scrolled("Skipped steps", html) + (note.empty() ? "" : "<p>" + note + "</p>\n");
  return folded("Skipped steps: " + (note.empty() ? "all " + grouped(static_cast<double>(all))
                                                  : note + ", the first and the last"),
                html);
}

}  // namespace

std::string loss_section(const Runs& runs) {
  const auto curves = curves_of(runs);
  StepValues values = step_values(curves, &Steps::loss, "loss", "loss", Line::Shape::line,
                                  ranges_of(curves.size()));
  LineChart chart{.id = "chart-loss", .title = "Loss by applied step"};
  chart.y_name = "loss";
  chart.scale = LineChart::Scale::any;
  chart.lines = std::move(values.lines);
  if (runs.size() == 1 && chart.lines.size() == 1) chart.lines[0].label = "training, each step";
  chart.smoothing = !chart.lines.empty();
  // The validation of a single run must not have the colour of its second optimizer.
  const std::size_t of_steps = chart.lines.size();
  add_epoch_losses(runs, of_steps == 0, chart, values.table);
  if (runs.size() == 1 && of_steps > 1)
    for (std::size_t i = of_steps; i < chart.lines.size(); ++i)
      chart.lines[i].colour = of_steps % kColours;
  if (chart.lines.empty()) return {};
  const Series& first = chart.lines[0].series;
  chart.description =
      fmt::format("Loss from {} at step {} to {} at step {}.", rounded(first.first().value),
                  grouped(first.first().x), rounded(first.last().value), grouped(first.last().x));
  std::string note = values.note;
  std::string out = figure(chart, note, values.table);
  if (first.records_per_range() > 1 && of_steps > 0)
    out += fmt::format(
        "<p class=note>The line is the mean of {} neighbouring records. The band reaches from the "
        "lowest to the highest of them.</p>\n",
        first.records_per_range());
  return section("loss", "Loss", out + missing_note(values, "a loss"));
}

std::string scale_section(const Runs& runs) {
  const auto curves = curves_of(runs);
  StepValues values = step_values(curves, &Steps::loss_scale, "loss_scale", "loss scale",
                                  Line::Shape::stairs, ranges_of(curves.size()));
  double skipped = 0;
  bool scaled = false;
  LineChart chart{.id = "chart-scale", .title = "Loss scale by applied step"};
  for (const Curve& c : curves) {
    skipped += static_cast<double>(c.steps->skipped);
    const Series& s = c.steps->loss_scale;
    scaled |= !s.empty() && (s.lowest() != 1 || s.highest() != 1);
    const auto places = c.steps->skips.all();
    chart.marks.insert(chart.marks.end(), places.begin(), places.end());
  }
  if (curves.empty()) return {};
  if (!scaled && skipped == 0)
    return section("scale", "Loss scale and skipped steps",
                   "<p>The loss scale was 1 throughout, and no step was skipped.</p>\n");
  std::sort(chart.marks.begin(), chart.marks.end());
  chart.marks.erase(std::unique(chart.marks.begin(), chart.marks.end()), chart.marks.end());
  chart.y_name = "loss scale";
  chart.scale = LineChart::Scale::powers_of_two;
  chart.lines = std::move(values.lines);
  chart.marks_label = "skipped step";
  const std::string sentence = skipped == 0 ? std::string("No step was skipped.")
                                            : fmt::format("{} {} skipped.", grouped(skipped),
                                                          skipped == 1 ? "step was" : "steps were");
  chart.description = "Loss scale, with a mark for each skipped step. " + sentence;
  std::string out = "<p>" + sentence;
  if (skipped > 0)
    out +=
        " A skipped step changes no weight. The table names the cause, and the first parameter "
        "whose gradient was not finite.";
  out += "</p>\n" + (chart.lines.empty() ? "" : figure(chart, values.note, values.table));
  return section("scale", "Loss scale and skipped steps", out + skip_table(curves));
}

std::string gradient_section(const Runs& runs) {
  const auto curves = curves_of(runs);
  StepValues norm = step_values(curves, &Steps::norm, "norm", "gradient norm", Line::Shape::line,
                                ranges_of(curves.size()));
  StepValues lr = step_values(curves, &Steps::lr, "lr", "learning rate", Line::Shape::records,
                              ranges_of(curves.size()) / 2);
  std::string out;
  if (!norm.lines.empty()) {
    LineChart chart{.id = "chart-norm", .title = "Gradient norm by applied step"};
    chart.y_name = "Euclidean norm";
    chart.scale = LineChart::Scale::any;
    chart.levels = clip_levels(runs, curves);
    chart.lines = std::move(norm.lines);
    chart.smoothing = true;
    const Series& first = chart.lines[0].series;
    chart.description = fmt::format("Norm of the gradient, from {} to {}.", rounded(first.lowest()),
                                    rounded(first.highest()));
    out += figure(chart, norm.note, norm.table);
    out +=
        "<p class=note>The norm is that of the averaged gradient before clipping, without the "
        "loss scale.</p>\n";
    out += missing_note(norm, "a norm");
  }
  if (!lr.lines.empty()) {
    LineChart chart{.id = "chart-lr", .title = "Learning rate by applied step"};
    chart.y_name = "learning rate";
    chart.lines = std::move(lr.lines);
    const Series& first = chart.lines[0].series;
    chart.description = fmt::format("Learning rate, from {} to {}.", rounded(first.lowest()),
                                    rounded(first.highest()));
    out += figure(chart, lr.note, lr.table);
  }
  return out.empty() ? out : section("gradient", "Gradient and learning rate", out);
}

}  // namespace firn::report
