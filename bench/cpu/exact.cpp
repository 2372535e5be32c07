// The cost of exact mode for three networks. One has dense layers on 64 samples in chunks of 16,
// one is a transformer on 8 sequences in chunks of 2. The third is a convolutional network
// normalised by its batch of 64 in chunks of 16.
//   bench_exact [--threads N] [--epochs N]
// The figures are ratios to steps of the ordinary mode that take the whole batch as one
// micro-batch. Those named split are ratios to steps in micro-batches of a chunk, which need as
// little memory. The modes alternate in one process.
#include <firn/firn.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "../harness.h"
#include "gpt_model.h"

using namespace firn;

namespace {

/// The network of both modes. Exact mode normalises by the whole batch, as does the other mode,
/// whose micro-batch is the batch.
struct Cnn : nn::Module {
  nn::Conv2d a{1, 16, 3, {.padding = 1, .bias = false}},
      b{16, 32, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d norm1{16}, norm2{32};
  nn::Linear head{32 * 7 * 7, 10};
  FIRN_MEMBERS(a, b, norm1, norm2, head)
  Tensor forward(const Tensor& x) override {
    const Tensor h = max_pool2d(relu(norm1(a(x))), 2);
    return head(flatten(max_pool2d(relu(norm2(b(h))), 2), 1));
  }
};

constexpr std::int64_t kImages = 16, kSequences = 2;  // samples of a chunk
constexpr bench::gpt::Sizes kGpt{"gpt", 4, 256, 4, 128, 8, 1024, false, 1e-3, 0};

struct Mode {
  std::unique_ptr<optim::Optimizer> opt;
  std::function<Loss(std::int64_t first, std::int64_t last)> loss;
};

/// Reports the time of a step of the second mode divided by that of the first, whose micro-batch is
/// the batch, or has `chunk` samples.
void compare(const std::string& name, const std::array<Mode, 2>& modes, std::int64_t batch,
             std::int64_t chunk, int rounds) {
  std::vector<double> of_whole, of_split;
  const auto time = [&](const Mode& mode, std::int64_t micro_batch) {
    const double start = bench::seconds();
    mode.opt->run_batch(batch, micro_batch, mode.loss);
    return bench::seconds() - start;
  };
  for (int round = -3; round < rounds; ++round) {
    const double whole = time(modes[0], batch), exact = time(modes[1], batch);
    const double split = time(modes[0], chunk);
    if (round < 0) continue;
    of_whole.push_back(exact / whole);
    of_split.push_back(exact / split);
  }
  bench::report(name + ".time", "of the ordinary mode", of_whole);
  bench::report(name + ".split", "of the ordinary mode", of_split);
}

/// Compares networks for 64 images, without exact mode and with chunks of 16.
template <class Net>
void compare_classifiers(const std::string& name, std::array<Net, 2>& nets, const Tensor& x,
                         const Tensor& y, int rounds) {
  std::array<Mode, 2> modes;
  for (std::size_t m = 0; m < 2; ++m) {
    modes[m].opt =
        std::make_unique<optim::SGD>(nets[m].parameters(), optim::SGDOptions{.lr = 0.01},
                                     optim::StepOptions{.exact = {.chunk = m == 0 ? 0 : kImages}});
    modes[m].loss = [&net = nets[m], &x, &y](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
    };
  }
  compare(name, modes, x.size(0), kImages, rounds);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  set_num_threads(run.threads);
  manual_seed(1);
  {
    constexpr std::int64_t kBatch = 64;
    const Tensor x = rand({kBatch, 784}), y = zeros({kBatch}, i64);
    std::array<nn::MLP, 2> nets{nn::MLP({784, 512, 512, 10}), nn::MLP({784, 512, 512, 10})};
    compare_classifiers("exact.mlp", nets, x, y, 60 * run.epochs);
  }
  {
    constexpr std::int64_t kBatch = 64;
    const Tensor x = rand({kBatch, 1, 28, 28}), y = zeros({kBatch}, i64);
    std::array<Cnn, 2> nets;
    nn::convert_batch_norm(nets[0], nn::BatchNormMode::per_step);
    nn::convert_batch_norm(nets[1], nn::BatchNormMode::whole_batch);
    compare_classifiers("exact.cnn", nets, x, y, 20 * run.epochs);
  }
  {
    bench::gpt::Tokens tokens(kGpt, 1);
    const Tensor x = from_memory(tokens.input_of(0), {kGpt.batch, kGpt.length});
    const Tensor y = from_memory(tokens.target_of(0), {kGpt.batch, kGpt.length});
    std::array<bench::gpt::Gpt, 2> nets{bench::gpt::Gpt(kGpt), bench::gpt::Gpt(kGpt)};
    std::array<Mode, 2> modes;
    for (std::size_t m = 0; m < 2; ++m) {
      modes[m].opt = std::make_unique<optim::AdamW>(
          nets[m].parameters(), optim::AdamWOptions{.lr = kGpt.rate},
          optim::StepOptions{.exact = {.chunk = m == 0 ? 0 : kSequences}});
      modes[m].loss = [&net = nets[m], &x, &y](std::int64_t first, std::int64_t last) {
        return linear_cross_entropy(net.hidden(x.slice(0, first, last)), net.head,
                                    y.slice(0, first, last));
      };
    }
    compare("exact.gpt", modes, kGpt.batch, kSequences, 8 * run.epochs);
  }
}
