// Orders of a Loader that are not plain permutations: by weights, and by length.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "data/files.h"
#include "data/loader_sets.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using data::Loader;
using data::LoaderOptions;

namespace {

using Ints = std::vector<std::int64_t>;

Ints random_lengths(std::size_t n) {
  testing::Rng rng(5);
  Ints lengths;
  for (std::size_t i = 0; i < n; ++i) lengths.push_back(1 + rng.below(500));
  return lengths;
}

/// Elements of the batches of an epoch, each sample padded to the longest of its batch.
std::int64_t padded_size(Loader& loader, const Ints& lengths, std::int64_t epoch) {
  std::int64_t total = 0;
  for (const auto& batch : loader.epoch(epoch)) {
    std::int64_t longest = 0;
    for (const std::int64_t id : batch.ids.to_vector<std::int64_t>())
      longest = std::max(longest, lengths[static_cast<std::size_t>(id)]);
    total += longest * batch.size();
  }
  return total;
}

/// The same ids for any threads, and from any batch on.
void check_pure(const LoaderOptions& options, std::int64_t n) {
  const auto with = [&](int workers, int prefetch) {
    LoaderOptions o = options;
    o.workers = workers;
    o.prefetch = prefetch;
    return Loader(numbered_set(n), o);
  };
  Loader plain = with(0, 0), first = with(0, 0);
  const Ints zero = ids_of(plain, 0), one = ids_of(plain, 1);
  CHECK(zero != one);
  for (const int workers : {1, 3}) {
    Loader loader = with(workers, 5);
    CHECK(ids_of(loader, 0) == zero);
    CHECK(ids_of(loader, 1) == one);
    CHECK(ids_of(loader, 0) == zero);
  }
  for (const auto& batch : first.epoch(1)) {
    Loader resumed = with(2, 2);
    resumed.seek(batch.position);
    const Ints rest(one.begin() + batch.position.sample, one.end());
    REQUIRE(ids_of(resumed, 1) == rest);
  }
}

}  // namespace

TEST_CASE("loader: samples come as often as their weights say, and never with weight 0", "[host]") {
  const std::vector<double> weights = {1, 0, 2.5, 0.5, 4, 0, 0};
  const std::int64_t n = 7, epochs = 3000;
  Loader loader(numbered_set(n), {.batch = 7, .shuffle = true, .seed = 2, .weights = weights});
  std::vector<std::int64_t> counts(7, 0);
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
    for (const std::int64_t id : ids_of(loader, epoch)) ++counts[static_cast<std::size_t>(id)];
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double p = weights[i] / 8, all = static_cast<double>(n * epochs);
    CAPTURE(i, counts[i], p * all);
    // Five standard deviations of a binomial distribution; 0 where p is.
    CHECK(std::abs(static_cast<double>(counts[i]) - p * all) <= 5 * std::sqrt(all * p * (1 - p)));
  }
}

TEST_CASE("[S31] loader: draws by weight depend on seed, epoch and position alone", "[host]") {
  std::vector<double> weights;
  for (int i = 0; i < 45; ++i) weights.push_back(i % 4);
  check_pure({.batch = 6, .shuffle = true, .seed = 11, .weights = weights}, 45);
  LoaderOptions both{.batch = 6, .shuffle = true, .seed = 11, .weights = weights};
  both.lengths = random_lengths(45);
  both.window = 3;
  check_pure(both, 45);
}

TEST_CASE("[S31] loader: batches by length have each sample once, from any position", "[host]") {
  const std::int64_t n = 1003;
  const bool drop_last = GENERATE(false, true);
  const Ints lengths = random_lengths(static_cast<std::size_t>(n));
  const LoaderOptions options{.batch = 8,
                              .shuffle = true,
                              .seed = 3,
                              .lengths = lengths,
                              .window = 16,
                              .drop_last = drop_last};
  Loader loader(numbered_set(n), options);
  for (const std::int64_t epoch : {0, 1}) {
    Ints ids = ids_of(loader, epoch);
    CHECK(static_cast<std::int64_t>(ids.size()) == (drop_last ? 1000 : 1003));
    CHECK(std::set<std::int64_t>(ids.begin(), ids.end()).size() == ids.size());
  }
  LoaderOptions plain = options;
  plain.lengths.clear();
  Loader unsorted(numbered_set(n), plain);
  std::int64_t tokens = 0;
  for (const std::int64_t id : ids_of(loader, 0)) tokens += lengths[static_cast<std::size_t>(id)];
  const std::int64_t padded = padded_size(loader, lengths, 0);
  CAPTURE(tokens, padded, padded_size(unsorted, lengths, 0));
  CHECK(padded < tokens + tokens / 10);
  CHECK(padded_size(unsorted, lengths, 0) > tokens + tokens / 2);
  if (!drop_last)
    check_pure({.batch = 4, .shuffle = true, .lengths = random_lengths(50), .window = 3}, 50);
}

