// Augmented images: off is as if there were none, on is the same however the batches are taken.
#include <cmath>

#include "firn/data/resident_batches.h"
#include "firn/firn.h"
#include "firn/train/graph_step.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using namespace firn::testing;

namespace {

/// n images of 6 x 5 pixels, none black, on the CPU; the label of image i is i.
data::LabelledImages bright_set(std::int64_t n, std::int64_t channels = 1) {
  Rng rng(seed_of("bright") + static_cast<std::uint64_t>(n));
  std::vector<double> pixels, classes;
  for (std::int64_t i = 0; i < n * channels * 30; ++i)
    pixels.push_back(static_cast<double>(1 + rng.below(255)));
  for (std::int64_t i = 0; i < n; ++i) classes.push_back(static_cast<double>(i));
  const Layout layout = Layout::contiguous;
  return {make(pixels, channels == 1 ? Shape{n, 6, 5} : Shape{n, channels, 6, 5}, u8, layout,
               Device::cpu()),
          make(classes, {n}, i64, layout, Device::cpu())};
}

data::ImageOptions augmented() {
  return {
      .mean = 0.286f, .stddev = 0.353f, .augment = {.crop_padding = 2, .flip = 0.5, .erase = 0.25}};
}

data::LoaderOptions in_batches(std::int64_t batch, bool shuffle = true, std::uint64_t seed = 3) {
  return {.batch = batch, .shuffle = shuffle, .seed = seed};
}

/// All pixels of an epoch, in its order.
std::vector<double> pixels_of(data::Loader& loader, std::int64_t epoch) {
  loader.seek({epoch, 0});
  std::vector<double> all;
  for (const auto& batch : loader.epoch(epoch)) {
    const auto values = values_of(batch.x());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// The same of a set in its own order.
std::vector<double> pixels_of(const data::ImageDataset& set, std::int64_t epoch,
                              std::uint64_t seed = 3) {
  data::Loader loader(set, in_batches(16, false, seed));
  return pixels_of(loader, epoch);
}

}  // namespace

TEST_CASE("augmented batches: the same bits for Loader and ResidentBatches, and in any size") {
  const DType dtype = GENERATE(f32, f16, bf16, f64);
  const std::int64_t channels = GENERATE(1, 3);
  const auto set = bright_set(103, channels);
  auto options = augmented();
  options.dtype = dtype;
  options.flatten = channels == 1;
  const data::ImageDataset images(set, options);
  data::Loader loader(images, in_batches(10)), whole(images, in_batches(103));
  data::ResidentBatches resident(images, in_batches(10));
  for (const std::int64_t epoch : {0, 1, 1, 5}) {
    resident.begin_epoch(epoch);
    loader.seek({epoch, 0});
    for (const auto& batch : loader.epoch(epoch)) {
      const data::Batch b = resident.next();
      CHECK(b.x.shape() == batch.x().shape());
      expect_same("x", values_of(b.x), values_of(batch.x()));
      expect_same("y", values_of(b.y), values_of(batch.y()));
    }
    expect_same("epoch", pixels_of(whole, epoch), pixels_of(loader, epoch));
  }
}

TEST_CASE("augmented batches: drawn by seed, epoch and number, not by threads, order or history") {
  const auto set = bright_set(60);
  const data::ImageDataset images(set, augmented());
  const auto first = pixels_of(images, 0), second = pixels_of(images, 1);
  CHECK(first != second);
  CHECK(pixels_of(images, 0, 4) != first);
  const int threads = num_threads();
  for (const int n : {1, 2, 3}) {
    set_num_threads(n);
    CHECK(pixels_of(images, 1) == second);
    CHECK(pixels_of(images, 0) == first);
  }
  set_num_threads(threads);
  // Wherever an image comes, alone or among others, it is the same.
  data::Loader shuffled(images, in_batches(7));
  for (const auto& batch : shuffled.epoch(1)) {
    const auto got = values_of(batch.x());
    const auto ids = batch.ids.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i) * 30, from = ids[i] * 30;
      REQUIRE(std::vector<double>(got.begin() + at, got.begin() + at + 30) ==
              std::vector<double>(second.begin() + from, second.begin() + from + 30));
    }
  }
}

TEST_CASE("augmented batches: off is to the bit what batches were, whatever the ranges") {
  const auto set = bright_set(40);
  auto options = augmented();
  options.augment = {};
  const auto plain = pixels_of(data::ImageDataset(set, options), 2);
  options.augment = {.erase_area_min = 0.1, .erase_aspect_max = 7};
  CHECK(pixels_of(data::ImageDataset(set, options), 2) == plain);
  CHECK(!options.augment.on());
  // With an always erased pixel all but that one are as they were.
  options.augment = {.erase = 1,
                     .erase_area_min = 1. / 30,
                     .erase_area_max = 1. / 30,
                     .erase_aspect_min = 1,
                     .erase_aspect_max = 1};
  const auto erased = pixels_of(data::ImageDataset(set, options), 2);
  for (std::size_t image = 0; image < 40; ++image) {
    int differ = 0;
    for (std::size_t j = image * 30; j < image * 30 + 30; ++j) {
      differ += erased[j] != plain[j] ? 1 : 0;
      REQUIRE((erased[j] == plain[j] || erased[j] == 0));
    }
    REQUIRE(differ == 1);
  }
}

