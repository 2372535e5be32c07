// As in Python: the function returns a mean. A Loss also has a weight.
// at most 80 lines
// says: a loss function returns a Loss, which has a weight, not a Tensor
// says: LossTerms{terms}.loss()
// says: run_batch(
// says: run_cycle(
// says: step_two_pass(
// says: fit(
// says: plan_within(
#include <firn/firn.h>

using namespace firn;

int main() {
  nn::Linear net(2, 2);
  const Tensor x = zeros({4, 2});
  optim::SGD opt(net.parameters(), {.lr = 1e-3});
  data::Loader loader(data::TensorDataset({x, x}), {});
  const auto part = [&](std::int64_t first, std::int64_t last) {
    return net(x.slice(0, first, last)).mean();
  };
  opt.run_batch(4, 2, part);
  opt.run_batch(4, {.size = 2}, part);
  opt.run_cycle(2, [&](std::int64_t) { return net(x).mean(); });
  opt.step_two_pass(
      1, [&](std::int64_t) { return net(x); }, [](const Tensor& all) { return all.mean(); });
  train::fit(net, opt, loader,
             [](const Tensor& y, const Tensor& t) { return square(y - t).mean(); }, {.epochs = 2});
  optim::plan_within(1 << 20, opt, net, 4, [&](auto, auto) { return net(x).mean(); });
}
