// Ranks that throw, end, come late or call something else: the others throw, in time, and say who.
#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dist/checks.h"
#include "firn/dist/local.h"
#include "firn/firn.h"
#include "firn/runtime/storage.h"
#include "support/catch.h"

using namespace firn;
using namespace firn::test;
using dist::Group;
using dist::RankError;
using dist::run_local;

namespace {

struct Outcome {
  std::string what, op;
  int rank = -2, peer = -2;
  double seconds = 0;
};

/// Runs `rank` in so many threads; what each threw as a RankError, and after how long.
std::vector<std::optional<Outcome>> outcomes(int ranks, double deadline,
                                             const std::function<void(const Group&)>& rank) {
  std::vector<std::optional<Outcome>> all(static_cast<std::size_t>(ranks));
  const auto begin = std::chrono::steady_clock::now();
  const auto body = [&](const Group& group) {
    try {
      rank(group);
    } catch (const RankError& e) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      all[static_cast<std::size_t>(group.rank())] =
          Outcome{e.what(), e.op(), e.rank(), e.peer(), spent.count()};
      throw;
    }
  };
  try {
    run_local(ranks, body, {.deadline = deadline});
  } catch (const std::exception&) {  // its choice has a test of its own
  }
  return all;
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Any collective.
void call(const Group& group, int which) {
  check(group, {.call = static_cast<Collective>(which % 6), .dtype = f64, .count = 9, .salt = 1});
}

}  // namespace

TEST_CASE("groups: a rank that throws wakes all that wait for it, and those that come later") {
  for (int which = 0; which < 6; ++which) {
    CAPTURE(which);
    const auto found = outcomes(4, 60, [&](const Group& group) {
      call(group, which + 1);
      if (group.rank() == 2) {
        if (which % 2 == 0) sleep_for(0.02);
        throw std::runtime_error("no more disk");
      }
      if (group.rank() == 3) sleep_for(0.05);
      call(group, which);
    });
    for (const std::size_t rank : {0, 1, 3}) {
      REQUIRE(found[rank]);
      CAPTURE(found[rank]->what);
      CHECK(found[rank]->what.find("rank 2 ended by an exception: no more disk") !=
            std::string::npos);
      CHECK(found[rank]->rank == static_cast<int>(rank));
      CHECK(found[rank]->peer == 2);
      CHECK(found[rank]->seconds < 5);
    }
    CHECK_FALSE(found[2]);
  }
}

TEST_CASE("groups: a rank that returns while others are in a collective") {
  const auto found = outcomes(3, 60, [&](const Group& group) {
    group.barrier();
    if (group.rank() == 1) return;
    group.all_reduce(ones({5}));
  });
  for (const std::size_t rank : {0, 2}) {
    REQUIRE(found[rank]);
    CAPTURE(found[rank]->what);
    CHECK(found[rank]->what.find("[all_reduce] rank 1 ended before it came") == 0);
    CHECK(found[rank]->peer == 1);
    CHECK(found[rank]->seconds < 5);
  }
}

TEST_CASE("groups: a rank that comes too late is named, and so is the deadline") {
  const auto found = outcomes(4, 0.3, [&](const Group& group) {
    group.barrier();
    if (group.rank() == 1) sleep_for(0.8);
    group.all_gather(ones({5}), empty({20}));
  });
  for (const std::size_t rank : {0, 2, 3}) {
    REQUIRE(found[rank]);
    CAPTURE(found[rank]->what);
    CHECK(found[rank]->what.find("[all_gather] rank 1 did not come to all_gather within 0.3 s") ==
          0);
    CHECK(found[rank]->peer == 1);
    CHECK(found[rank]->seconds < 1.3);
  }
  REQUIRE(found[1]);
  CHECK(found[1]->what.find("waited 0.3 s for rank 1 in all_gather") != std::string::npos);
  CHECK(found[1]->peer == 1);
}

TEST_CASE("groups: ranks that make different calls all say so, and name both") {
  const auto differ = [](const std::function<void(const Group&)>& odd,
                         const std::function<void(const Group&)>& others) {
    return outcomes(3, 60, [&](const Group& group) { (group.rank() == 1 ? odd : others)(group); });
  };
  const auto reduce = [](const Tensor& x, dist::Reduce op) {
    return [x, op](const Group& group) { group.all_reduce(x.clone(), op); };
  };
  const auto sum = reduce(ones({5}), dist::Reduce::sum);
  const struct {
    std::function<void(const Group&)> odd;
    const char* text;
  } cases[] = {
      {[](const Group& g) { g.barrier(); }, "barrier"},
      {reduce(ones({6}), dist::Reduce::sum), "all_reduce(sum) of 6 f32"},
      {reduce(ones({5}, f64), dist::Reduce::sum), "all_reduce(sum) of 5 f64"},
      {reduce(ones({5}), dist::Reduce::max), "all_reduce(max) of 5 f32"},
      {reduce(ones({0}), dist::Reduce::sum), "all_reduce(sum) of 0 f32"},
      {[](const Group& g) { g.broadcast(ones({5}), 2); }, "broadcast from rank 2 of 5 f32"},
      {[](const Group& g) { g.all_gather(ones({5}), empty({15})); },
       "all_gather with parts of 5 f32"},
      {[](const Group& g) { g.reduce_scatter(ones({15}), empty({5}), dist::Reduce::min); },
       "reduce_scatter(min) to parts of 5 f32"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.text);
    const auto found = differ(c.odd, sum);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      REQUIRE(found[rank]);
      CAPTURE(found[rank]->what);
      CHECK(found[rank]->what.find(c.text) != std::string::npos);
      CHECK(found[rank]->what.find("all_reduce(sum) of 5 f32") != std::string::npos);
      CHECK(found[rank]->peer == (rank == 1 ? 0 : 1));
    }
  }
  const auto roots = outcomes(2, 60, [](const Group& g) { g.broadcast(ones({5}), g.rank()); });
  REQUIRE(roots[0]);
  CHECK(roots[0]->what.find("broadcast from rank 0 of 5 f32, rank 1 calls broadcast from rank 1") !=
        std::string::npos);
}

