// Explains the effect of accumulation with the run's own numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/report/log/facts.h"
#include "tools/report/log/format.h"
#include "tools/report/page/sections.h"

namespace firn::report {
namespace {

constexpr double kMostPieces = 64;

std::string measured_table(const Runs& runs) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Batches b = batches_of(runs[r]);
    const Epoch* const e = heaviest(runs[r]);
    const double steps = applied_steps(runs[r]) + skipped_steps(runs[r]);
    double seconds = 0;
    for (const Epoch& epoch : runs[r].epochs)
      seconds += std::isnan(epoch.seconds) ? 0 : epoch.seconds;
    rows.push_back({run_mark(runs, r), grouped(b.effective), rounded(b.micro_steps),
                    grouped(b.micro), rounded(b.ranks), grouped(b.steps_per_epoch),
                    grouped(applied_steps(runs[r])),
                    seconds > 0 && steps > 0 ? duration(seconds / steps) : rounded(kNoNumber),
                    e == nullptr ? rounded(kNoNumber) : bytes_text(e->training_peak_bytes)});
  }
  return scrolled("What was trained and measured",
                  plain_table("What was trained and measured",
                              {"run", "effective batch (samples)", "micro-steps a step",
                               "micro-batch (samples)", "ranks", "steps in epoch 1",
                               "applied steps", "time a step", "peak of training"},
                              rows));
}

/// Returns estimated peaks for other numbers of micro-steps with an equal effective batch.
std::string estimates(const Run& run) {
  const Batches b = batches_of(run);
  const Epoch* const e = heaviest(run);
  const double scaling = e != nullptr ? scaling_bytes(*e) : kNoNumber;
  if (!(b.micro_steps >= 1) || !(b.effective >= 1) || !(scaling > 0) || !std::isfinite(scaling))
    return "<p>The log lacks what an estimate needs: the effective batch, or activations at the "
           "peak.</p>\n";
  std::set<double> pieces = {1, b.micro_steps};
  const double most =
      std::min({b.effective / b.ranks, kMostPieces, std::max(8.0, 4 * b.micro_steps)});
  for (double n = 2; n <= most; n *= 2) pieces.insert(n);
  std::vector<std::vector<std::string>> rows;
  for (const double n : pieces) {
    const bool measured = n == b.micro_steps;
    const std::string mark = measured ? "<strong>" : "", end = measured ? "</strong>" : "";
    rows.push_back({mark + (n == 1 ? std::string("1, in one piece") : rounded(n)) + end,
                    grouped(std::ceil(b.effective / b.ranks / n)),
                    bytes_text(std::round(scaling * b.micro_steps / n)),
                    bytes_text(e->training_peak_bytes - scaling),
                    mark + bytes_text(std::round(estimated_peak(*e, b.micro_steps, n))) + end,
                    measured ? "measured" : "estimate"});
  }
  std::string out = fmt::format(
      "<p>The same effective batch of {} samples, cut otherwise{}:</p>\n", grouped(b.effective),
      b.ranks > 1 ? fmt::format(" on each of the {} ranks", rounded(b.ranks)) : "");
  out += scrolled("Peak of training by the number of micro-steps",
                  plain_table("Peak of training by the number of micro-steps",
                              {"micro-steps a step", "micro-batch (samples)", "activations",
                               "all else", "peak", "how"},
                              rows));
  out += fmt::format(
      "<p class=note>Estimate: peak(n) = {} &minus; {} + {} &times; {} / n, for n micro-steps. "
      "These are the "
      "peak of epoch {}, the activations in it, and the run's number of micro-steps. The formula "
      "takes "
      "activations, also those computed again, in proportion to the micro-batch. It takes "
      "workspace, data "
      "and the gradients between layers as they were, so large micro-batches may need more. With "
      "few "
      "activations left, the peak may move to another moment of the step.</p>\n",
      bytes_text(e->training_peak_bytes), bytes_text(scaling), bytes_text(scaling),
      rounded(b.micro_steps), rounded(e->epoch));
  return out;
}

}  // namespace

std::string accumulation_guide(const Runs& runs) {
  std::string out =
      "<p>A step of the optimizer takes the mean gradient over its <em>effective batch</em>. "
      "Accumulation "
      "cuts this batch into <em>micro-batches</em>. Each has a forward and a backward pass of its "
      "own, and "
      "their gradients add up. The step is that of the whole batch, but memory holds the "
      "activations of "
      "only one micro-batch. Weights, gradients and the optimizer's state need the same memory "
      "either "
      "way.</p>\n";
  out += measured_table(runs);
  if (runs.size() > 1) out += "<p>Estimates for " + run_mark(runs, 0) + ":</p>\n";
  out += estimates(runs[0]);
  if (runs[0].steps.size() > 1)
    out +=
        "<p class=note>The run has several optimizers. These numbers are of the first one.</p>\n";
  return section("accumulation", "What accumulation does", out);
}

}  // namespace firn::report
