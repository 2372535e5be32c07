// ResidentBatches: the batches of a Loader, from a set on the default device.
#include "firn/data/resident_batches.h"

#include <utility>

#include "firn/firn.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using namespace firn::testing;

namespace {

/// n images of 4x5 random pixels with labels in [0, 10), on the CPU.
data::LabelledImages random_set(std::int64_t n, DType labels = u8) {
  Rng rng(seed_of("resident") + static_cast<std::uint64_t>(n));
  std::vector<double> pixels, classes;
  for (std::int64_t i = 0; i < n * 20; ++i) pixels.push_back(static_cast<double>(rng.below(256)));
  for (std::int64_t i = 0; i < n; ++i) classes.push_back(static_cast<double>(rng.below(10)));
  const Layout layout = Layout::contiguous;
  return {make(pixels, {n, 4, 5}, u8, layout, Device::cpu()),
          make(classes, {n}, labels, layout, Device::cpu())};
}

}  // namespace

TEST_CASE("ResidentBatches: the order, bits and sizes of a Loader, epoch after epoch") {
  const DType dtype = GENERATE(f32, f16, bf16);
  const bool shuffle = GENERATE(true, false);
  const bool drop_last = GENERATE(true, false);
  for (const DType labels : {u8, i64}) {
    const data::ImageDataset set(
        random_set(103, labels),
        {.mean = 0.286f, .stddev = 0.353f, .flatten = labels == u8, .dtype = dtype});
    const data::LoaderOptions options{
        .batch = 10, .shuffle = shuffle, .seed = 3, .drop_last = drop_last};
    data::Loader loader(set, options);
    data::ResidentBatches resident(set, options);
    CHECK(resident.batches() == loader.batches());
    CHECK(resident.samples() == loader.samples());
    CHECK(resident.order_description() == loader.order_description());
    CHECK(resident.remaining() == resident.samples());  // at the start of epoch 0
    for (const std::int64_t epoch : {0, 1, 4, 1}) {
      resident.begin_epoch(epoch);
      std::int64_t left = resident.samples();
      for (const auto& batch : loader.epoch(epoch)) {
        REQUIRE(resident.remaining() == left);
        CHECK(resident.next_size() == batch.size());
        const data::Batch b = resident.next();
        CHECK(resident.position() == batch.position);
        CHECK(b.x.device() == default_device());
        CHECK(b.x.dtype() == dtype);
        CHECK(b.y.dtype() == i64);
        CHECK(b.x.shape() == batch.x().shape());
        expect_same("x", values_of(b.x), values_of(batch.x()));
        expect_same("y", values_of(b.y), values_of(batch.y()));
        left -= batch.size();
      }
      CHECK(resident.remaining() == 0);
      CHECK(left == 0);
    }
  }
}

TEST_CASE("ResidentBatches: weights, lengths and sets that decode are as in a Loader") {
  const auto set = random_set(40);
  data::LoaderOptions options{.batch = 6, .shuffle = true, .seed = 2};
  const int kind = GENERATE(0, 1, 2);
  for (std::int64_t i = 0; i < 40 && kind > 0; ++i) {
    if (kind == 1) options.weights.push_back(static_cast<double>(i % 7));
    if (kind == 2) options.lengths.push_back(i * i % 11);
  }
  options.window = 3;
  const data::Dataset each(40, [set](std::int64_t i) {
    return data::Sample{set.images[i].clone(), set.labels[i].clone()};
  });
  const data::ImageOptions image{.augment = {.crop_padding = 1, .flip = 0.5}};
  const data::ImageDataset decoded(each, image), stored(set, image);
  data::Loader loader(decoded, options);
  data::ResidentBatches first(decoded, options), second(stored, options);
  for (const std::int64_t epoch : {1, 0}) {
    first.begin_epoch(epoch);
    second.begin_epoch(epoch);
    for (const auto& batch : loader.epoch(epoch)) {
      const data::Batch a = first.next(), b = second.next();
      expect_same("x", values_of(a.x), values_of(batch.x()));
      expect_same("y", values_of(a.y), values_of(batch.y()));
      expect_same("x", values_of(b.x), values_of(batch.x()));
    }
  }
}

TEST_CASE("[S31] ResidentBatches: a run that a Loader began goes on, and the other way") {
  const data::ImageDataset set(random_set(30), {.augment = {.flip = 0.5}});
  const data::LoaderOptions options{.batch = 4, .shuffle = true, .seed = 6};
  data::Loader loader(set, options), later_loader(set, options);
  data::ResidentBatches resident(set, options), later(set, options);
  auto it = loader.epoch(2).begin();
  ++it;
  later.seek(loader.position());
  ++it;
  expect_same("x", values_of(later.next().x), values_of(it->x()));
  resident.begin_epoch(1);
  resident.next(10);
  later_loader.seek(resident.position());
  expect_same("x", values_of(resident.next().x), values_of(later_loader.begin()->x()));
}

