// Training below a memory limit: a batch whose passes do not fit is cut into micro-batches, planned
// beforehand or halved when memory runs out. The weights equal those of a run without a limit, up
// to rounding.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

struct Trained {
  Tensor weight;  // the first one, at the end
  double loss;
};

static Trained trained(std::size_t room, const Tensor& x, const Tensor& y) {
  manual_seed(1);
  nn::MLP net({32, 512, 512, 4});
  optim::SGD opt(net.parameters(), {.lr = 0.2, .momentum = 0.9});
  const auto loss = [&](std::int64_t first, std::int64_t last) {
    return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
  };
  reset_peak_memory();
  const std::size_t begin = memory_stats().total.current;
  const optim::MicroBatch micro =
      room == 0 ? optim::MicroBatch{.size = x.size(0)} : optim::MicroBatch::within(begin + room);
  std::int64_t size = 0;
  for (int step = 0; step < 10; ++step) size = opt.run_batch(x.size(0), micro, loss).micro_batch();

  const double passes = static_cast<double>(memory_stats().total.peak - begin) / (1 << 20);
  const NoGrad guard;
  const double last = cross_entropy(net(x), y).item();
  std::printf("micro-batches of %4lld: passes took %.1f MiB, loss %.4f\n",
              static_cast<long long>(size), passes, last);
  return {net.layers[0].weight.detach().clone(), last};
}

int main() {
  manual_seed(7);
  const Tensor x = randn({2048, 32});
  const Tensor y = argmax(x.slice(1, 0, 4));
  const Trained free = trained(0, x, y), limited = trained(8 << 20, x, y);
  const double apart = norm(free.weight - limited.weight).item() / norm(free.weight).item();
  std::printf("weights are %.1e apart\n", apart);

  // Without a plan, memory runs out and the batch is halved.
  nn::MLP net({32, 512, 512, 4});
  optim::SGD opt(net.parameters(), {.lr = 0.2});
  release_cached_memory();
  set_memory_limit(memory_stats().reserved + (10 << 20));
  const optim::StepReport report =
      opt.run_batch(2048, {.size = 2048}, [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
      });
  set_memory_limit(0);
  std::printf("%s\n", to_string(report).c_str());
  const bool learned = limited.loss < 0.7, halved = report.applied() && report.micro_batch() < 2048;
  return learned && halved && apart < 1e-3 ? 0 : 1;
}
