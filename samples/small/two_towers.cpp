// Several inputs: queries and documents of different widths meet in one space (InfoNCE). The loss
// couples the samples of its batch, so a batch that is cut needs two passes. step_two_pass() gives
// the gradient of the whole batch.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

struct Towers : nn::ModuleOf<Towers> {
  nn::MLP query{{10, 64, 16}}, document{{20, 64, 16}};
  FIRN_MEMBERS(query, document)
  Tensor forward(const Tensor& q, const Tensor& d) {  // [n, 2, 16], each of length 1
    const Tensor both = stack({query(q), document(d)}, 1);
    return both / norm(both, 2, true);
  }
};

// Queries and documents are two views of the same 6 hidden numbers.
struct Pairs {
  Tensor to_query = randn({10, 6}), to_document = randn({20, 6});
  std::pair<Tensor, Tensor> draw(std::int64_t n) const {
    const Tensor hidden = randn({n, 6});
    return {linear(hidden, to_query) + 0.1 * randn({n, 10}),
            tanh(linear(hidden, to_document)) + 0.1 * randn({n, 20})};
  }
};

int main() {
  manual_seed(1);
  const Pairs pairs;
  Towers net;
  optim::AdamW opt(net.parameters(), {.lr = 3e-3});
  for (int step = 0; step < 150; ++step) {
    const auto drawn = pairs.draw(128);
    const Tensor q = drawn.first, d = drawn.second;
    opt.step_two_pass(
        4,
        [&](std::int64_t i) {
          return net(q.slice(0, 32 * i, 32 * i + 32), d.slice(0, 32 * i, 32 * i + 32));
        },
        [](const Tensor& all) { return info_nce(all.select(1, 0), all.select(1, 1), 0.1); });
  }
  const NoGrad guard;
  const auto drawn = pairs.draw(200);
  const Tensor all = net(drawn.first, drawn.second);
  const Tensor best = argmax(matmul(all.select(1, 0), all.select(1, 1).transpose(0, 1)));
  const double right = eq(best, arange(200)).to(f32).mean().item();
  std::printf("%.1f %% of 200 queries find their document; a guess finds 0.5 %%\n", 100 * right);
  return right > 0.6 ? 0 : 1;
}