TEST_CASE("ResidentBatches: batches of any size, an epoch left early, batches that are kept") {
  data::ResidentBatches resident(data::ImageDataset(random_set(50)), {.batch = 50});
  resident.begin_epoch(0);
  const data::Batch first = resident.next(7), second = resident.next(3);
  CHECK(resident.remaining() == 40);
  resident.begin_epoch(1);
  CHECK(resident.remaining() == 50);
  const data::Batch all = resident.next();
  const auto x = values_of(all.x), y = values_of(all.y);
  expect_same("first", values_of(first.x), {x.begin(), x.begin() + 140});
  expect_same("second", values_of(second.y), {y.begin() + 7, y.begin() + 10});
}

TEST_CASE("ResidentBatches: the set lies on the device as bytes, and a batch takes no more") {
  const Device device = default_device();
  const auto before = memory_stats(device).of(Owner::data).current;
  data::ResidentBatches resident(data::ImageDataset(random_set(1000)),
                                 {.batch = 10, .shuffle = true});
  const auto held = memory_stats(device).of(Owner::data).current - before;
  // Pixels, label, position in the order; on the CPU the pixels are the set's own.
  CHECK(held >= 1000 * (device.is_cpu() ? 8 + 8 : 20 + 8 + 8));
  CHECK(held <= 1000 * (20 + 8 + 8) + 4096);
  resident.begin_epoch(0);
  resident.next();
  const auto warm = memory_stats(device);
  while (resident.remaining() > 0) resident.next();
  resident.begin_epoch(1);
  while (resident.remaining() > 0) resident.next();
  CHECK(memory_stats(device).system_allocations == warm.system_allocations);
}

