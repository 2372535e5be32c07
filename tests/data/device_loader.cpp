// A loader whose batches go to the default device, which copies them beside other work.
#include <numeric>
#include <vector>

#include "data/loader_sets.h"
#include "firn/firn.h"
#include "firn/runtime/storage.h"
#include "support/device/simulator.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using namespace firn::testing;
using data::Loader;

namespace {

/// On the simulator work runs as late as streams and events allow.
#ifdef FIRN_HAS_CUSIM
using Lazy = LazyStreams;
#else
struct Lazy {
  Lazy() {}  // NOLINT: a variable of it is used
};
#endif

/// x [n, 3] f32, y [n] i64 and a field without elements.
data::Dataset three_fields(std::int64_t n) {
  auto fields = numbered_fields(n);
  fields.push_back(zeros({n, 0}, f16, Device::cpu()));
  return data::TensorDataset(fields);
}

}  // namespace

TEST_CASE("loader: batches that are kept and computed with on a device are those of the host") {
  const Lazy lazy;
  const int workers = GENERATE(0, 1, 3);
  const data::LoaderOptions options{
      .batch = 7, .shuffle = true, .seed = 4, .workers = workers, .prefetch = 5};
  data::LoaderOptions at_home = options;
  at_home.device = Device::cpu();
  Loader loader(three_fields(60), options), host(three_fields(60), at_home);
  const Tensor w = rand({3, 64}, {.device = default_device()});
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<data::LoaderBatch> kept;
    std::vector<Tensor> products;
    for (const auto& batch : loader.epoch(epoch)) {
      Tensor y = matmul(batch.x(), w);
      for (int i = 0; i < 4; ++i) y = y + y;  // work that is under way when the next batch comes
      products.push_back(y);
      if (batch.position.sample % 2 == 0) kept.push_back(batch);
      CHECK(batch[2].shape() == Shape{batch.size(), 0});
    }
    std::size_t b = 0, k = 0;
    for (const auto& batch : host.epoch(epoch)) {
      const Tensor x = batch.x().to(default_device());
      expect_same("product", values_of(products[b++]), values_of(matmul(x, w) * 16.0));
      if (batch.position.sample % 2 != 0) continue;
      expect_same("x", values_of(kept[k].x()), values_of(batch.x()));
      expect_same("y", values_of(kept[k].y()), values_of(batch.y()));
      ++k;
    }
    CHECK(k == kept.size());
  }
}

TEST_CASE("loader: pinned memory is used again only when its copy is done") {
  const Lazy lazy;
  const int workers = GENERATE(0, 2);
  Loader loader(numbered_set(200), {.batch = 2, .workers = workers});
  for (const auto& batch : loader) static_cast<void>(batch);  // takes the pinned memory
  std::vector<Tensor> all;
  for (const auto& batch : loader) all.push_back(batch.y());
  std::vector<std::int64_t> got = cat(all).to_vector<std::int64_t>(), want(200);
  std::iota(want.begin(), want.end(), 0);
  CHECK(got == want);
}

TEST_CASE("loader: what was on its way to a device is forgotten by seek()") {
  const Lazy lazy;
  Loader loader(noisy_set(64), {.batch = 4, .shuffle = true, .seed = 1, .workers = 2});
  Loader straight(noisy_set(64), {.batch = 4, .shuffle = true, .seed = 1});
  for (const std::int64_t sample : {20, 8, 8, 60, 12}) {
    loader.seek({2, sample});
    straight.seek({2, sample});
    const auto a = loader.begin(), b = straight.begin();
    expect_same("x", values_of(a->x()), values_of(b->x()));
  }
}

TEST_CASE("loader: memory of batches on a device goes with the loop") {
  const auto before = memory_stats().of(Owner::data).current;
  {
    Loader loader(noisy_set(40), {.batch = 8, .workers = 2});
    std::size_t most = 0;
    for (const auto& batch : loader) {
      CHECK(batch.x().storage()->owner() == Owner::data);
      most = std::max(most, memory_stats().of(Owner::data).current - before);
    }
    CHECK(most > 0);
    if (!default_device().is_cpu()) {
      CHECK(most <= 2 * 2 * 512);  // two batches of two small fields
      CHECK(memory_stats().of(Owner::data).current == before);
    }
    auto it = loader.begin();
    ++it;
  }
  CHECK(memory_stats().of(Owner::data).current == before);
}

TEST_CASE("loader: a failure of a batch that was made ahead comes in its turn on a device too") {
  Loader loader(bad_set(24, {13}), {.batch = 4, .workers = 2});
  std::int64_t batches = 0;
  try {
    for (const auto& batch : loader) batches += batch.size() / 4;
    FAIL("no error");
  } catch (const data::SampleError& e) {
    CHECK(e.index() == 13);
  }
  CHECK(batches == 3);
  CHECK(loader.position() == data::LoaderPosition{0, 12});
  Loader skips(bad_set(24, {13}), {.batch = 4, .workers = 2, .bad_sample = data::BadSample::skip});
  CHECK(ids_of(skips, 0).size() == 23);
}

TEST_CASE("loader: a captured graph cannot take batches from the host", "[gpu]") {
  if (default_device().is_cpu()) return;
  Loader loader(numbered_set(8), {.batch = 4});
  CHECK_THAT(error_of([&] { graph::Graph::capture(default_device(), [&] { loader.begin(); }); }),
             contains("its batches come from the host's memory"));
  CHECK(loader.position() == data::LoaderPosition{});
}