TEST_CASE("augmented batches: a crop shifts the image over black, a mirror turns it round") {
  const auto set = bright_set(50);
  auto options = augmented();
  options.augment = {};
  const auto plain = pixels_of(data::ImageDataset(set, options), 0);
  options.augment = {.flip = 1};
  const auto mirrored = pixels_of(data::ImageDataset(set, options), 0);
  for (std::size_t i = 0; i < plain.size(); ++i)
    REQUIRE(mirrored[i] == plain[i - i % 5 + 4 - i % 5]);

  options.augment = {.crop_padding = 4};
  const auto cropped = pixels_of(data::ImageDataset(set, options), 0);
  const double black = static_cast<double>((0.f - options.mean) / options.stddev);
  for (std::size_t image = 0; image < 50; ++image) {
    // Some shift explains every pixel; none of the set's own is black.
    int explained = 0;
    for (int top = -4; top <= 4; ++top) {
      for (int left = -4; left <= 4; ++left) {
        bool all = true;
        for (int r = 0; r < 6; ++r) {
          for (int c = 0; c < 5; ++c) {
            const int row = r + top, column = c + left;
            const bool inside = row >= 0 && row < 6 && column >= 0 && column < 5;
            const double want =
                inside ? plain[image * 30 + static_cast<std::size_t>(row * 5 + column)] : black;
            all = all && cropped[image * 30 + static_cast<std::size_t>(r * 5 + c)] == want;
          }
        }
        explained += all ? 1 : 0;
      }
    }
    REQUIRE(explained == 1);
  }
}

TEST_CASE("augmented batches: a replayed graph takes what eager calls take, epoch after epoch") {
  const auto set = bright_set(40);
  const data::ImageDataset images(set, augmented());
  data::ResidentBatches eager(images, in_batches(8)), recorded(images, in_batches(8));
  data::Batch out;
  graph::Step step(default_device(), [&] { out = recorded.next(); });
  std::vector<double> before;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    eager.begin_epoch(epoch);
    recorded.begin_epoch(epoch);
    for (int i = 0; i < 5; ++i) {
      const data::Batch want = eager.next();
      step();
      expect_same("x", values_of(out.x), values_of(want.x));
      expect_same("y", values_of(out.y), values_of(want.y));
      CHECK(values_of(out.x) != before);
      before = values_of(out.x);
    }
  }
}

TEST_CASE("augmented batches: what makes no sense is refused", "[host]") {
  const auto set = bright_set(4);
  const auto message = [&](const data::Augmentation& a, const data::LabelledImages& s) {
    return error_of([&] { data::ImageDataset(s, {.augment = a}); });
  };
  CHECK_THAT(message({.crop_padding = -1}, set),
             contains("crop_padding must be 0 or more, not -1"));
  CHECK_THAT(message({.crop_padding = 5}, set),
             contains("crop_padding 5 can put images of 6 x 5 pixels out of sight"));
  CHECK_THAT(message({.flip = 1.5}, set), contains("probabilities in [0, 1], not 1.5 and 0"));
  CHECK_THAT(message({.erase = -0.1}, set), contains("probabilities in [0, 1], not 0 and -0.1"));
  CHECK_THAT(message({.flip = std::nan("")}, set), contains("probabilities in [0, 1]"));
  CHECK_THAT(message({.erase = 1, .erase_area_min = 0}, set), contains("from 0 to 0.4"));
  CHECK_THAT(message({.erase = 1, .erase_area_max = 1.1}, set), contains("from 0.02 to 1.1"));
  CHECK_THAT(message({.erase = 1, .erase_area_min = 0.5}, set), contains("from 0.5 to 0.4"));
  CHECK_THAT(message({.erase = 1, .erase_aspect_min = 0}, set), contains("positive numbers"));
  CHECK_THAT(message({.erase = 1, .erase_aspect_min = 5}, set),
             contains("positive numbers, not 5"));
  const data::LabelledImages flat{zeros({4, 30}, u8, Device::cpu()), set.labels};
  CHECK_THAT(message({.flip = 0.5}, flat),
             contains("must be [n, height, width] or [n, channels, height, width]"));
  CHECK_NOTHROW(data::ImageDataset(flat));
  const data::ImageDataset small(
      data::Dataset(1,
                    [](std::int64_t) {
                      return data::Sample{zeros({4, 3}, u8), zeros({}, i64)};
                    }),
      {.augment = {.crop_padding = 3}});
  CHECK_THAT(error_of([&] { small[0]; }), contains("crop_padding 3 can put images of 4 x 3"));
}
