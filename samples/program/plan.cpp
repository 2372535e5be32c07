#include "program/plan.h"

#include <cstdio>

#include "firn/firn.h"
#include "program/model.h"
#include "program/trainer.h"

namespace sample {
namespace {

/// Returns the options with smaller micro-batches, and with more of them.
Options cut(const Options& options, const Cut& cut) {
  Options o = options;
  o.micro_batch = cut.micro_batch;
  o.recompute = cut.recompute;
  for (auto& [epoch, steps] : o.accumulate) steps *= cut.parts;
  return o;
}

Cut plan_cut(const Options& options, Training& training, const About& about, firn::Device device,
             std::int64_t parts, const std::string& recompute) {
  Cut c{.micro_batch = options.micro_batch / parts, .parts = parts, .recompute = recompute};
  const Options o = cut(options, c);
  Batches batches = training.batches(o);
  const std::int64_t samples = std::visit([](const auto& b) { return b.samples(); }, batches);
  const auto optimizer = make_optimizer(o, training.model(), samples, about.program);
  c.training = Trainer(training, *optimizer, batches, o).planned_peak(device);
  c.testing = planned_test_peak(training, o.precision, device);
  return c;
}

}  // namespace

std::vector<Cut> plan_cuts(const Options& options, Training& training, const About& about,
                           firn::Device device, std::size_t budget) {
  const bool automatic = options.recompute == "auto";
  const std::vector<std::string> recomputes =
      automatic ? std::vector<std::string>{"nothing", "cheap", "all"}
                : std::vector<std::string>{options.recompute};
  std::vector<Cut> cuts;
  for (std::int64_t parts = 1; parts <= options.micro_batch; ++parts) {
    if (options.micro_batch % parts != 0) continue;
    for (const std::string& recompute : recomputes) {
      if (automatic) set_recompute(training.model(), recompute);
      cuts.push_back(plan_cut(options, training, about, device, parts, recompute));
      if (budget > 0 && cuts.back().peak() <= budget) return cuts;
    }
  }
  return cuts;
}

void print_cuts(const Options& options, const std::vector<Cut>& cuts) {
  std::printf("%12s %16s %14s %14s", "micro-batch", "per step", "training", "testing");
  const bool automatic = options.recompute == "auto";
  std::printf("%s%s\n", automatic ? "  recompute" : "", options.memory > 0 ? "  fits" : "");
  for (const Cut& c : cuts) {
    std::printf("%12lld %16lld %14s %14s", static_cast<long long>(c.micro_batch),
                static_cast<long long>(c.parts * options.accumulate_in(0)),
                firn::bytes_to_string(c.training).c_str(),
                firn::bytes_to_string(c.testing).c_str());
    if (automatic) std::printf("  %-9s", c.recompute.c_str());
    std::printf("%s\n", options.memory == 0 ? "" : c.peak() <= options.memory ? "  yes" : "  no");
  }
}

Options fitted(const Options& o, Training& training, const About& about, firn::Device device) {
  if (o.memory == 0) return o;
  const auto cuts = plan_cuts(o, training, about, device, o.memory);
  const Cut& last = cuts.back();
  const std::string peak = firn::bytes_to_string(last.peak());
  const std::string memory = firn::bytes_to_string(o.memory);
  if (last.peak() > o.memory)
    throw firn::Error(
        about.program,
        "micro-batches of one " + about.one + " need " + peak + ", and --memory is " + memory,
        "see --plan");
  const std::string recompute =
      o.recompute == "auto" ? ", --recompute " + last.recompute : std::string();
  std::printf("micro-batches of %lld%s: %s at the peak of a step, within %s\n",
              static_cast<long long>(last.micro_batch), recompute.c_str(), peak.c_str(),
              memory.c_str());
  firn::set_memory_limit(o.memory, device);
  return cut(o, last);
}

}  // namespace sample
