#include "plan.h"

#include <cstdio>

#include "models.h"
#include "training.h"

namespace sample {
namespace {

Cut plan_cut(const Options& options, firn::nn::Module& model,
             const firn::data::ImageDataset& images, firn::data::ResidentBatches& test,
             firn::Device device, std::int64_t parts, const std::string& recompute) {
  Cut c{.micro_batch = options.micro_batch / parts, .parts = parts, .recompute = recompute};
  const Options o = cut(options, c);
  firn::data::ResidentBatches batches(
      images, {.batch = o.micro_batch, .shuffle = true, .seed = o.seed, .device = device});
  const auto optimizer = make_optimizer(o, model, batches.samples());
  Trainer trainer(model, *optimizer, batches, o);
  c.training = firn::plan_memory([&] { trainer.cycle(); }, device).peak;
  c.testing = firn::plan_memory(
                  [&] {
                    const firn::NoGrad guard;
                    model.eval();
                    test.begin_epoch(0);
                    logits_of(model, test.next().x, o.precision);
                  },
                  device)
                  .peak;
  return c;
}

}  // namespace

Options cut(const Options& options, const Cut& cut) {
  Options o = options;
  o.micro_batch = cut.micro_batch;
  o.recompute = cut.recompute;
  for (auto& [epoch, steps] : o.accumulate) steps *= cut.parts;
  return o;
}

std::vector<Cut> plan_cuts(const Options& options, firn::nn::Module& model,
                           const firn::data::ImageDataset& images,
                           firn::data::ResidentBatches& test, firn::Device device,
                           std::size_t budget) {
  const bool automatic = options.recompute == "auto";
  const std::vector<std::string> recomputes =
      automatic ? std::vector<std::string>{"nothing", "cheap", "all"}
                : std::vector<std::string>{options.recompute};
  std::vector<Cut> cuts;
  for (std::int64_t parts = 1; parts <= options.micro_batch; ++parts) {
    if (options.micro_batch % parts != 0) continue;
    for (const std::string& recompute : recomputes) {
      if (automatic) set_recompute(model, recompute);
      cuts.push_back(plan_cut(options, model, images, test, device, parts, recompute));
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

}  // namespace sample
