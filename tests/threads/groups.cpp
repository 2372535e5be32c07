// Ranks as threads: collectives at once with trainings, and ranks that fail while others wait.
#include <stdexcept>
#include <vector>

#include "dist/checks.h"
#include "firn/dist/local.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using dist::Group;
using dist::run_local;
using firn::testing::Threads;
using firn::testing::values_of;

TEST_CASE("groups: every collective, and random sequences of them", "[host][threads]") {
  for (const int ranks : {2, 4}) {
    run_local(ranks, [](const Group& group) { check_every_call(group, {0, 1, 300}); });
    for (std::uint64_t seed = 1; seed <= 10; ++seed)
      run_local(ranks, [&](const Group& group) { check_random_calls(group, seed, 12, 500); });
  }
}

TEST_CASE("groups: ranks fail at every point of a sequence", "[host][threads]") {
  for (int point = 0; point < 30; ++point) {
    CHECK_THROWS_WITH(run_local(3,
                                [&](const Group& group) {
                                  for (int i = 0; i < 30; ++i) {
                                    if (i == point && group.rank() == point % 3)
                                      throw std::runtime_error("enough");
                                    check_random_calls(group, static_cast<std::uint64_t>(i), 1, 99);
                                  }
                                }),
                      "enough");
  }
}

TEST_CASE("groups: a deadline that passes while the late rank comes", "[host][threads]") {
  int passed = 0, broken = 0;
  for (int round = 0; round < 60; ++round) {
    try {
      run_local(3, [](const Group& group) { check_random_calls(group, 1, 20, 99); },
                {.deadline = 2e-5 * (1 + round)});
      ++passed;
    } catch (const dist::RankError& e) {
      CHECK(e.peer() >= 0);
      CHECK(e.peer() < 3);
      ++broken;
    }
  }
  CHECK(passed + broken == 60);
}

TEST_CASE("groups: ranks that train are one training with the sum of their gradients",
          "[host][threads]") {
  const Threads threads(2);
  const auto weights_of = [](int ranks) {
    std::vector<double> weights;
    manual_seed(3);
    run_local(ranks, [&](const Group& group) {
      nn::Sequential net{nn::Linear(6, 16), nn::Linear(16, 3)};
      for (int step = 0; step < 3; ++step) {
        for (Tensor& p : net.parameters()) p.set_grad({});
        const Tensor x = randn({8, 6});  // the same on every rank
        net(x).square().sum().backward();
        const NoGrad guard;
        for (Tensor& p : net.parameters()) {
          Tensor grad = p.grad();
          group.all_reduce(grad);
          p -= grad * (1e-3 / group.size());
        }
      }
      if (group.rank() > 0) return;
      for (const Tensor& p : net.parameters())
        for (const double v : values_of(p)) weights.push_back(v);
    });
    return weights;
  };
  const auto one = weights_of(1);
  CHECK(weights_of(2) == one);  // x + x and its half are exact
  CHECK(weights_of(4) == one);
}
