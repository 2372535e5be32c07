// Training a transformer, as a user of firn would write it.
//   bench_gpt [gpt|gpt2] [--threads N] [--epochs N] [--steps N] [--precision P]
// gpt.loss is the mean of the last ten steps. With --precision the figures are gpt_bf16.rate, ...
#include <firn/firn.h>

#include <stdexcept>

#include "../harness.h"
#include "gpt_model.h"
#include "precision.h"

using namespace firn;
using namespace bench::gpt;

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  const bench::Precision precision(run.precision);
  const Sizes& sizes = sizes_of(run.work);
  set_num_threads(run.threads);
  manual_seed(1);
  Tokens tokens(sizes, run.all_steps());
  Gpt net(sizes);
  if (net.num_parameters() != sizes.parameters)
    throw std::runtime_error("gpt: " + std::to_string(net.num_parameters()) + " parameters");
  net.to(precision.model);
  optim::AdamW opt(net.parameters(), {.lr = sizes.rate}, precision.step());
  std::vector<double> rates, losses;
  for (int step = 0, e = 0; e < run.epochs; ++e) {
    const double start = bench::seconds();
    for (int i = 0; i < run.steps; ++i, ++step) {
      const Tensor x = from_memory(tokens.input_of(step), {sizes.batch, sizes.length});
      const Tensor y = from_memory(tokens.target_of(step), {sizes.batch, sizes.length});
      const Loss loss = precision.run([&] { return cross_entropy(net(x), y); });
      opt.backward(loss);
      opt.step();
      losses.push_back(loss.item());
    }
    rates.push_back(static_cast<double>(sizes.tokens() * run.steps) / (bench::seconds() - start));
  }
  const std::string name = run.named(sizes.name);
  bench::report(name + ".rate", "tokens/s", rates);
  bench::report(name + ".peak_rss", "MiB", {bench::peak_rss_mib()});
  bench::report(name + ".loss", "nats", {mean_of_last(losses)});
}
