// However a batch is cut into micro-batches, the step is the same to rounding: over a whole epoch
// with its short last batch, and for random ragged cuts with labels that do not count and classes
// that count unequally.
#include <algorithm>

#include "semantics/mlp.h"
#include "support/device/slow_device.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

using Sizes = std::vector<std::int64_t>;

// Weights after an epoch in batches of 64, each cut into micro-batches of `sizes`. Of the last,
// shorter batch the sizes are taken until it is used up: 2 of 4 micro-steps, or 3 short ones.
std::vector<double> weights_after_epoch(const data::LabelledImages& set, DType dtype,
                                        const Sizes& sizes) {
  const Mlp net(784, 32, 10, dtype);
  data::Loader batches(data::ImageDataset(set, {.flatten = true}),
                       {.batch = 64, .shuffle = true, .seed = 1});
  optim::SGD opt(net.parameters(), {.lr = 0.02, .momentum = 0.9, .weight_decay = 1e-4},
                 {.accumulate = static_cast<std::int64_t>(sizes.size())});
  std::int64_t seen = 0, whole_cycles = 0;
  for (const auto& batch : batches.epoch(0)) {
    const Tensor &x = batch.x(), &y = batch.y();
    std::int64_t at = 0;
    for (const std::int64_t size : sizes) {
      const std::int64_t to = std::min(at + size, y.numel());
      if (at == to) break;
      opt.backward(cross_entropy(net(x.slice(0, at, to)), y.slice(0, at, to)));
      at = to;
      const optim::StepReport report = opt.step();
      if (report.applied()) REQUIRE(report.weight() == static_cast<double>(y.numel()));
      whole_cycles += report.applied() ? 1 : 0;
    }
    seen += y.numel();
  }
  const optim::StepReport last = opt.flush();
  REQUIRE(last.applied_steps() == batches.batches());
  if (last.applied()) REQUIRE(last.weight() == static_cast<double>(set.size() % 64));
  REQUIRE(whole_cycles + (last.applied() ? 1 : 0) == batches.batches());
  REQUIRE(seen == set.size());
  return weights_of(net.parameters());
}

void check_epoch(const data::LabelledImages& set) {
  REQUIRE(set.size() % 64 == 32);
  for (const auto& [dtype, bound] : {std::pair{f64, 1e-10}, std::pair{f32, 1e-4}}) {
    CAPTURE(to_string(dtype));
    const std::vector<double> whole = weights_after_epoch(set, dtype, {64});
    const double learned = default_device().is_cpu() ? 0.05 : 0.01;  // from fewer images
    CHECK(distance(whole, weights_of(Mlp(784, 32, 10, dtype).parameters())) > learned);
    CHECK(distance(weights_after_epoch(set, dtype, {16, 16, 16, 16}), whole) <= bound);
    CHECK(distance(weights_after_epoch(set, dtype, {5, 11, 48}), whole) <= bound);
  }
}

TEST_CASE("[S02][S04][S29] an epoch with a short last batch, cut 64, 4 x 16 and 5 + 11 + 48") {
  check_epoch(generated_images((default_device().is_cpu() ? 3 * 640 : 320) + 32));
}

TEST_CASE("[S02][S04][S29] the same over the 60,000 images of FashionMNIST", "[host]") {
  const auto set = real_images();
  if (!set) {
    WARN("FashionMNIST is not installed: only the generated images were used");
    return;
  }
  check_epoch(*set);
}

