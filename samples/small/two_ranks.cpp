// Ranks as threads: two ranks train one model on the halves of each batch. In exact mode their
// weights have the bits of a single rank's.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

static std::vector<float> trained(int ranks, double* accuracy) {
  std::vector<float> weights;
  dist::run_local(ranks, [&](const dist::Group& group) {
    manual_seed(1);
    const Tensor x = randn({512, 8});
    const Tensor y = argmax(x.slice(1, 0, 3));
    nn::MLP net({8, 32, 3});
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = 16}});
    dist::distribute(opt, group);
    for (int step = 0; step < 40; ++step) {
      const std::int64_t at = 128 * (step % 4);
      opt.run_batch(128, 32,
                    [&](std::int64_t first, std::int64_t last) {  // each rank is asked for its part
                      return cross_entropy(net(x.slice(0, at + first, at + last)),
                                           y.slice(0, at + first, at + last));
                    });
    }
    if (group.rank() != 0) return;
    const NoGrad guard;
    *accuracy = eq(argmax(net(x)), y).to(f32).mean().item();
    weights = net.layers[0].weight.to_vector<float>();
  });
  return weights;
}

int main() {
  double one = 0, two = 0;
  const bool same = trained(1, &one) == trained(2, &two);
  std::printf("one rank %.1f %%, two ranks %.1f %% right; the weights have %s bits\n", 100 * one,
              100 * two, same ? "the same" : "other");
  return same && two > 0.9 ? 0 : 1;
}
