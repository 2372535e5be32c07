// Cost and savings of checkpoint() on a transformer: steps of one model with each policy in turn.
//   bench_recompute [--threads N] [--epochs N] [--precision P]
// Figures are ratios to the steps that keep everything: time, and bytes of activations at the peak.
#include <firn/firn.h>

#include <array>
#include <string>
#include <vector>

#include "../harness.h"
#include "gpt_model.h"
#include "precision.h"

using namespace firn;
using namespace bench::gpt;

namespace {

/// The model is so deep that the head and the one recomputed block hardly count.
constexpr Sizes kDeep{"gpt12", 12, 256, 4, 128, 8, 1024, false, 1e-3, 0};

struct Policy {
  const char* name;
  nn::BlockCheckpoints blocks;
};
constexpr std::array kPolicies{
    Policy{"all", {0, Keep::inputs}}, Policy{"products", {1, Keep::products}},
    Policy{"inputs", {1, Keep::inputs}}, Policy{"every_2nd", {2, Keep::inputs}},
    Policy{"in_file", {1, Keep::in_file}}};

/// Returns the bytes of the tensors that a step makes, when total memory was at its peak.
double activations_at_peak() {
  const MemoryStats stats = memory_stats();
  const auto of = [&stats](Owner o) { return stats.at_peak[static_cast<std::size_t>(o)]; };
  return static_cast<double>(of(Owner::activations) + of(Owner::recomputed));
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  const bench::Precision precision(run.precision);
  const Sizes& sizes = kDeep;
  set_num_threads(run.threads);
  manual_seed(1);
  Tokens tokens(sizes, 1);
  Gpt net(sizes);
  net.to(precision.model);
  optim::AdamW opt(net.parameters(), {.lr = sizes.rate}, precision.step());
  const Tensor x = from_memory(tokens.input_of(0), {sizes.batch, sizes.length});
  const Tensor y = from_memory(tokens.target_of(0), {sizes.batch, sizes.length});
  std::array<std::vector<double>, kPolicies.size()> times, peaks;
  for (int round = 0; round <= run.epochs * 4; ++round) {
    for (std::size_t i = 0; i < kPolicies.size(); ++i) {
      nn::checkpoint_blocks(net, kPolicies[i].blocks);
      reset_peak_memory();
      const double start = bench::seconds();
      opt.backward(precision.run([&] { return linear_cross_entropy(net.hidden(x), net.head, y); }));
      opt.step();
      if (round == 0) continue;  // plans and memory are made
      times[i].push_back(bench::seconds() - start);
      peaks[i].push_back(activations_at_peak());
    }
  }
  const std::string name = run.named("recompute");
  for (std::size_t i = 1; i < kPolicies.size(); ++i) {
    std::vector<double> ratios;
    for (std::size_t r = 0; r < times[i].size(); ++r) ratios.push_back(times[i][r] / times[0][r]);
    bench::report(name + "." + kPolicies[i].name + ".time", "of all", ratios);
    bench::report(name + "." + kPolicies[i].name + ".activations", "of all",
                  {bench::median(peaks[i]) / bench::median(peaks[0])});
  }
}