TEST_CASE("ResidentBatches: what cannot be taken") {
  const auto set = random_set(4);
  const auto message = [](auto&& fn) -> std::string {
    try {
      fn();
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  const auto refused = [&](const data::Dataset& s, const data::LoaderOptions& o = {}) {
    return message([&] { data::ResidentBatches(data::ImageDataset(s), o); });
  };
  const data::TensorDataset plain({set.images, set.labels});
  CHECK_THAT(refused(data::TensorDataset({set.images, set.images})),
             contains("labels must be u8, i32 or i64"));
  CHECK_THAT(refused(data::TensorDataset({set.images})), contains("but have 1 fields"));
  CHECK_THAT(refused(plain, {.workers = 1}), contains("workers and prefetch are 1 and 0"));
  CHECK_THAT(refused(plain, {.bad_sample = data::BadSample::skip}), contains("no meaning here"));
  CHECK_THAT(refused(plain, {.pad = true}), contains("no meaning here"));
  CHECK_THAT(refused(plain, {.batch = 0}), contains("at least 1 sample, not 0"));
  CHECK_THAT(refused(plain, {.weights = {1, 2, 3, 4}}), contains("set shuffle"));
  data::ResidentBatches resident{data::ImageDataset(set), {.batch = 3}};
  CHECK_THAT(message([&] { resident.next(0); }), contains("0 samples asked for"));
  CHECK_THAT(message([&] { resident.next(5); }), contains("5 samples asked for, 4 left"));
  CHECK(resident.next().y.numel() == 3);
  CHECK_THAT(message([&] { resident.next(2); }), contains("2 samples asked for, 1 left"));
  CHECK(resident.next().y.numel() == 1);
  CHECK_THROWS_AS(resident.next(), Error);
  CHECK_THAT(message([&] { resident.next(1); }), contains("begin_epoch()"));
  CHECK_THROWS_AS(resident.begin_epoch(-1), Error);
}

TEST_CASE("[S31] ResidentBatches: seek() goes on where position() was, with any size of batch") {
  const data::ImageDataset set(random_set(60),
                               {.augment = {.crop_padding = 1, .flip = 0.5, .erase = 0.5}});
  const bool drop_last = GENERATE(false, true);
  const auto options = [&](std::int64_t size) {
    return data::LoaderOptions{.batch = size, .shuffle = true, .seed = 9, .drop_last = drop_last};
  };
  data::ResidentBatches whole(set, options(7));
  CHECK(whole.position() == data::LoaderPosition{0, 0});
  whole.begin_epoch(3);
  whole.next();
  whole.next();
  REQUIRE(whole.position() == data::LoaderPosition{3, 14});
  data::ResidentBatches resumed(set, options(7)), wider(set, options(14));
  resumed.seek(whole.position());
  wider.seek(whole.position());
  CHECK(resumed.remaining() == whole.remaining());
  std::vector<double> pixels, all;
  while (whole.remaining() > 0) {
    const data::Batch want = whole.next(), got = resumed.next();
    expect_same("x", values_of(got.x), values_of(want.x));
    expect_same("y", values_of(got.y), values_of(want.y));
    for (const double v : values_of(want.x)) pixels.push_back(v);
  }
  while (wider.remaining() > 0)
    for (const double v : values_of(wider.next().x)) all.push_back(v);
  pixels.resize(std::min(pixels.size(), all.size()));
  expect_same("wider", all, pixels);
  CHECK(resumed.position() == whole.position());
  CHECK(whole.position().sample == whole.samples());

  resumed.seek({5, 60});  // behind a dropped last batch
  CHECK(resumed.remaining() == 0);
  CHECK_THROWS_WITH(resumed.seek({5, 61}), contains("sample 61 of an epoch of 60 samples"));
  CHECK_THROWS_WITH(resumed.seek({-1, 0}), contains("epoch -1"));
  CHECK(resumed.position() == data::LoaderPosition{5, 60});
}

TEST_CASE("[S31] between two batches a Loader and ResidentBatches go on alike, and drop the same") {
  const data::ImageDataset set(random_set(23));
  const bool drop_last = GENERATE(false, true);
  const data::LoaderOptions options{.batch = 4, .shuffle = true, .seed = 2, .drop_last = drop_last};
  for (std::int64_t sample = 0; sample <= 23; ++sample) {
    CAPTURE(sample);
    data::Loader loader(set, options);
    data::ResidentBatches resident(set, options);
    loader.seek({1, sample});
    resident.seek({1, sample});
    std::int64_t taken = 0;
    for (const auto& batch : loader) {
      REQUIRE(resident.next_size() == batch.size());
      CHECK((batch.size() == 4 || batch.position.sample == loader.samples()));
      taken += batch.size();
      expect_same("x", values_of(resident.next().x), values_of(batch.x()));
      CHECK(resident.position() == batch.position);
      CHECK(batch.position.sample <= loader.samples());
    }
    CHECK(taken == std::max<std::int64_t>(loader.samples() - sample, 0));
    CHECK(resident.remaining() == 0);
    CHECK(loader.position() == data::LoaderPosition{2, 0});
  }
}

TEST_CASE("[S31] ResidentBatches: the loop of the documentation goes on where a run was saved") {
  const data::ImageDataset set(random_set(10));
  const data::LoaderOptions options{.batch = 4, .shuffle = true, .seed = 5};
  const auto run = [&](data::LoaderPosition from) {
    data::ResidentBatches batches(set, options);
    batches.seek(from);
    std::vector<double> all;
    for (; batches.position().epoch < 3; batches.begin_epoch(batches.position().epoch + 1))
      while (batches.remaining() > 0)
        for (const double v : values_of(batches.next().x)) all.push_back(v);
    return all;
  };
  const std::vector<double> whole = run({});
  REQUIRE(whole.size() == 3 * 10 * 20);
  for (const data::LoaderPosition at : {data::LoaderPosition{1, 4}, {0, 10}, {2, 8}}) {
    const auto done = (at.epoch * 10 + at.sample) * 20;
    expect_same("rest", run(at), {whole.begin() + done, whole.end()});
  }
}

TEST_CASE("ResidentBatches: objects that were moved away say so") {
  data::ResidentBatches resident(data::ImageDataset(random_set(5)), {.batch = 2});
  const data::ResidentBatches there = std::move(resident);
  CHECK(there.batches() == 3);
  CHECK_THROWS_WITH(resident.batches(), contains("moved away"));
  CHECK_THROWS_WITH(resident.options(), contains("moved away"));
  CHECK_THROWS_WITH(resident.begin_epoch(0), contains("moved away"));
  CHECK_THROWS_WITH(resident.next(), contains("moved away"));
}

TEST_CASE("[S31] ResidentBatches: drop_last leaves out the same samples wherever a seek() goes") {
  data::ResidentBatches resident(data::ImageDataset(random_set(35)),
                                 {.batch = 8, .drop_last = true});
  for (const std::int64_t from : {0, 8, 18, 31, 32, 35}) {
    resident.seek({0, from});
    const std::int64_t left = std::max<std::int64_t>(32 - from, 0);
    CAPTURE(from);
    CHECK(resident.remaining() == left);
    std::int64_t taken = 0;
    while (resident.remaining() > 0) taken += resident.next().y.numel();
    CHECK(taken == left);
  }
}
