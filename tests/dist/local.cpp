// Ranks as threads: collectives beside plain loops, what each rank begins with, what is refused.
#include "firn/dist/local.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dist/checks.h"
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

namespace {

/// What `work` throws as an Error; empty: nothing.
template <class Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("groups: every collective, dtype and size is that of a plain loop") {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    CAPTURE(ranks);
    std::atomic<int> calls{0};
    run_local(ranks, [&](const Group& group) {
      calls += check_every_call(group, {0, 1, 7, 1000, 5003});
    });
    CHECK(calls == ranks * 5 * (5 * 3 * 3 + kDTypes * (4 + ranks)));
  }
  check_every_call(Group(), {0, 1, 7, 1000, 5003});
}

TEST_CASE("groups: more elements than a block of any rank") {
  run_local(3, [](const Group& group) {
    for (const DType dtype : {f32, u8})
      check(group, {.call = Collective::all_reduce, .dtype = dtype, .count = 300'001, .salt = 5});
    check(group, {.call = Collective::all_to_all, .dtype = bf16, .count = 100'003, .salt = 6});
  });
}

TEST_CASE("groups: 200 random sequences of calls") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    run_local(1 + static_cast<int>(seed % 5),
              [&](const Group& group) { check_random_calls(group, seed, 12, 2000); });
  }
}

TEST_CASE("groups: sums go in the order of the ranks") {
  // ((1e8 + -1e8) + 1) + 1, but 1e8 + 1 would be 1e8.
  const float given[] = {1e8f, -1e8f, 1, 1};
  run_local(4, [&](const Group& group) {
    const Tensor x = full({1}, given[group.rank()]);
    group.all_reduce(x);
    if (x.item() != 2) throw std::runtime_error("another order");
  });
  run_local(4, [&](const Group& group) {
    const Tensor x = full({1}, given[3 - group.rank()]);
    group.all_reduce(x);
    if (x.item() != 0) throw std::runtime_error("another order");
  });
}

TEST_CASE("groups: a group says where it is") {
  const Group one;
  CHECK(one.rank() == 0);
  CHECK(one.size() == 1);
  CHECK(one.kind() == "one");
  CHECK(one.deadline() > 1e300);
  std::mutex mutex;
  std::set<int> ranks;
  std::set<std::thread::id> threads;
  run_local(5,
            [&](const Group& group) {
              const std::lock_guard lock(mutex);
              ranks.insert(group.rank());
              threads.insert(std::this_thread::get_id());
              if (group.size() != 5 || group.kind() != "local" || group.deadline() != 2.5)
                throw std::runtime_error("not this group");
            },
            {.deadline = 2.5});
  CHECK(ranks == std::set<int>{0, 1, 2, 3, 4});
  CHECK(threads.size() == 5);
  CHECK(threads.count(std::this_thread::get_id()) == 0);
}

TEST_CASE("groups: ranks draw the same numbers, which go on from the caller's stream") {
  const auto drawn_by = [](int ranks) {
    std::vector<std::vector<double>> drawn(static_cast<std::size_t>(ranks));
    run_local(ranks, [&](const Group& group) {
      drawn[static_cast<std::size_t>(group.rank())] = values_of(randn({20}));
    });
    return drawn;
  };
  manual_seed(7);
  randn({3});
  const auto first = drawn_by(3);
  CHECK(first[0] == first[1]);
  CHECK(first[0] == first[2]);
  CHECK(drawn_by(2)[1] == first[0]);
  CHECK(values_of(randn({20})) == first[0]);  // the caller's stream stood still

  std::vector<std::vector<double>> own(2);
  manual_seed(7);
  run_local(2, [&](const Group& group) {
    seed_thread(static_cast<std::uint64_t>(group.rank()));
    own[static_cast<std::size_t>(group.rank())] = values_of(randn({20}));
  });
  CHECK(own[0] == values_of(randn({20})));
  CHECK(own[0] != own[1]);

  // The numbers of other threads of the program are those of a program without ranks.
  const auto other_thread = [] {
    std::vector<double> drawn;
    std::thread([&] { drawn = values_of(randn({5})); }).join();
    return drawn;
  };
  manual_seed(7);
  const auto plain = other_thread();
  manual_seed(7);
  drawn_by(3);
  CHECK(other_thread() == plain);
}

TEST_CASE("groups: ranks share the caller's threads, and take none of its modes") {
  const Threads threads(6);
  const auto check_threads = [](int ranks, int asked, int expected) {
    std::atomic<int> wrong{0};
    run_local(ranks,
              [&](const Group&) {
                if (num_threads() != expected || !grad_enabled()) ++wrong;
              },
              {.threads = asked});
    CHECK(wrong == 0);
  };
  const NoGrad guard;
  check_threads(3, 0, 2);
  check_threads(4, 0, 1);
  check_threads(7, 0, 1);
  check_threads(4, 5, 5);
  const NumThreadsScope two(2);
  check_threads(2, 0, 1);
  CHECK(num_threads() == 2);
}

TEST_CASE("groups: groups inside of ranks") {
  run_local(2, [](const Group& outer) {
    const Tensor sum = full({1}, outer.rank() + 1.0);
    run_local(3, [&](const Group& inner) {
      check_random_calls(inner, 3, 5, 100);
      const Tensor x = full({1}, 10.0 * outer.rank() + inner.rank());
      inner.all_reduce(x);
      if (x.item() != 30 * outer.rank() + 3) throw std::runtime_error("not the inner group's");
    });
    outer.all_reduce(sum);
    if (sum.item() != 3) throw std::runtime_error("not the outer group's");
  });
}

TEST_CASE("groups: tensors that a collective does not take") {
  const Group one;
  const Tensor x = ones({4, 2});
  CHECK(error_of([&] { one.all_reduce({}); }).find("[all_reduce]") == 0);
  CHECK(error_of([&] { one.all_reduce(x.transpose(0, 1)); }).find("is not contiguous") !=
        std::string::npos);
  CHECK(error_of([&] { one.all_reduce(ones({3}, f16)); }).find("cast it to f32") !=
        std::string::npos);
  CHECK(error_of([&] {
          one.all_reduce(ones({3}, bf16));
        }).find("is not f32, f64, i32, i64 or u8") != std::string::npos);
  CHECK(error_of([&] {
          one.reduce_scatter(ones({3}, boolean), ones({3}, boolean));
        }).find("cast it to u8 or i32") != std::string::npos);
  CHECK(error_of([&] { one.reduce_scatter(x, ones({7})); }).find("1 parts") != std::string::npos);
  CHECK(error_of([&] { one.all_gather(ones({8}, f64), x); }).find("one dtype") !=
        std::string::npos);
  CHECK(error_of([&] { one.all_to_all(x, x); }).find("memory in common") != std::string::npos);
  CHECK(error_of([&] { one.broadcast(x, 1); }).find("rank 1 of 1 ranks") != std::string::npos);
  CHECK(error_of([&] { one.broadcast(x, -1); }).find("rank -1 of 1 ranks") != std::string::npos);
  CHECK_THROWS_AS(Group(std::shared_ptr<dist::Transport>()), Error);

  const Tensor weight = ones({3}).set_requires_grad();
  CHECK(error_of([&] { one.all_reduce(weight); }).find("guard it with NoGrad") !=
        std::string::npos);
  {
    const NoGrad guard;
    one.all_reduce(weight);
  }
  run_local(2, [](const Group& group) {
    const Tensor whole = zeros({6});
    const int other = 1 - group.rank();
    const Tensor wrong = whole.slice(0, 3 * other, 3 * other + 3);
    const auto text = error_of([&] { group.reduce_scatter(whole, wrong); });
    if (text.find("not where part " + std::to_string(group.rank())) == std::string::npos)
      throw std::runtime_error("[" + text + "]");
    if (error_of([&] { group.all_gather(wrong, whole); }) == "") throw std::runtime_error("taken");
    if (error_of([&] { group.all_to_all(ones({3}), ones({3})); }).find("2 equal parts") > 200)
      throw std::runtime_error("taken");
    group.barrier();  // what a rank refuses by itself does not break the group
  });
}

TEST_CASE("groups: run_local() refuses what it cannot do") {
  const auto nothing = [](const Group&) {};
  CHECK_THROWS_AS(run_local(0, nothing), Error);
  CHECK_THROWS_AS(run_local(1025, nothing), Error);
  CHECK_THROWS_AS(run_local(2, {}), Error);
  CHECK_THROWS_AS(run_local(2, nothing, {.deadline = 0}), Error);
  CHECK_THROWS_AS(run_local(2, nothing, {.deadline = std::nan("")}), Error);
  CHECK_THROWS_AS(run_local(2, nothing, {.threads = -1}), Error);
  run_local(2, [](const Group& group) { group.barrier(); }, {.deadline = HUGE_VAL});
}

TEST_CASE("groups: a saved tensor that a collective overwrites is seen by the backward pass") {
  const Group one;
  const Tensor x = ones({3}).set_requires_grad();
  const Tensor factor = full({3}, 2.0);
  const Tensor y = (x * factor).sum();
  one.all_reduce(factor);
  const auto text = error_of([&] { y.backward(); });
  CAPTURE(text);
  CHECK(text.find("all_reduce") != std::string::npos);
}

TEST_CASE("groups: in a dry run nothing is exchanged") {
  run_local(2, [](const Group& group) {
    if (group.rank() == 1) return group.barrier();
    const Tensor x = ones({3});
    plan_memory([&] { group.all_reduce(x); });
    if (x.sum().item() != 3) throw std::runtime_error("a value was written");
    group.barrier();
  });
}
