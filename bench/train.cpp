// Whole trainings of an MLP 784-512-512-10 on FashionMNIST, as a user of firn would write them.
//   bench_train mlp_sgd|mlp_adam [--threads N] [--epochs N]
#include <firn/firn.h>

#include <cstring>

#include "harness.h"

using namespace firn;

namespace {

struct Mlp : nn::Module {
  nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};
  FIRN_MEMBERS(fc1, fc2, fc3)
  Tensor forward(const Tensor& x) override { return fc3(relu(fc2(relu(fc1(x))))); }
};

constexpr std::int64_t kBatch = 64;

double accuracy(Mlp& net, const bench::Images& test) {
  const NoGrad guard;
  const Tensor x = from_memory(const_cast<float*>(test.pixels.data()), {test.count, 784});
  const Tensor y = from_memory(const_cast<std::int64_t*>(test.labels.data()), {test.count});
  return sum(eq(argmax(net(x)), y)).item() / static_cast<double>(test.count);
}

template <class Optimizer>
void train(Optimizer& opt, Mlp& net, bench::Images& data, int epochs, const std::string& name) {
  std::vector<double> rates;
  for (int e = 0; e < epochs; ++e) {
    const double start = bench::seconds();
    for (std::int64_t at = 0; at < data.count; at += kBatch) {
      const std::int64_t n = std::min(kBatch, data.count - at);
      const Tensor x = from_memory(data.pixels.data() + at * 784, {n, 784});
      const Tensor y = from_memory(data.labels.data() + at, {n});
      opt.backward(cross_entropy(net(x), y));
      opt.step();
    }
    rates.push_back(static_cast<double>(data.count) / (bench::seconds() - start));
  }
  bench::report(name + ".rate", "samples/s", rates);
}

}  // namespace

int main(int argc, char** argv) {
  std::string work = argc > 1 ? argv[1] : "mlp_sgd";
  int threads = 2, epochs = 3;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--threads")) threads = std::atoi(argv[i + 1]);
    if (!std::strcmp(argv[i], "--epochs")) epochs = std::atoi(argv[i + 1]);
  }
  set_num_threads(threads);
  manual_seed(1);
  auto data = bench::load_images("train", 60000);
  const auto test = bench::load_images("t10k", 10000);
  Mlp net;
  if (work == "mlp_sgd") {
    optim::SGD opt(net.parameters(), {.lr = 1e-3f});
    train(opt, net, data, epochs, work);
  } else {
    optim::Adam opt(net.parameters(), {.lr = 1e-3f});
    train(opt, net, data, epochs, work);
  }
  bench::report(work + ".peak_rss", "MiB", {bench::peak_rss_mib()});
  bench::report(work + ".accuracy", "%", {100 * accuracy(net, test)});
}
