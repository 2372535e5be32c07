// Past a memory limit: a batch whose passes do not fit is cut into micro-batches, planned
// beforehand or halved when memory runs out. The weights are those of a run without a limit, to
// rounding.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

static Tensor trained(std::size_t room, const Tensor& x,
                      const Tensor& y) {  // the first weight at the end
  manual_seed(1);
  nn::MLP net({32, 512, 512, 4});
  optim::SGD opt(net.parameters(), {.lr = 0.2, .momentum = 0.9});
  const auto loss = [&](std::int64_t first, std::int64_t last) {
    return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
  };
  const std::size_t budget = room == 0 ? 0 : memory_stats().total.current + room;
  const optim::MicroBatch whole = {.size = x.size(0)};
  std::int64_t size = 0;
  reset_peak_memory();
  const std::size_t begin = memory_stats().total.current;
  for (int step = 0; step < 15; ++step)
    size = opt.run_batch(x.size(0), room == 0 ? whole : optim::MicroBatch::within(budget), loss)
               .micro_batch();
  const NoGrad guard;
  const double extra = static_cast<double>(memory_stats().total.peak - begin) / (1 << 20);
  std::printf("micro-batches of %4lld: passes took %.1f MiB, loss %.4f\n",
              static_cast<long long>(size), extra, cross_entropy(net(x), y).item());
  return net.layers[0].weight.detach().clone();
}

int main() {
  manual_seed(7);
  const Tensor x = randn({1024, 32});
  const Tensor y = argmax(x.slice(1, 0, 4));
  const Tensor free = trained(0, x, y);
  const Tensor limited = trained(3 << 20, x, y);
  const double apart = norm(free - limited).item() / norm(free).item();
  std::printf("weights are %.1e apart\n", apart);

  // Without a plan: memory runs out, and the batch is halved.
  nn::MLP net({32, 512, 512, 4});
  optim::SGD opt(net.parameters(), {.lr = 0.2});
  release_cached_memory();
  set_memory_limit(memory_stats().reserved + (4 << 20));
  const optim::StepReport report =
      opt.run_batch(1024, {.size = 1024}, [&](std::int64_t a, std::int64_t b) {
        return cross_entropy(net(x.slice(0, a, b)), y.slice(0, a, b));
      });
  set_memory_limit(0);
  std::printf("%s\n", to_string(report).c_str());
  return apart < 1e-3 && report.applied() && report.micro_batch() < 1024 ? 0 : 1;
}
