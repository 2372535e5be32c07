#include "training.h"

#include <cmath>
#include <cstdio>
#include <memory>

#include "replayed.h"

namespace bench {
namespace {

using namespace firn;

struct Training {
  Training(const TrainingSetting& setting, std::unique_ptr<nn::Module> model,
           const data::LabelledImages& set, std::int64_t batch, std::int64_t steps)
      : micro(batch / steps),
        micro_steps(steps),
        batches(data::ImageDataset(set, {.flatten = true, .dtype = setting.dtype}),
                {.batch = micro, .device = kDevice}),
        net(std::move(model)) {
    net->to(setting.dtype);
    const optim::StepOptions cycle{.accumulate = steps};
    if (setting.sgd) {
      optimizer =
          std::make_unique<optim::SGD>(net->parameters(), optim::SGDOptions{.lr = 1e-3}, cycle);
    } else {
      optimizer =
          std::make_unique<optim::Adam>(net->parameters(), optim::AdamOptions{.lr = 1e-3}, cycle);
    }
    batches.begin_epoch(0);
  }

  void step() {
    for (std::int64_t i = 0; i < micro_steps; ++i) {
      const auto [x, y] = batches.next(micro);
      optimizer->backward(cross_entropy((*net)(x), y));
      optimizer->step();
    }
  }
  /// Must be called before a step: begins the next epoch if this one has too few samples left.
  void rewind() {
    if (batches.remaining() < micro * micro_steps) batches.begin_epoch(++epoch);
  }

  std::int64_t micro, micro_steps, epoch = 0;
  data::ResidentBatches batches;
  std::unique_ptr<nn::Module> net;
  std::unique_ptr<optim::Optimizer> optimizer;
};

}  // namespace

data::LabelledImages random_images(std::int64_t count) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count) * 784), labels;
  std::uint64_t state = 1;
  for (auto& p : pixels) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    p = static_cast<std::uint8_t>(state >> 56);
  }
  for (std::int64_t i = 0; i < count; ++i)
    labels.push_back(static_cast<std::uint8_t>(pixels[static_cast<std::size_t>(i) * 784] % 10));
  return {tensor(pixels, {count, 28, 28}, Device::cpu()), tensor(labels, {count}, Device::cpu())};
}

void measure_training(const std::string& work, const TrainingSetting& setting,
                      const MakeModel& make_model, const data::LabelledImages& set,
                      std::int64_t batch, std::int64_t micro_steps) {
  Training t(setting, make_model(), set, batch, micro_steps);
  const auto uncaptured = device_us([&] {
    t.rewind();
    t.step();
  });
  t.batches.begin_epoch(++t.epoch);
  Replayed graph([&] { t.step(); });
  std::fprintf(stderr, "%s %s: %s\n", work.c_str(), setting.name, graph.summary().c_str());
  const auto captured = device_us([&] {
    t.rewind();
    graph.replay();
  });
  report({.work = work,
          .mode = "step",
          .dtype = setting.name,
          .values = captured,
          .nodes = graph.nodes()});
  report({.work = work, .mode = "uncaptured", .dtype = setting.name, .values = uncaptured});
  if (micro_steps == 1) {
    t.batches.begin_epoch(++t.epoch);
    report({.work = work + "_replay_host",
            .mode = "graph",
            .dtype = setting.name,
            .values = host_ns([&] {
              t.rewind();
              graph.replay();
            }),
            .unit = "ns",
            .nodes = graph.nodes()});
  }
  // Counts the waits of the steps themselves; the clocks wait through events and synchronize().
  const std::uint64_t waits = host_waits();
  t.rewind();
  graph.replay();
  report({.work = work + "_waits",
          .mode = "step",
          .dtype = setting.name,
          .values = {static_cast<double>(host_waits() - waits)},
          .unit = "count"});
  const double weights = norm(t.net->parameters()[0]).item();
  if (!std::isfinite(weights)) throw Error(work.c_str(), "the training has diverged");
}

}  // namespace bench