TEST_CASE("loader: without shuffle, each window is in the order of lengths", "[host]") {
  Loader loader(numbered_set(7), {.batch = 2, .lengths = {5, 1, 3, 4, 9, 9, 0}, .window = 2});
  CHECK(ids_of(loader, 0) == Ints{1, 2, 3, 0, 4, 5, 6});
  CHECK(ids_of(loader, 1) == Ints{1, 2, 3, 0, 4, 5, 6});
}

TEST_CASE("loader: padded batches by length", "[host]") {
  const Ints lengths = {1, 6, 2, 6, 1, 2};
  const data::Dataset set(6, [&](std::int64_t i) {
    return data::Sample{full({lengths[static_cast<std::size_t>(i)]}, static_cast<double>(i), f32)};
  });
  Loader loader(set, {.batch = 2, .lengths = lengths, .workers = 2, .pad = true});
  std::vector<Shape> shapes;
  for (const auto& batch : loader) shapes.push_back(batch[0].shape());
  CHECK(shapes == std::vector<Shape>{{2, 1}, {2, 2}, {2, 6}});
}

TEST_CASE("loader: weights and lengths that make no sense are refused", "[host]") {
  const auto refused = [](LoaderOptions o, const std::string& why) {
    CHECK_THROWS_WITH(Loader(numbered_set(3), o), contains(why));
  };
  refused({.shuffle = true, .weights = {1, 1}}, "2 weights for a set of 3 samples");
  refused({.weights = {1, 1, 1}}, "weights are for a random order; hint: set shuffle");
  refused({.shuffle = true, .weights = {1, -1, 1}}, "the weight of sample 1 is -1");
  refused({.shuffle = true, .weights = {1, NAN, 1}}, "the weight of sample 1 is nan");
  refused({.shuffle = true, .weights = {0, 0, 0}}, "the sum of the weights is 0");
  refused({.shuffle = true, .weights = {1e308, 1e308, 1}}, "the sum of the weights is inf");
  refused({.lengths = {1}}, "1 lengths for a set of 3 samples");
  refused({.window = 0}, "window is 0");
  refused({.batch = std::int64_t{1} << 62, .lengths = {1, 1, 1}, .window = 4},
          "a window of 4 batches");
}

TEST_CASE("[S33] loader: a saved position is refused in another order", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("run.safetensors");
  const Ints lengths = random_lengths(20);
  Loader saved(numbered_set(20), {.batch = 4, .shuffle = true, .lengths = lengths});
  saved.seek({2, 8});
  io::save_run(path, {saved});
  Loader same(numbered_set(20), {.batch = 4, .shuffle = true, .lengths = lengths, .workers = 2});
  io::load_run(path, {same});
  CHECK(same.position() == data::LoaderPosition{2, 8});
  Ints others = lengths;
  others[7] += 1;
  for (const LoaderOptions& other :
       {LoaderOptions{.batch = 5, .shuffle = true, .lengths = lengths},
        LoaderOptions{.batch = 4, .shuffle = true, .lengths = others},
        LoaderOptions{.batch = 4, .shuffle = true},
        LoaderOptions{.batch = 4, .shuffle = true, .weights = std::vector<double>(20, 1.0)}}) {
    Loader wrong(numbered_set(20), other);
    CHECK_THROWS_WITH(io::load_run(path, {wrong}), contains("loader.order"));
    CHECK(wrong.position() == data::LoaderPosition{});
  }
}
