// A classifier of images trained by train::fit(): validation, a metric, early stopping, averages of
// the weights.
//
// The images are made from ten patterns under noise. data::load_fashion_mnist() loads those of
// FashionMNIST in one line; an ImageDataset takes its .train and .test too.
#include <cstdio>

#include "firn/firn.h"

using namespace firn;

// Returns n images u8 [14, 14] with labels 0 to 9: the pattern of the class, shifted and noisy.
static data::TensorDataset patterns(std::int64_t n, const Tensor& shapes) {
  const Tensor label = argmax(rand({n, 10}));
  const Tensor clean = index_select(shapes, 0, label);
  return data::TensorDataset(
      {clamp(128.0 * clean + 110.0 * randn({n, 14, 14}), 0, 255).to(u8), label});
}

int main() {
  manual_seed(1);
  const Tensor shapes = rand({10, 14, 14});
  const data::ImageOptions pixels = {.mean = 0.3f, .stddev = 0.25f, .flatten = true};
  const data::ImageDataset train(patterns(2000, shapes), pixels),
      test(patterns(500, shapes), pixels);
  data::Loader loader(train, {.batch = 50, .shuffle = true, .seed = 1});
  data::Loader validation(test, {.batch = 250});

  nn::MLP net({14 * 14, 64, 10});
  optim::AdamW opt(net.parameters(), {.lr = optim::cosine(3e-3, 400)}, {.ema = 0.95});
  const auto loss = [](const Tensor& out, const Tensor& y) { return cross_entropy(out, y); };
  const train::FitReport report =
      train::fit(net, opt, loader, loss,
                 {.epochs = 10,
                  .validate = &validation,
                  .metrics = {std::make_shared<metrics::Accuracy>()},
                  .early_stop = {.value = "accuracy", .highest = true, .patience = 3},
                  .progress = false});

  std::printf("%.1f %% of the test images are right after %lld epochs (%s)\n",
              100 * report.last.value("accuracy"), static_cast<long long>(report.epochs),
              train::to_string(report.ended));
  return report.last.value("accuracy") > 0.9 ? 0 : 1;
}
