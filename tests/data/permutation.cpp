// Permutation: every number once, each order as likely as any other, for every size.
#include "firn/data/permutation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using data::Permutation;
using testing::error_of;

namespace {

std::vector<std::int64_t> all_of(const Permutation& order) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < order.size(); ++i) all.push_back(order[i]);
  return all;
}

bool is_permutation(std::vector<std::int64_t> all) {
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

/// Sum of (seen - expected)^2 / expected. Over k cells it is near k - 1, with deviation sqrt(2k).
double chi_square(const std::vector<int>& seen) {
  const double expected = static_cast<double>(std::accumulate(seen.begin(), seen.end(), 0)) /
                          static_cast<double>(seen.size());
  double sum = 0;
  for (const int n : seen) sum += (n - expected) * (n - expected) / expected;
  return sum;
}

/// Five deviations above and below: about one in a million by chance, and the seeds are fixed.
void check_uniform(const std::vector<int>& seen, int freedom) {
  const double chi = chi_square(seen);
  CAPTURE(seen.size(), chi);
  CHECK(std::abs(chi - freedom) < 5 * std::sqrt(2.0 * freedom));
}

}  // namespace

TEST_CASE("Permutation: every number once, for all sizes up to 300", "[host]") {
  for (std::int64_t n = 0; n <= 300; ++n)
    for (std::uint64_t seed = 0; seed < 4; ++seed)
      REQUIRE(is_permutation(all_of(Permutation(n, seed, 3))));
  for (const std::int64_t n : {65'535, 65'536, 65'537, 100'003})
    REQUIRE(is_permutation(all_of(Permutation(n, 1))));
}

TEST_CASE("Permutation: depends on size, seed and epoch alone", "[host]") {
  const auto first = all_of(Permutation(1000, 1, 0));
  CHECK(all_of(Permutation(1000, 1, 0)) == first);
  CHECK(all_of(Permutation(1000, 1, 1)) != first);
  CHECK(all_of(Permutation(1000, 2, 0)) != first);
  // Fixed for good: a saved position must mean the same samples in later versions.
  CHECK(std::vector<std::int64_t>(first.begin(), first.begin() + 5) ==
        std::vector<std::int64_t>{286, 86, 898, 986, 331});
  CHECK(Permutation(Permutation::kLargest, 1, 0)[0] == 3859539344196100646);
}

TEST_CASE("Permutation: all orders of up to six numbers are as likely", "[host]") {
  for (int n = 2, orders = 2; n <= 6; ++n, orders *= n) {
    std::map<std::vector<std::int64_t>, int> seen;
    for (int trial = 0; trial < orders * 60; ++trial)
      ++seen[all_of(Permutation(n, static_cast<std::uint64_t>(trial / 3), trial % 3))];
    std::vector<int> counts;
    for (const auto& [order, count] : seen) counts.push_back(count);
    REQUIRE(static_cast<int>(counts.size()) == orders);
    check_uniform(counts, orders - 1);
  }
}

TEST_CASE("Permutation: any number at any position, and any pair at any two", "[host]") {
  for (const std::size_t n : {10, 33, 64}) {
    std::vector<int> at_position(n * n), pair(n * n), distance(n * n);
    const int trials = static_cast<int>(n * n) * 40;
    for (int trial = 0; trial < trials; ++trial) {
      const auto order = all_of(
          Permutation(static_cast<std::int64_t>(n), static_cast<std::uint64_t>(trial), trial % 5));
      for (std::size_t i = 0; i < n; ++i) ++at_position[i * n + static_cast<std::size_t>(order[i])];
      const auto second = static_cast<std::size_t>(trial) % (n - 1) + 1;
      ++pair[static_cast<std::size_t>(order[0]) * n + static_cast<std::size_t>(order[second])];
      const auto step =
          static_cast<std::size_t>(order[1] - order[0] + static_cast<std::int64_t>(n)) % n;
      ++distance[static_cast<std::size_t>(order[2]) * n + step];
    }
    const int k = static_cast<int>(n);
    check_uniform(at_position, (k - 1) * (k - 1));
    std::vector<int> unequal, steps;  // a number is not its own neighbour
    for (std::size_t i = 0; i < n * n; ++i) {
      if (i / n != i % n) unequal.push_back(pair[i]);
      if (i % n != 0) steps.push_back(distance[i]);
    }
    check_uniform(unequal, k * (k - 1) - 1);
    check_uniform(steps, k * (k - 1) - 1);
  }
}

TEST_CASE("Permutation: neighbours of a large order are apart, in every part of it", "[host]") {
  const std::int64_t n = 1'000'000'007;
  const Permutation order(n, 5, 9);
  std::vector<int> value(100), step(100);
  for (std::int64_t i = 0; i < 100'000; ++i) {
    const std::int64_t at = i * 9'999, a = order[at], b = order[at + 1];
    ++value[static_cast<std::size_t>(a / (n / 100 + 1))];
    ++step[static_cast<std::size_t>((b - a + n) % n / (n / 100 + 1))];
  }
  check_uniform(value, 99);
  check_uniform(step, 99);
}

TEST_CASE("Permutation: sizes and positions that do not exist are refused", "[host]") {
  CHECK_THAT(error_of([] { Permutation(-1, 0); }), contains("n must be in [0, 2^62], not -1"));
  CHECK_THAT(error_of([] { Permutation(Permutation::kLargest + 1, 0); }), contains("2^62"));
  CHECK_THAT(error_of([] { Permutation(3, 0, -1); }), contains("epoch -1"));
  const Permutation order(3, 0);
  CHECK_THAT(error_of([&] { order.at(3); }), contains("position 3 of a permutation of 3"));
  CHECK_THAT(error_of([&] { order.at(-1); }), contains("position -1"));
  CHECK(order.at(2) == order[2]);
  const Permutation largest(Permutation::kLargest, 2, 1);
  for (std::int64_t i = Permutation::kLargest - 100; i < Permutation::kLargest; ++i)
    REQUIRE((largest[i] >= 0 && largest[i] < Permutation::kLargest));
}
