// Images as a data set: bytes become numbers, whatever the set below is made of.
#include "firn/data/images.h"

#include <utility>

#include "data/loader_sets.h"
#include "firn/firn.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using namespace firn::testing;

namespace {

/// n images of 2x3 pixels; pixel j of image i is (7 i + j) mod 256; the label of image i is i.
data::LabelledImages numbered(int n) {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  for (int i = 0; i < n; ++i) {
    labels.push_back(i);
    for (int j = 0; j < 6; ++j) pixels.push_back(static_cast<std::uint8_t>(7 * i + j));
  }
  const Device cpu = Device::cpu();
  return {tensor(pixels, {n, 2, 3}, cpu), tensor(labels, {n}, cpu)};
}

const data::Augmentation kAll{.crop_padding = 1, .flip = 0.5, .erase = 0.5, .erase_area_min = 0.2};

/// The same samples, one by one.
data::Dataset one_by_one(const data::LabelledImages& set) {
  return {set.size(), [set](std::int64_t i) {
            return data::Sample{set.images[i].clone(), set.labels[i].clone()};
          }};
}

}  // namespace

TEST_CASE("images: pixels become (p/255 - mean) / stddev in the rows of their labels") {
  const auto set = numbered(40);
  for (const bool flatten : {true, false}) {
    for (const auto& [mean, stddev] :
         std::vector<std::pair<float, float>>{{0.f, 1.f}, {0.286f, 0.353f}}) {
      data::Loader loader(
          data::ImageDataset(set, {.mean = mean, .stddev = stddev, .flatten = flatten}),
          {.batch = 16, .shuffle = true, .seed = 1});
      for (const auto& batch : loader.epoch(0)) {
        const std::int64_t n = batch.size();
        CHECK(batch.x().shape() == (flatten ? Shape{n, 6} : Shape{n, 2, 3}));
        CHECK(batch.x().dtype() == f32);
        CHECK(batch.y().dtype() == i64);
        const auto values = batch.x().to_vector<float>();
        const auto labels = batch.y().to_vector<std::int64_t>();
        CHECK(labels == batch.ids.to_vector<std::int64_t>());
        for (std::size_t i = 0; i < values.size(); ++i) {
          const auto pixel =
              static_cast<std::uint8_t>(7 * labels[i / 6] + static_cast<std::int64_t>(i % 6));
          REQUIRE(values[i] ==
                  Approx((pixel / 255.0 - static_cast<double>(mean)) / static_cast<double>(stddev))
                      .epsilon(1e-6)
                      .margin(1e-6));
        }
      }
    }
  }
  // 255 is 1 exactly.
  const data::LabelledImages white{full({1, 1}, 255, u8, Device::cpu()),
                                   zeros({1}, u8, Device::cpu())};
  CHECK(data::ImageDataset(white)[0][0].item() == 1.0);
}

TEST_CASE("images: a sample is the batch's row, in every dtype and epoch", "[host]") {
  const DType dtype = GENERATE(f32, f16, bf16, f64);
  const data::ImageDataset set(numbered(20), {.augment = kAll, .dtype = dtype});
  const std::vector<std::int64_t> ids = {3, 19, 3, 0};
  for (const std::int64_t epoch : {0, 7}) {
    const data::DrawContext context{5, epoch};
    const data::Sample batch = set.collect(ids, context);
    for (std::size_t row = 0; row < ids.size(); ++row) {
      const data::Sample sample = set.get(ids[row], context);
      CHECK(sample[0].shape() == Shape{2, 3});
      CHECK(sample[1].shape() == Shape{});
      CHECK(sample[1].item() == static_cast<double>(ids[row]));
      expect_same("x", values_of(sample[0]),
                  values_of(batch[0].select(0, static_cast<std::int64_t>(row))));
    }
  }
}

TEST_CASE("images: a set of functions, subsets or joined sets has the bits of one of tensors",
          "[host]") {
  const auto images = numbered(31);
  const data::ImageOptions options{.mean = 0.3f, .stddev = 0.4f, .augment = kAll};
  const data::LoaderOptions order{.batch = 7, .shuffle = true, .seed = 3};
  data::Loader tensors(data::ImageDataset(images, options), order);
  const std::uint64_t want = hash_of(tensors, 2);
  const data::TensorDataset plain({images.images, images.labels});
  const data::Dataset same[] = {
      plain, one_by_one(images), data::Subset(plain, 0, 31),
      data::Concat({data::Subset(one_by_one(images), 0, 9), data::Subset(plain, 9, 31)})};
  for (const data::Dataset& set : same) {
    for (const int workers : {0, 2}) {
      data::LoaderOptions threads = order;
      threads.workers = workers;
      data::Loader loader(data::ImageDataset(set, options), threads);
      CHECK(hash_of(loader, 2) == want);
    }
  }
  // An image is augmented by its number in the set that augments.
  const data::Subset part(data::ImageDataset(images, options), {30, 4});
  expect_same("subset", values_of(part.get(0, {3, 2})[0]),
              values_of(data::ImageDataset(images, options).get(30, {3, 2})[0]));
}

