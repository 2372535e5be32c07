// Loaders and RollbackPoint: batches that were taken come again, to the bit.
#include "firn/runtime/rollback.h"

#include <optional>

#include "data/loader_sets.h"
#include "firn/firn.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using namespace firn::testing;
using data::Loader;
using data::LoaderPosition;

namespace {

std::uint64_t hash_of(const data::LoaderBatch& batch) {
  Hash hash;
  hash.add(batch);
  return hash.value();
}

data::ImageDataset random_images(std::int64_t n) {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < n * 20; ++i) pixels.push_back(static_cast<std::uint8_t>(i * 37));
  for (std::int64_t i = 0; i < n; ++i) labels.push_back(i);
  return data::ImageDataset(data::LabelledImages{tensor(pixels, {n, 4, 5}, Device::cpu()),
                                                 tensor(labels, {n}, Device::cpu())},
                            {.augment = {.flip = 0.5}});
}

}  // namespace

TEST_CASE("[S22] loader: a loop goes on with the batch that it had when the point was made") {
  const int workers = GENERATE(0, 2);
  Loader loader(noisy_set(40), {.batch = 4, .shuffle = true, .seed = 1, .workers = workers});
  auto it = loader.epoch(0).begin();
  ++it;
  std::vector<std::uint64_t> first, again;
  RollbackPoint start;
  for (std::vector<std::uint64_t>* hashes : {&first, &again}) {
    REQUIRE(loader.position() == LoaderPosition{0, 8});
    hashes->push_back(hash_of(*it));
    for (int i = 0; i < 3; ++i) hashes->push_back(hash_of(*++it));
    REQUIRE(loader.position() == LoaderPosition{0, 20});
    start.roll_back();
  }
  CHECK(again == first);
  // Without the point the loop goes on too.
  CHECK(hash_of(*++it) == first[1]);
}

TEST_CASE("[S22] loader: a loop that came to its end, a seek and a loop of its own are undone") {
  Loader loader(numbered_set(10), {.batch = 4, .shuffle = true, .seed = 2});
  auto it = loader.epoch(3).begin();
  const std::uint64_t first = hash_of(*it), second = hash_of(*++it);
  {
    RollbackPoint outer;
    ++it;
    {
      RollbackPoint inner;
      ++it;
      CHECK(it == loader.end());
      CHECK(loader.position() == LoaderPosition{4, 0});
      inner.roll_back();
      CHECK(it != loader.end());
      CHECK(loader.position() == LoaderPosition{3, 10});
      loader.seek({9, 5});
      CHECK(ids_of(loader, 1).size() == 10);
    }
    CHECK(it == loader.end());
    CHECK_THROWS_WITH(*it, contains("this loop has ended"));
    CHECK_THROWS_WITH(++it, contains("another loop has moved the loader"));
    outer.roll_back();
  }
  CHECK(loader.position() == LoaderPosition{3, 8});
  CHECK(hash_of(*it) == second);
  CHECK(first != second);
  ++it;
  ++it;
  CHECK(it == loader.end());
  CHECK_THROWS_WITH(++it, contains("this loop has come to its end"));
}

TEST_CASE("[S22] loader: a loop that began in the work is at its end once that is undone") {
  Loader loader(noisy_set(12), {.batch = 4, .shuffle = true, .seed = 2});
  std::optional<Loader::Iterator> it;
  std::vector<std::uint64_t> first, again;
  RollbackPoint start;
  for (std::vector<std::uint64_t>* hashes : {&first, &again}) {
    for (int i = 0; i < 4; ++i) {  // into the next epoch
      if (!it || *it == loader.end()) it.emplace(loader.begin());
      hashes->push_back(hash_of(**it));
      ++*it;
    }
    start.roll_back();
    REQUIRE(*it == loader.end());
    CHECK_THROWS_WITH((*it)->x(), contains("this loop has ended, or was rolled back"));
  }
  CHECK(first == again);
  CHECK(loader.position() == LoaderPosition{});
}

TEST_CASE("[S22] ResidentBatches: the position and the order of the epoch are put back") {
  const data::ImageDataset set = random_images(23);
  const data::LoaderOptions options{.batch = 5, .shuffle = true, .seed = 3};
  data::ResidentBatches batches(set, options), untouched(set, options);
  for (data::ResidentBatches* b : {&batches, &untouched}) {
    b->begin_epoch(1);
    b->next();
  }
  {
    RollbackPoint start;
    batches.next(3);
    batches.begin_epoch(2);
    batches.next();
    start.roll_back();
    CHECK(batches.position() == LoaderPosition{1, 5});
    batches.next();
    start.roll_back();
  }
  CHECK(batches.remaining() == untouched.remaining());
  while (untouched.remaining() > 0) {
    const data::Batch want = untouched.next(), got = batches.next();
    expect_same("x", values_of(got.x), values_of(want.x));
    expect_same("y", values_of(got.y), values_of(want.y));
  }
  data::ResidentBatches fresh(set, options);
  {
    RollbackPoint start;
    fresh.begin_epoch(4);
    fresh.next();
    start.roll_back();
  }
  CHECK(fresh.position() == LoaderPosition{});
  data::ResidentBatches other(set, options);
  expect_same("first", values_of(fresh.next().x), values_of(other.next().x));
}

TEST_CASE("[S22] a replayed step that takes a batch is undone like a call") {
  const data::ImageDataset set = random_images(40);
  const data::LoaderOptions options{.batch = 8, .shuffle = true, .seed = 3};
  data::ResidentBatches batches(set, options), eager(set, options);
  data::Batch out;
  graph::Step step(default_device(), [&] { out = batches.next(); });
  batches.begin_epoch(0);
  eager.begin_epoch(0);
  std::vector<double> want;
  for (int i = 0; i < 3; ++i) {
    step();
    want = values_of(eager.next().x);
  }
  expect_same("third", values_of(out.x), want);
  RollbackPoint start;
  step();
  step();
  CHECK(batches.remaining() == 0);
  start.roll_back();
  CHECK(batches.remaining() == 16);
  step();
  expect_same("fourth", values_of(out.x), values_of(eager.next().x));
}

TEST_CASE("[S22] a cycle that overflows takes the same batches from a loader again") {
  const auto train = [](float scale) {
    manual_seed(4);
    nn::Linear net(3, 64);
    net.to(f16);
    optim::SGD opt(net.parameters(), {.lr = 0.01},
                   {.loss_scale = optim::LossScale::dynamic(
                        {.init = scale, .on_overflow = optim::OverflowPolicy::retry})});
    Loader loader(noisy_set(64), {.batch = 4, .shuffle = true, .seed = 7, .workers = 2});
    auto it = loader.begin();
    int calls = 0;
    for (int cycle = 0; cycle < 3; ++cycle) {
      opt.run_cycle(4, [&](std::int64_t) {
        ++calls;
        const Tensor x = it->x().to(f16), y = it->y();
        ++it;
        return cross_entropy(net(x), y);
      });
    }
    CHECK(loader.position() == LoaderPosition{0, 13 * 4});
    std::vector<double> weights = values_of(net.weight);
    weights.push_back(opt.loss_scale() < static_cast<double>(scale) ? 1 : 0);
    return std::pair{weights, calls};
  };
  const auto [calm, calls] = train(8);
  const auto [wild, more_calls] = train(0x1p20F);
  CHECK(calls == 12);
  CHECK(more_calls > calls);
  CHECK(wild.back() == 1);
  REQUIRE(calm.size() == wild.size());
  for (std::size_t i = 0; i + 1 < calm.size(); ++i) CHECK(wild[i] == Approx(calm[i]).margin(2e-3));
}
