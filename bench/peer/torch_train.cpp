// The same trainings with LibTorch: same data in memory, same order, same arithmetic.
//   bench_torch_train mlp_sgd|mlp_adam [--threads N] [--epochs N]
#include <immintrin.h>
#include <torch/torch.h>

#include <cstring>

#include "../harness.h"

namespace {

struct Mlp : torch::nn::Module {
  torch::nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};
  Mlp() {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("fc3", fc3);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return fc3(torch::relu(fc2(torch::relu(fc1(x)))));
  }
};

constexpr std::int64_t kBatch = 64;

}  // namespace

int main(int argc, char** argv) {
  const std::string work = argc > 1 ? argv[1] : "mlp_sgd";
  int threads = 2, epochs = 3;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--threads")) threads = std::atoi(argv[i + 1]);
    if (!std::strcmp(argv[i], "--epochs")) epochs = std::atoi(argv[i + 1]);
  }
  torch::set_num_threads(threads);
  torch::manual_seed(1);
  at::globalContext().setFlushDenormal(true);
#pragma omp parallel
  _mm_setcsr(_mm_getcsr() | 0x8040);  // subnormals are flushed in every thread
  auto data = bench::load_images("train", 60000);
  auto test = bench::load_images("t10k", 10000);
  Mlp net;
  std::unique_ptr<torch::optim::Optimizer> opt;
  if (work == "mlp_sgd") {
    opt = std::make_unique<torch::optim::SGD>(net.parameters(), torch::optim::SGDOptions(1e-3));
  } else {
    opt = std::make_unique<torch::optim::Adam>(net.parameters(), torch::optim::AdamOptions(1e-3));
  }
  std::vector<double> rates;
  for (int e = 0; e < epochs; ++e) {
    const double start = bench::seconds();
    for (std::int64_t at = 0; at < data.count; at += kBatch) {
      const std::int64_t n = std::min(kBatch, data.count - at);
      const auto x = torch::from_blob(data.pixels.data() + at * 784, {n, 784});
      const auto y = torch::from_blob(data.labels.data() + at, {n}, torch::kInt64);
      opt->zero_grad();
      torch::nn::functional::cross_entropy(net.forward(x), y).backward();
      opt->step();
    }
    rates.push_back(static_cast<double>(data.count) / (bench::seconds() - start));
  }
  bench::report(work + ".rate", "samples/s", rates);
  bench::report(work + ".peak_rss", "MiB", {bench::peak_rss_mib()});
  const torch::NoGradGuard guard;
  const auto x = torch::from_blob(test.pixels.data(), {test.count, 784});
  const auto y = torch::from_blob(test.labels.data(), {test.count}, torch::kInt64);
  bench::report(work + ".accuracy", "%",
                {100 * net.forward(x).argmax(1).eq(y).to(torch::kFloat).mean().item<double>()});
}