// 200 cuts of a batch of 64 rows, a fifth of which do not count, under class weights.
TEST_CASE("[S02][S03][S29] 200 random ragged cuts with ignored labels and class weights") {
  Rng rng(17);
  const Tensor class_weights = make({0.5, 2, 1, 0.25, 3}, {5});
  double worst = 0;
  const int cuts = default_device().is_cpu() ? 200 : 10;
  for (int i = 0; i < cuts; ++i) {
    const Tensor x = make(rng.uniforms(64 * 9, -1, 1), {64, 9});
    std::vector<double> labels;
    for (int k = 0; k < 64; ++k) labels.push_back(rng.below(5) == 0 ? -1 : double(rng.below(5)));
    const Tensor y = make(labels, {64}, i64);
    Sizes ragged;
    for (std::int64_t left = 64; left > 0; left -= ragged.back())
      ragged.push_back(1 + rng.below(std::min<std::int64_t>(left, 1 + rng.below(40))));

    const auto run = [&](const Sizes& sizes) {
      const Mlp net(9, 12, 5, f64, static_cast<std::uint64_t>(i));
      optim::AdamW opt(net.parameters(), {.lr = 0.01, .eps = 1e-3, .weight_decay = 0.1});
      for (int step = 0; step < 2; ++step) {
        std::int64_t at = 0;
        for (const std::int64_t n : sizes) {
          opt.backward(cross_entropy(net(x.slice(0, at, at + n)), y.slice(0, at, at + n),
                                     {.ignore_index = -1, .class_weights = class_weights}));
          at += n;
        }
        REQUIRE(at == 64);
        REQUIRE(opt.step());
      }
      return weights_of(net.parameters());
    };
    worst = std::max(worst, distance(run(ragged), run({64})));
  }
  CHECK(worst <= 1e-12);
}

TEST_CASE("[S29] an uneven cut gives the same bits again, with one thread and with two", "[once]") {
  const data::LabelledImages set = generated_images(160);
  for (const DType dtype : {f32, f16, bf16})
    for (const bool stochastic : {false, true}) {
      if (stochastic && dtype == f32) continue;
      if (on_slow_device() && stochastic != (dtype == bf16)) continue;
      CAPTURE(to_string(dtype), stochastic);
      const auto run = [&](int threads) {
        const Threads guard(threads);
        const Mlp net(784, 64, 10, dtype);
        optim::AdamW opt(net.parameters(), {.lr = 1e-3},
                         {.accumulate = 3,
                          .clip_norm = 1,
                          .loss_scale = optim::LossScale::dynamic({.growth_interval = 2}),
                          .ema = 0.9,
                          .stochastic_rounding = stochastic});
        data::Loader batches(data::ImageDataset(set, {.flatten = true}),
                             {.batch = 80, .shuffle = true, .seed = 2});
        for (std::int64_t epoch = 0; epoch < 3; ++epoch)
          for (const auto& batch : batches.epoch(epoch))
            for (const auto& [from, to] : {std::pair{0, 7}, std::pair{7, 31}, std::pair{31, 80}}) {
              opt.backward(
                  cross_entropy(net(batch.x().slice(0, from, to)), batch.y().slice(0, from, to)));
              opt.step();
            }
        return bits_of_training(opt) + bits_of(state_of(opt, "step_state")) +
               bits_of(state_of(opt, "loss_scale"));
      };
      const Bits first = run(1);
      CHECK(run(1) == first);
      CHECK(run(2) == first);
    }
}

TEST_CASE("[S29] models in f16 and bf16 follow f32 however a batch is cut") {
  const data::LabelledImages set = generated_images(640);
  const std::vector<double> exact = weights_after_epoch(set, f32, {64});
  const std::vector<double> start = weights_of(Mlp(784, 32, 10, f32).parameters());
  for (const auto& [dtype, unit] : {std::pair{f16, 0x1p-11}, std::pair{bf16, 0x1p-8}})
    for (const Sizes& sizes : {Sizes{64}, {16, 16, 16, 16}, {5, 11, 48}}) {
      CAPTURE(to_string(dtype), sizes.size());
      CHECK(distance(weights_after_epoch(set, dtype, sizes), exact) <= 4 * unit);
    }
  CHECK(distance(exact, start) > 0.02);
}

}  // namespace
}  // namespace firn::testing
