// The benefit of ranks on one machine: compares two ranks with a thread each, as threads of this
// process, with one rank of two threads. Both train on equal batches: a network of dense layers on
// 512 samples, a transformer on 8 sequences. The two alternate.
//   bench_scaling [--epochs ROUNDS] [--quick]
#include <firn/dist/distribute.h>
#include <firn/dist/local.h>
#include <firn/firn.h>

#include <memory>
#include <string>
#include <vector>

#include "../../harness.h"
#include "../gpt_model.h"

using namespace firn;

namespace {

struct Mlp {
  static constexpr const char* kName = "mlp";
  static constexpr std::int64_t kBatch = 512;
  nn::MLP net{{784, 512, 512, 10}};
  Tensor x = rand({kBatch, 784}), y = zeros({kBatch}, i64);
  optim::SGD opt{net.parameters(), {.lr = 0.01}};
  Loss loss(std::int64_t first, std::int64_t last) {
    return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
  }
};

struct Gpt {
  static constexpr const char* kName = "gpt";
  static constexpr std::int64_t kBatch = bench::gpt::kGpt.batch;
  bench::gpt::Gpt net{bench::gpt::kGpt};
  bench::gpt::Tokens tokens{bench::gpt::kGpt, 1};
  Tensor x = from_memory(tokens.input_of(0), {kBatch, bench::gpt::kGpt.length});
  Tensor y = from_memory(tokens.target_of(0), {kBatch, bench::gpt::kGpt.length});
  optim::AdamW opt{net.parameters(), {.lr = bench::gpt::kGpt.rate}};
  Loss loss(std::int64_t first, std::int64_t last) {
    return linear_cross_entropy(net.hidden(x.slice(0, first, last)), net.head,
                                y.slice(0, first, last));
  }
};

/// Returns the samples a second of `ranks` ranks, with two threads in all.
template <class Model>
double rate(int ranks, int steps) {
  double out = 0;
  dist::run_local(
      ranks,
      [&](const dist::Group& group) {
        manual_seed(1);
        Model model;
        dist::distribute(model.opt, group);
        const auto train = [&] {
          model.opt.run_batch(
              Model::kBatch, Model::kBatch,
              [&](std::int64_t first, std::int64_t last) { return model.loss(first, last); });
        };
        for (int i = 0; i < 3; ++i) train();
        group.barrier();
        const double start = bench::seconds();
        for (int i = 0; i < steps; ++i) train();
        group.barrier();
        if (group.rank() == 0) out = steps * Model::kBatch / (bench::seconds() - start);
      },
      {.threads = 2 / ranks});
  return out;
}

template <class Model>
void compare(int rounds, int steps) {
  std::vector<double> one, two, ratios;
  for (int round = 0; round < rounds; ++round) {
    one.push_back(rate<Model>(1, steps));
    two.push_back(rate<Model>(2, steps));
    ratios.push_back(two.back() / one.back());
  }
  const std::string name = std::string("scaling.") + Model::kName;
  bench::report(name + ".one_rank", "samples/s", one);
  bench::report(name + ".ranks", "samples/s", two);
  bench::report(name + ".share", "of one rank", ratios);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  compare<Mlp>(run.quick ? 2 : 6 * run.epochs, run.quick ? 2 : 40);
  compare<Gpt>(run.quick ? 2 : 4 * run.epochs, run.quick ? 1 : 8);
}
