// A Loader's threads: slow sets, loops that are left, loaders at once, kernels beside them, fork().
#include "firn/data/loader.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "data/loader_sets.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using data::Loader;
using data::Sample;
using firn::testing::Threads;
using firn::testing::values_of;

namespace {

data::LoaderOptions options_of(int workers, int prefetch = 0) {
  return {.batch = 7, .shuffle = true, .seed = 2, .workers = workers, .prefetch = prefetch};
}

}  // namespace

TEST_CASE("loader: a slow set: batches come in order, whichever thread is first",
          "[host][threads]") {
  Loader plain(bad_set(60, {}, true), options_of(0));
  const std::uint64_t expected = hash_of(plain, 0);
  for (const int workers : {1, 3, 8}) {
    Loader loader(bad_set(60, {}, true), options_of(workers));
    CHECK(hash_of(loader, 0) == expected);
  }
}

TEST_CASE("loader: loops that are left early, and loaders that end while threads work",
          "[host][threads]") {
  Loader plain(bad_set(60, {}, true), options_of(0));
  const std::uint64_t expected = hash_of(plain, 2);
  for (int round = 0; round < 20; ++round) {
    Loader loader(bad_set(60, {}, true), options_of(3));
    for (const auto& batch : loader) {
      CHECK(batch.size() == 7);
      break;
    }
    for (int i = 0; i < round % 3; ++i) loader.seek({round, i * 7});
    if (round % 4 == 0) CHECK(hash_of(loader, 2) == expected);
  }
  try {
    Loader loader(bad_set(60, {}, true), options_of(3));
    for (const auto& batch : loader) throw batch.size();
  } catch (const std::int64_t size) {
    CHECK(size == 7);
  }
}

TEST_CASE("loader: two loaders at once in one thread, and in two", "[host][threads]") {
  const auto set = noisy_set(100);
  Loader plain(set, options_of(0));
  const std::uint64_t expected = hash_of(plain, 0);
  Loader a(set, options_of(2)), b(set, options_of(2));
  Hash first, second;
  auto other = b.begin();
  for (const auto& batch : a) {
    first.add(batch);
    second.add(*other);
    ++other;
  }
  CHECK(first.value() == expected);
  CHECK(second.value() == expected);
  std::uint64_t in_thread = 0;
  std::thread thread([&] {
    Loader own(set, options_of(2));
    in_thread = hash_of(own, 0);
  });
  Loader own(set, options_of(2));
  CHECK(hash_of(own, 0) == expected);
  thread.join();
  CHECK(in_thread == expected);
}

TEST_CASE("loader: a training and its threads compute at once", "[host][threads]") {
  const Threads threads(2);
  const data::Map set(numbered_set(64), [](Sample s) {
    return Sample{matmul(s[0].reshape({3, 1}), s[0].reshape({1, 3})) * 1e-5, s[1]};
  });
  const auto run = [&](int workers) {
    manual_seed(1);
    nn::Sequential net{nn::Linear(9, 64), nn::Dropout(0.2), nn::Linear(64, 64)};
    optim::SGD opt(net.parameters(), {.lr = 0.01});
    Loader loader(set, options_of(workers));
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const auto& batch : loader) {
        opt.backward(cross_entropy(net(batch.x().reshape({-1, 9})), batch.y()));
        opt.step();
      }
    std::vector<double> weights;
    for (const Tensor& p : net.parameters())
      for (const double v : values_of(p)) weights.push_back(v);
    return weights;
  };
  const auto expected = run(0);
  CHECK(run(1) == expected);
  CHECK(run(3) == expected);
}

TEST_CASE(
    "loader: a worker's kernels run on its own thread, and no more batches are begun than asked "
    "for",
    "[host][threads]") {
  const Threads threads(4);
  std::mutex mutex;
  std::set<int> counts;
  std::set<std::thread::id> ids;
  std::atomic<int> taken{0};
  const data::Dataset set(40, [&](std::int64_t i) -> Sample {
    ++taken;
    const std::lock_guard lock(mutex);
    counts.insert(num_threads());
    ids.insert(std::this_thread::get_id());
    return {tensor(i)};
  });
  Loader loader(set, {.batch = 1, .workers = 2, .prefetch = 3});
  for (const auto& batch : loader) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(taken <= batch.position.sample + 3);
  }
  CHECK(taken == 40);
  CHECK(counts == std::set<int>{1});
  CHECK(ids.count(std::this_thread::get_id()) == 0);
  CHECK(ids.size() <= 2);
  CHECK(num_threads() == 4);
}

TEST_CASE("a scope limits the threads of one thread's kernels", "[host][threads]") {
  const Threads threads(3);
  {
    const NumThreadsScope two(2);
    CHECK(num_threads() == 2);
    const NumThreadsScope five(5);  // a scope cannot widen the one around it
    CHECK(num_threads() == 2);
    int other = 0;
    std::thread([&] { other = num_threads(); }).join();
    CHECK(other == 3);
  }
  CHECK(num_threads() == 3);
  CHECK_THROWS_AS(NumThreadsScope(0), Error);
}