TEST_CASE("groups: a broken group stays broken, and changes nothing any more") {
  const auto found = outcomes(2, 60, [](const Group& group) {
    const Tensor x = full({3}, 1.0 + group.rank());
    const auto fails = [&](const auto& work) {
      try {
        work();
      } catch (const RankError&) {
        return true;
      }
      return false;
    };
    if (group.rank() == 0 ? !fails([&] { group.all_reduce(x); }) : !fails([&] { group.barrier(); }))
      throw std::runtime_error("no mismatch");
    const auto before = x.storage()->version();
    if (!fails([&] { group.all_reduce(x); })) throw std::runtime_error("not broken");
    if (x.storage()->version() != before || x.sum().item() != 3.0 * (1 + group.rank()))
      throw std::runtime_error("x was changed");
    const Group copy = group;
    copy.barrier();
  });
  for (const auto& outcome : found) {
    REQUIRE(outcome);
    CAPTURE(outcome->what);
    CHECK(outcome->what.find("[barrier] ranks 0 and 1 have made different calls before") == 0);
  }
}

TEST_CASE("groups: two ranks that give the same memory") {
  const Tensor shared = ones({100});
  const auto found = outcomes(3, 60, [&](const Group& group) {
    group.all_gather(shared, empty({300}));  // all read it
    group.all_reduce(group.rank() == 1
                         ? ones({50})
                         : shared.slice(0, 25 * group.rank(), 25 * group.rank() + 50));
  });
  // 0 to 50 and 50 to 100 only touch.
  for (const auto& outcome : found) CHECK_FALSE(outcome);
  const auto refused = outcomes(3, 60, [&](const Group& group) {
    group.all_reduce(group.rank() == 1
                         ? ones({50})
                         : shared.slice(0, 20 * group.rank(), 20 * group.rank() + 50));
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    REQUIRE(refused[rank]);
    CAPTURE(refused[rank]->what);
    CHECK(refused[rank]->what.find("ranks 0 and 2 gave the same memory to all_reduce") !=
          std::string::npos);
    CHECK(refused[rank]->peer == (rank == 2 ? 0 : 2));
  }
}

TEST_CASE("groups: which exception comes out of run_local()") {
  const auto thrown = [](const std::function<void(const Group&)>& rank) -> std::string {
    try {
      run_local(4, rank);
    } catch (const RankError& e) {
      return "RankError of " + std::to_string(e.rank());
    } catch (const std::bad_alloc&) {
      return "bad_alloc";
    } catch (const std::exception& e) {
      return e.what();
    } catch (const int number) {
      return "int " + std::to_string(number);
    }
    return "nothing";
  };
  CHECK(thrown([](const Group& g) { g.barrier(); }) == "nothing");
  CHECK(thrown([](const Group& g) {
          if (g.rank() >= 2) throw std::runtime_error("rank " + std::to_string(g.rank()));
          g.barrier();
        }) == "rank 2");
  CHECK(thrown([](const Group& g) {
          if (g.rank() == 3) throw 7;
          g.barrier();
        }) == "int 7");
  CHECK(thrown([](const Group& g) {
          if (g.rank() == 1) throw std::bad_alloc();
          g.barrier();
        }) == "bad_alloc");
  CHECK(thrown([](const Group& g) {
          if (g.rank() == 0) return;
          g.barrier();
        }) == "RankError of 1");
}

TEST_CASE("groups: a handle that outlives its rank, and two threads of one rank") {
  std::optional<Group> kept;
  run_local(2, [&](const Group& group) {
    if (group.rank() == 1) kept = group;
    group.barrier();
  });
  REQUIRE(kept);
  CHECK(kept->rank() == 1);
  CHECK(kept->size() == 2);
  try {
    kept->barrier();
    FAIL("the rank has ended");
  } catch (const RankError& e) {
    CHECK(std::string(e.what()).find("rank 1 has ended") != std::string::npos);
  }

  std::atomic<int> refused{0};
  std::string text;
  run_local(2, [&](const Group& group) {
    if (group.rank() == 1) {
      while (refused == 0) sleep_for(0.001);
      return group.barrier();
    }
    const auto meet = [&] {
      try {
        group.barrier();
      } catch (const Error& e) {
        text = e.what();
        ++refused;
      }
    };
    std::thread other(meet);
    meet();
    other.join();
  });
  CHECK(refused == 1);
  CHECK(text.find("in another thread") != std::string::npos);
}
