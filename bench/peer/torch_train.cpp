// The trainings of ../cpu/train.cpp with LibTorch: equal data in memory, order and arithmetic.
//   bench_torch_train mlp_sgd|mlp_adam|mlp_accum|cnn [--threads N] [--epochs N] [--images N]
//                     [--precision f32|bf16]
// --precision bf16 is autocast. The figures are mlp_sgd.rate, ... in both.
// TORCH_CHANNELS_LAST=1 in the environment sets that memory format for the convolutions.
#include "setup.h"

namespace {

struct Net : torch::nn::Module {
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
};

struct Mlp : Net {
  torch::nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};
  Mlp() {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("fc3", fc3);
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    return fc3(torch::relu(fc2(torch::relu(fc1(x)))));
  }
};

struct Cnn : Net {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 32, 3)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(32, 64, 3)};
  torch::nn::Linear fc1{9216, 128}, fc2{128, 10};
  bool channels_last = std::getenv("TORCH_CHANNELS_LAST") != nullptr;
  Cnn() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    if (!channels_last) return;
    const torch::NoGradGuard guard;
    for (auto* conv : {&conv1, &conv2})
      (*conv)->weight.set_data((*conv)->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    auto images = x.view({-1, 1, 28, 28});
    if (channels_last) images = images.contiguous(torch::MemoryFormat::ChannelsLast);
    auto h = conv1(images);
    h = conv2(h.relu_());
    h = fc1(torch::max_pool2d(h.relu_(), 2).flatten(1));
    return fc2(h.relu_());
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  bench::set_up(run);
  auto data = bench::load_images("train", run.images);
  auto test = bench::load_images("t10k", 10000);
  const auto net =
      run.work == "cnn" ? std::shared_ptr<Net>(std::make_shared<Cnn>()) : std::make_shared<Mlp>();
  const bool accumulates = run.work == "mlp_accum";
  std::unique_ptr<torch::optim::Optimizer> opt;
  if (run.work == "mlp_sgd" || accumulates) {
    opt = std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(1e-3));
  } else {
    opt = std::make_unique<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(1e-3));
  }
  const std::int64_t batch = accumulates ? 16 : 64, cycle = accumulates ? 4 : 1;
  std::vector<double> rates;
  for (int e = 0; e < run.epochs; ++e) {
    const double start = bench::seconds();
    std::int64_t micro_steps = 0;
    opt->zero_grad();
    for (std::int64_t at = 0; at < data.count; at += batch) {
      const std::int64_t n = std::min(batch, data.count - at);
      const auto x = torch::from_blob(data.pixels.data() + at * 784, {n, 784});
      const auto y = torch::from_blob(data.labels.data() + at, {n}, torch::kInt64);
      const auto loss = [&] {
        const bench::Autocast guard(run.precision);
        return torch::nn::functional::cross_entropy(net->forward(x), y);
      }();
      (cycle > 1 ? loss / cycle : loss).backward();
      if (++micro_steps % cycle != 0 && at + n < data.count) continue;
      opt->step();
      opt->zero_grad();
    }
    rates.push_back(static_cast<double>(data.count) / (bench::seconds() - start));
  }
  bench::report(run.work + ".rate", "samples/s", rates);
  bench::report(run.work + ".peak_rss", "MiB", {bench::peak_rss_mib()});
  const torch::NoGradGuard no_grad;
  const bench::Autocast guard(run.precision);
  double right = 0;
  for (std::int64_t at = 0; at < test.count; at += 1000) {
    const auto x = torch::from_blob(test.pixels.data() + at * 784, {1000, 784});
    const auto y = torch::from_blob(test.labels.data() + at, {1000}, torch::kInt64);
    right += net->forward(x).argmax(1).eq(y).sum().item<double>();
  }
  bench::report(run.work + ".accuracy", "%", {100 * right / static_cast<double>(test.count)});
}
