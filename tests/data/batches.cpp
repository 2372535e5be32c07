// Batches: each sample once, in an order that depends on seed and epoch alone.
#include "firn/data/batches.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "data/matchers.h"
#include "firn/firn.h"

using namespace firn;
using namespace firn::test;

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

std::vector<std::int64_t> order_of(const data::Batches& batches, std::int64_t epoch) {
  std::vector<std::int64_t> order;
  for (auto& [x, y] : batches.epoch(epoch)) {
    const auto labels = y.to_vector<std::int64_t>();
    order.insert(order.end(), labels.begin(), labels.end());
  }
  return order;
}

std::vector<std::int64_t> counting(std::int64_t n) {
  std::vector<std::int64_t> v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), 0);
  return v;
}

}  // namespace

TEST_CASE("Batches: every sample once, the last batch short") {
  const data::Batches batches(numbered(103), {.batch_size = 10, .seed = 3});
  CHECK(batches.size() == 11);
  CHECK(batches.samples() == 103);
  std::vector<std::int64_t> sizes;
  for (auto& [x, y] : batches.epoch(0)) {
    CHECK(x.dtype() == f32);
    CHECK(y.dtype() == i64);
    CHECK(x.shape() == Shape{y.numel(), 6});
    sizes.push_back(y.numel());
  }
  CHECK(sizes == std::vector<std::int64_t>{10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 3});
  auto order = order_of(batches, 0);
  CHECK(order != counting(103));
  std::sort(order.begin(), order.end());
  CHECK(order == counting(103));
}

TEST_CASE("Batches: drop_last leaves out a short batch only") {
  const data::Batches ragged(numbered(25), {.batch_size = 10, .drop_last = true});
  CHECK(ragged.size() == 2);
  CHECK(ragged.samples() == 20);
  CHECK(order_of(ragged, 0).size() == 20);
  const data::Batches even(numbered(20), {.batch_size = 10, .drop_last = true});
  CHECK(even.size() == 2);
  const data::Batches small(numbered(5), {.batch_size = 10, .drop_last = true});
  CHECK(small.size() == 0);
  CHECK(order_of(small, 0).empty());
}

TEST_CASE("Batches: one batch, one sample, none") {
  CHECK(order_of(data::Batches(numbered(5), {.batch_size = 10}), 0).size() == 5);
  CHECK(order_of(data::Batches(numbered(1), {.batch_size = 1}), 0) == std::vector<std::int64_t>{0});
  const data::LabelledImages none{empty({0, 2, 3}, u8, Device::cpu()),
                                  empty({0}, i64, Device::cpu())};
  const data::Batches batches(none);
  CHECK(batches.size() == 0);
  CHECK(order_of(batches, 0).empty());
}

TEST_CASE("Batches: the order depends on seed and epoch, not on threads or history") {
  const auto set = numbered(200);
  const data::Batches a(set, {.batch_size = 7, .seed = 5});
  const data::Batches b(set, {.batch_size = 64, .seed = 5});
  const data::Batches c(set, {.batch_size = 7, .seed = 6});
  const auto e0 = order_of(a, 0);
  const auto e1 = order_of(a, 1);
  CHECK(e0 != e1);
  CHECK(order_of(a, 0) == e0);
  CHECK(order_of(b, 1) == e1);
  CHECK(order_of(c, 0) != e0);

  const int threads = num_threads();
  manual_seed(99);
  for (const int n : {1, 2, 3}) {
    set_num_threads(n);
    CHECK(order_of(a, 1) == e1);
  }
  set_num_threads(threads);
  // The default generator is not touched.
  CHECK(default_generator().get().offset == 0);
}

TEST_CASE("Batches: without shuffle, the set's own order") {
  CHECK(order_of(data::Batches(numbered(23), {.batch_size = 5, .shuffle = false}), 4) ==
        counting(23));
}

TEST_CASE("Batches: pixels become (p/255 - mean) / stddev in the rows of their labels") {
  const auto set = numbered(40);
  for (const bool flatten : {true, false}) {
    for (const auto& [mean, stddev] :
         std::vector<std::pair<float, float>>{{0.f, 1.f}, {0.286f, 0.353f}}) {
      const data::Batches batches(
          set, {.batch_size = 16, .flatten = flatten, .seed = 1, .mean = mean, .stddev = stddev});
      for (auto& [x, y] : batches.epoch(0)) {
        const std::int64_t n = y.numel();
        CHECK(x.shape() == (flatten ? Shape{n, 6} : Shape{n, 2, 3}));
        const auto values = x.to_vector<float>();
        const auto labels = y.to_vector<std::int64_t>();
        for (std::size_t i = 0; i < values.size(); ++i) {
          const auto pixel =
              static_cast<std::uint8_t>(7 * labels[i / 6] + static_cast<std::int64_t>(i % 6));
          REQUIRE(values[i] == Approx((pixel / 255.0 - mean) / stddev).epsilon(1e-6).margin(1e-6));
        }
      }
    }
  }
  // 255 is 1 exactly.
  const data::LabelledImages white{full({1, 1}, 255, u8, Device::cpu()),
                                   zeros({1}, i64, Device::cpu())};
  CHECK(data::Batches(white).epoch(0)[0].x.item() == 1.0);
}

