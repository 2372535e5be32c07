// Complete trainings on FashionMNIST, as a user of firn would write them.
//   bench_train mlp_sgd|mlp_adam|mlp_accum|cnn [--threads N] [--epochs N] [--images N] [--precision
//   P]
// With --precision the figures are mlp_sgd_bf16.rate, ...
#include <firn/firn.h>

#include <stdexcept>

#include "../harness.h"
#include "precision.h"

using namespace firn;

namespace {

struct Mlp : nn::Module {
  nn::Linear fc1{784, 512}, fc2{512, 512}, fc3{512, 10};
  FIRN_MEMBERS(fc1, fc2, fc3)
  Tensor forward(const Tensor& x) override { return fc3(relu(fc2(relu(fc1(x))))); }
};

/// A network of 1.2 million parameters, without padding.
struct Cnn : nn::Module {
  nn::Conv2d conv1{1, 32, 3, {.activation = Activation::relu}};
  nn::Conv2d conv2{32, 64, 3, {.activation = Activation::relu}};
  nn::Linear fc1{9216, 128}, fc2{128, 10};
  FIRN_MEMBERS(conv1, conv2, fc1, fc2)
  Tensor forward(const Tensor& x) override {
    const Tensor images = reshape(x, {-1, 1, 28, 28});
    return fc2(relu(fc1(flatten(max_pool2d(conv2(conv1(images)), 2), 1))));
  }
};

double accuracy(nn::Module& net, const bench::Images& test, const bench::Precision& precision) {
  const NoGrad guard;
  net.eval();
  double right = 0;
  constexpr std::int64_t kBatch = 1000;
  for (std::int64_t at = 0; at < test.count; at += kBatch) {
    const Tensor x = from_memory(const_cast<float*>(test.pixels.data()) + at * 784, {kBatch, 784})
                         .to(precision.model);
    const Tensor y = from_memory(const_cast<std::int64_t*>(test.labels.data()) + at, {kBatch});
    const Tensor logits = precision.run([&] { return net(x); });
    right += sum(eq(argmax(logits), y)).item();
  }
  return right / static_cast<double>(test.count);
}

void run_training(optim::Optimizer& opt, nn::Module& net, bench::Images& data,
                  const bench::Options& run, const bench::Precision& precision,
                  std::int64_t batch) {
  std::vector<double> rates;
  for (int e = 0; e < run.epochs; ++e) {
    const double start = bench::seconds();
    for (std::int64_t at = 0; at < data.count; at += batch) {
      const std::int64_t n = std::min(batch, data.count - at);
      const Tensor x = from_memory(data.pixels.data() + at * 784, {n, 784}).to(precision.model);
      const Tensor y = from_memory(data.labels.data() + at, {n});
      opt.backward(precision.run([&] { return cross_entropy(net(x), y); }));
      opt.step();
    }
    opt.flush();
    rates.push_back(static_cast<double>(data.count) / (bench::seconds() - start));
  }
  bench::report(run.named(run.work) + ".rate", "samples/s", rates);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options run(argc, argv);
  const bench::Precision precision(run.precision);
  const bool sgd = run.work == "mlp_sgd", accumulates = run.work == "mlp_accum";
  if (!sgd && !accumulates && run.work != "mlp_adam" && run.work != "cnn")
    throw std::invalid_argument("no such training: " + run.work);
  set_num_threads(run.threads);
  manual_seed(1);
  auto data = bench::load_images("train", run.images);
  const auto test = bench::load_images("t10k", 10000);
  const auto net = run.work == "cnn" ? std::unique_ptr<nn::Module>(std::make_unique<Cnn>())
                                     : std::make_unique<Mlp>();
  net->to(precision.model);
  if (sgd || accumulates) {
    optim::SGD opt(net->parameters(), {.lr = 1e-3}, precision.step(accumulates ? 4 : 1));
    run_training(opt, *net, data, run, precision, accumulates ? 16 : 64);
  } else {
    optim::Adam opt(net->parameters(), {.lr = 1e-3}, precision.step());
    run_training(opt, *net, data, run, precision, 64);
  }
  bench::report(run.named(run.work) + ".peak_rss", "MiB", {bench::peak_rss_mib()});
  bench::report(run.named(run.work) + ".accuracy", "%", {100 * accuracy(*net, test, precision)});
}
