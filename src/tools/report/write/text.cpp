#include "tools/report/write/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/report/log/facts.h"
#include "tools/report/log/format.h"

namespace firn::report {
namespace {

constexpr std::size_t kColumns = 72, kLines = 9;  // size of the drawing
constexpr std::size_t kMostEpochs = 12, kMostMetrics = 2, kMostSkips = 5;
constexpr std::size_t kWidth = 60;  // bytes of the log's text in a line

/// Draws the loss by step: `|` from the lowest to the highest record of a column, `o` for
/// validation.
std::string drawing(const Steps& steps, const std::vector<Epoch>& epochs) {
  const Series loss = steps.loss.coarser(kColumns * 4);
  double low = loss.lowest(), high = loss.highest();
  double last = loss.last().x;
  for (const Epoch& e : epochs) {
    if (!std::isfinite(e.validation_loss) || !std::isfinite(e.applied_steps)) continue;
    low = std::min(low, e.validation_loss);
    high = std::max(high, e.validation_loss);
    last = std::max(last, e.applied_steps);
  }
  const double first = loss.first().x;
  std::vector<std::string> lines(kLines, std::string(kColumns, ' '));
  const auto column = [&](double x) {
    const double share = last > first ? (x - first) / (last - first) : 0;
    return static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * (kColumns - 1));
  };
  const auto line = [&](double y) {
    // All numbers are halved, since the difference of two numbers may overflow.
    const double share = high > low ? (high / 2 - y / 2) / (high / 2 - low / 2) : 0;
    return static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * (kLines - 1)));
  };
  for (const Series::Range& r : loss.ranges())
    for (std::size_t i = line(r.high.value); i <= line(r.low.value); ++i)
      lines[i][column(r.mean_x)] = '|';
  bool validated = false;
  for (const Epoch& e : epochs) {
    if (!std::isfinite(e.validation_loss) || !std::isfinite(e.applied_steps)) continue;
    lines[line(e.validation_loss)][column(e.applied_steps)] = 'o';
    validated = true;
  }
  std::string out =
      fmt::format("loss by applied step{}{}\n",
                  steps.optimizer.empty() ? "" : " of " + visible(steps.optimizer, 20),
                  validated ? "; o: validation" : "");
  for (std::size_t i = 0; i < kLines; ++i) {
    const std::string label = i == 0 ? rounded(high) : i + 1 == kLines ? rounded(low) : "";
    out += fmt::format("{:>11} {}\n", label, lines[i]);
  }
  return out + fmt::format("{:>11} {:<{}}{}\n", "step", grouped(first),
                           kColumns - grouped(last).size(), grouped(last));
}

std::string epoch_table(const Run& run) {
  std::vector<std::string> metrics = metric_names(run.epochs);
  if (metrics.size() > kMostMetrics) metrics.resize(kMostMetrics);
  std::string out = "epoch  train loss   val. loss";
  for (const std::string& m : metrics) out += fmt::format("  {:>10}", visible(m, 8));
  out += "     steps  skipped        time  samples/s       peak\n";
  const std::size_t n = run.epochs.size();
  for (std::size_t i = 0; i < n; ++i) {
    // Prints the first epochs, then the last ones.
    if (n > kMostEpochs && i == kMostEpochs / 2) {
      const std::size_t next = n - kMostEpochs / 2;
      out += fmt::format("  ...   {} epochs\n", next - i);
      i = next;
    }
    const Epoch& e = run.epochs[i];
    out += fmt::format("{:>5}  {:>10}  {:>10}", rounded(e.epoch), rounded(e.train_loss),
                       rounded(e.validation_loss));
    for (const std::string& m : metrics)
      out += fmt::format("  {:>10}", rounded(find(e.metrics, m)));
    out += fmt::format(
        "  {:>8}  {:>7}  {:>10}  {:>9}  {:>9}\n", rounded(e.applied_steps),
        rounded(e.skipped_steps), duration(e.seconds),
        std::isnan(e.samples_per_second) ? rounded(kNoNumber) : grouped(e.samples_per_second),
        bytes_text(e.peak_bytes));
  }
  return out;
}

std::string skip_table(const Steps& s) {
  std::string out =
      fmt::format("skipped steps{}: {}\n",
                  s.optimizer.empty() ? "" : " of " + visible(s.optimizer, 20), s.skipped);
  std::size_t n = 0;
  for (const Skip& k : s.first_skips) {
    if (++n > kMostSkips) break;
    out += fmt::format("  after step {}, scale {}: {}{}\n", full(k.step),
                       std::isfinite(k.loss_scale) ? full(k.loss_scale) : rounded(k.loss_scale),
                       visible(k.cause, kWidth),
                       k.parameter.empty() ? "" : "; parameter " + visible(k.parameter, kWidth));
  }
  return out;
}

std::string memory_line(const Epoch& e) {
  std::vector<NamedNumber> owners = e.bytes_at_peak;
  std::sort(owners.begin(), owners.end(),
            [](const NamedNumber& a, const NamedNumber& b) { return a.value > b.value; });
  std::string out = fmt::format("peak memory of training, epoch {}: {}", rounded(e.epoch),
                                bytes_text(e.training_peak_bytes));
  std::size_t n = 0;
  for (const NamedNumber& o : owners)
    if (o.value > 0 && ++n <= 4)
      out +=
          fmt::format("{} {} {}", n == 1 ? " =" : " +", visible(o.name, 16), bytes_text(o.value));
  return out + "\n";
}

}  // namespace

std::string text_report(const Run& run) {
  std::string out =
      fmt::format("{}: {}\n", visible(run.label, kWidth), visible(model_text(run), 2 * kWidth));
  const Ending ending = ending_of(run);
  out +=
      fmt::format("{}{}; {} applied steps, {} skipped; {} of training and validation\n",
                  start_time(run).empty() ? "" : visible(start_time(run), 30) + "; ",
                  ending.word + ": " + visible(ending.phrase, kWidth), grouped(applied_steps(run)),
                  grouped(skipped_steps(run)), duration(seconds_of(run)));
  const Value best = best_of(run);
  if (!best.name.empty()) {
    out += fmt::format("best {}: {} in epoch {}", visible(best.name, kWidth), rounded(best.value),
                       rounded(best.epoch));
    const Value last = last_of(run, best.name);
    if (!std::isnan(last.value)) out += fmt::format("; last: {}", rounded(last.value));
    out += "\n";
  }
  for (const std::string& note : run.notes) out += "note: " + note + "\n";
  for (const Steps& s : run.steps) {
    if (!s.loss.empty()) out += "\n" + drawing(s, run.epochs);
    if (s.loss.missing() > 0)
      out += fmt::format("{} step records have a loss that is not finite\n", s.loss.missing());
    if (&s - run.steps.data() == 1) break;  // the screen has space for two
  }
  if (!run.epochs.empty()) out += "\n" + epoch_table(run);
  bool skipped = false;
  for (const Steps& s : run.steps) {
    if (s.skipped == 0) continue;
    out += (skipped ? "" : "\n") + skip_table(s);
    skipped = true;
  }
  if (const Epoch* e = heaviest(run)) out += "\n" + memory_line(*e);
  return out;
}

}  // namespace firn::report