TEST_CASE("Batches: a batch that is kept stays as it was") {
  const data::Batches batches(numbered(30), {.batch_size = 10, .shuffle = false});
  std::vector<data::Batch> kept;
  for (auto& batch : batches.epoch(0)) kept.push_back(batch);
  REQUIRE(kept.size() == 3);
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto& batch = kept[static_cast<std::size_t>(i)];
    CHECK(batch.y.to_vector<std::int64_t>().front() == 10 * i);
    CHECK(batch.x.to_vector<float>().front() == Approx((70 * i) % 256 / 255.0));
  }
}

TEST_CASE("Batches: once warm, no memory is taken from the system") {
  const data::Batches batches(numbered(6400), {.batch_size = 64});
  order_of(batches, 0);
  const auto before = memory_stats();
  order_of(batches, 1);
  const auto after = memory_stats();
  CHECK(after.system_allocations == before.system_allocations);
  CHECK(after.of(Owner::data).current == before.of(Owner::data).current);
}

TEST_CASE("Batches: an epoch outlives the object it came from") {
  data::Batches::Epoch epoch = data::Batches(numbered(12), {.batch_size = 5}).epoch(0);
  CHECK(epoch.size() == 3);
  CHECK(epoch[2].y.numel() == 2);
  CHECK_THROWS_WITH(epoch[3], contains("batch 3 of an epoch of 3"));
  CHECK_THROWS_AS(epoch[-1], Error);
}

TEST_CASE("Batches: what cannot be batched", "[host]") {
  const auto set = numbered(4);
  const auto message = [](data::LabelledImages s, const data::BatchOptions& o = {}) -> std::string {
    try {
      const data::Batches b(std::move(s), o);
      return {};
    } catch (const Error& e) {
      return e.what();
    }
  };
  CHECK_THAT(message({zeros({4, 2}, f32), set.labels}), contains("images must be u8"));
  CHECK_THAT(message({set.images, zeros({4}, f32)}), contains("labels must be u8, i32 or i64"));
  CHECK_THAT(message({set.images, zeros({5}, i64)}), contains("differ: 4 and 5"));
  CHECK_THAT(message({}), contains("undefined"));
  CHECK_THAT(message(set, {.batch_size = 0}), contains("batch_size must be at least 1, not 0"));
  CHECK_THAT(message(set, {.stddev = 0}), contains("stddev positive"));
  CHECK_THROWS_AS(data::Batches(set).epoch(-1), Error);
}

TEST_CASE("Batches: objects that were moved away say so") {
  data::Batches batches(numbered(5), {.batch_size = 2});
  auto epoch = batches.epoch(0);
  const data::Batches moved = std::move(batches);
  CHECK(moved.size() == 3);
  CHECK_THROWS_WITH(batches.size(), contains("these batches were moved away"));
  CHECK_THROWS_WITH(batches.samples(), contains("moved away"));
  CHECK_THROWS_WITH(batches.epoch(1), contains("moved away"));
  const auto moved_epoch = std::move(epoch);
  CHECK(moved_epoch[2].y.numel() == 1);
  CHECK_THROWS_WITH(epoch[0], contains("this epoch was moved away"));
  CHECK_THROWS_WITH(epoch.begin(), contains("this epoch was moved away"));

  data::ResidentBatches resident(numbered(5), {.batch_size = 2});
  const data::ResidentBatches there = std::move(resident);
  CHECK(there.size() == 3);
  CHECK_THROWS_WITH(resident.size(), contains("moved away"));
  CHECK_THROWS_WITH(resident.options(), contains("moved away"));
  CHECK_THROWS_WITH(resident.begin_epoch(0), contains("moved away"));
  CHECK_THROWS_WITH(resident.next(), contains("moved away"));
}

TEST_CASE("Batches: a batch larger than any set is one batch") {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const data::Batches batches(numbered(5), {.batch_size = most});
  CHECK(batches.size() == 1);
  CHECK(batches.epoch(0)[0].y.numel() == 5);
  CHECK(data::Batches(numbered(5), {.batch_size = most, .drop_last = true}).samples() == 0);
  data::ResidentBatches resident(numbered(5), {.batch_size = most});
  CHECK(resident.size() == 1);
  resident.begin_epoch(0);
  CHECK(resident.next().y.numel() == 5);
}
