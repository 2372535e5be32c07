// The cost of an op without its arithmetic: tensors of 16 elements, one thread. Also the cost of
// the log that fit() writes for a step.
#include <firn/firn.h>

#include "../harness.h"

using namespace firn;

namespace {

/// Compares trainings by fit() without and with a record of each step, in turn.
void log_of_a_step() {
  constexpr std::int64_t kSteps = 2000;
  const data::TensorDataset set({randn({kSteps, 4}), randn({kSteps, 4})});
  const bench::Folder folder;
  const auto step_ns = [&](bool log) {
    data::Loader loader(set, {.batch = 1});
    nn::Linear net(4, 4);
    optim::Adam opt(net.parameters(), {.lr = 1e-3});
    train::FitOptions options{.epochs = 1, .progress = false};
    if (log) options.log = {.path = folder.file("run.jsonl"), .every = 1};
    const double start = bench::seconds();
    train::fit(net, opt, loader, mse_loss, options);
    return (bench::seconds() - start) * 1e9 / kSteps;
  };
  std::vector<double> plain, logged, record;
  for (int i = -1; i < 15; ++i) {
    const double a = step_ns(false), b = step_ns(true);
    if (i < 0) continue;
    plain.push_back(a);
    logged.push_back(b);
    record.push_back(b - a);
  }
  bench::report("fit.step", "ns", plain);
  bench::report("fit.step_logged", "ns", logged);
  bench::report("fit.record_of_step", "ns", record);
}

}  // namespace

int main() {
  set_num_threads(1);
  manual_seed(1);
  const Tensor a = randn({16}), b = randn({16});
  Tensor w = randn({16});
  w.set_requires_grad();
  {
    const NoGrad guard;
    bench::report("add.no_grad", "ns", bench::nanoseconds([&] { Tensor y = a + b; }));
  }
  bench::report("add.recorded", "ns", bench::nanoseconds([&] { Tensor y = w + b; }));
  bench::report("chain10.forward_backward", "ns", bench::nanoseconds([&] {
                  Tensor y = w;
                  for (int i = 0; i < 10; ++i) y = y + b;
                  backward(y, {.initial_gradient = a});
                }));
  const Tensor x = randn({4, 4});
  nn::Linear fc(4, 4);
  const Tensor seed = randn({4, 4});
  bench::report("linear.forward_backward", "ns",
                bench::nanoseconds([&] { backward(fc(x), {.initial_gradient = seed}); }));
  log_of_a_step();
}