TEST_CASE("images: further fields pass as they are, and what a Map does below is augmented",
          "[host]") {
  const auto images = numbered(12);
  const Tensor weights = rand({12, 2}, {.device = Device::cpu()});
  const data::ImageDataset three(data::TensorDataset({images.images, images.labels, weights}));
  const data::Sample batch = three.collect(std::vector<std::int64_t>{11, 2});
  REQUIRE(batch.size() == 3);
  CHECK(batch[2].to_vector<float>() ==
        cat({weights.slice(0, 11, 12), weights.slice(0, 2, 3)}).to_vector<float>());
  const data::Map inverted(one_by_one(images), [](data::Sample s) {
    return data::Sample{(255.0 - s[0].to(f32)).to(u8), s[1]};
  });
  const data::ImageDataset set(inverted, {.augment = {.flip = 1}});
  CHECK(values_of(set[0][0]) == values_of(tensor<float>({253, 254, 255, 250, 251, 252}) / 255.0));
}

TEST_CASE("images: sets of one image, of none, and moved away", "[host]") {
  data::ImageDataset one(numbered(1));
  CHECK(one.size() == 1);
  const data::LabelledImages none{empty({0, 2, 3}, u8, Device::cpu()),
                                  empty({0}, i64, Device::cpu())};
  data::Loader loader{data::ImageDataset(none)};
  CHECK(loader.batches() == 0);
  data::ResidentBatches resident{data::ImageDataset(none)};
  resident.begin_epoch(0);
  CHECK(resident.remaining() == 0);
  const data::ImageDataset there = std::move(one);
  CHECK(there.options().stddev == 1);
  CHECK_THROWS_WITH(one.options(), contains("moved away"));
  CHECK_THROWS_WITH(data::ResidentBatches(one), contains("moved away"));
}

TEST_CASE("images: what makes no sense is refused", "[host]") {
  const auto set = numbered(4);
  const auto message = [](const data::LabelledImages& s, const data::ImageOptions& o = {}) {
    return error_of([&] { data::ImageDataset(s, o); });
  };
  CHECK_THAT(message({zeros({4, 2}, f32, Device::cpu()), set.labels}),
             contains("images must be u8"));
  CHECK_THAT(message({set.images, zeros({4}, f32)}), contains("labels must be u8, i32 or i64"));
  CHECK_THAT(message({set.images, zeros({5}, i64, Device::cpu())}),
             contains("numbers of images and labels differ"));
  CHECK_THAT(message({}), contains("undefined"));
  CHECK_THAT(message(set, {.stddev = 0}), contains("stddev positive"));
  CHECK_THAT(message(set, {.dtype = i64}), contains("x must be of a floating dtype"));
  CHECK_THAT(message({zeros({4, 0}, u8, Device::cpu()), set.labels}), contains("images are empty"));

  // What only a sample shows is said when it is taken, with its number.
  const data::ImageDataset floats(data::Dataset(3, [](std::int64_t) {
    return data::Sample{zeros({2, 2})};
  }));
  CHECK_THAT(error_of([&] { floats[1]; }), contains("images must be u8 [n, ...] on the CPU"));
  const data::ImageDataset bad(bad_set(5, {3}));
  data::Loader loader(bad, {.batch = 2});
  CHECK_THAT(error_of([&] {
               for (auto& batch : loader) static_cast<void>(batch);
             }),
             contains("images must be u8"));
  const data::ImageDataset uneven(data::Dataset(4, [](std::int64_t i) {
    return data::Sample{zeros({2, 2 + i / 3}, u8), zeros({}, i64)};
  }));
  CHECK_THAT(error_of([&] {
               uneven.collect(std::vector<std::int64_t>{1, 3});
             }),
             contains("field 0"));
  CHECK_THAT(error_of([&] { data::ResidentBatches{uneven}; }), contains("field 0"));
}
