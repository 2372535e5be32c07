// Calls of NCCL and CUDA that fail, ranks that die, hang or call something else: an error on every
// rank that cannot go on, in time, and no wrong result.
#include <nccl.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "dist/checks.h"
#include "nccl/ranks.h"
#include "support/device/simulator.h"

namespace firn::testing {
namespace {

using dist::Group;
using dist::RankError;

thread_local int this_rank = -1;  // of threads that are ranks

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// One of each, with results that are read; a wrong one is no Error, so that it is seen as what it
/// is.
std::atomic<int> wrong{0};
void all_calls(const Group& group) {
  const int n = group.size(), own = group.rank();
  const Device device = group.device();
  const auto expect = [&](const Tensor& t, const std::function<double(std::int64_t)>& value) {
    const auto got = t.to(Device::cpu()).to_vector<float>();
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != static_cast<float>(value(static_cast<std::int64_t>(i)))) ++wrong;
  };
  const Tensor x = full({40}, own + 1, f32, device);
  const Tensor part = empty({40}, f32, device), all = full({40 * n}, own, f32, device);
  group.all_reduce(x);
  expect(x, [&](auto) { return n * (n + 1) / 2; });
  group.reduce_scatter(all, part);
  expect(part, [&](auto) { return n * (n - 1) / 2; });
  part.copy_(full({40}, own, f32, device));
  group.all_gather(part, all);
  expect(all, [](std::int64_t i) { return i / 40; });
  const Tensor to = empty({40 * n}, f32, device);
  all.copy_(full({40 * n}, own, f32, device));
  group.all_to_all(all, to);
  expect(to, [](std::int64_t i) { return i / 40; });
  group.broadcast(to, n - 1);
  expect(to, [](std::int64_t i) { return i / 40; });
  const int next = (own + 1) % n, before = (own + n - 1) % n;
  x.copy_(full({40}, own, f32, device));
  group.send_recv(x, next, part, before);
  expect(part, [&](auto) { return before; });
  group.split(0).all_gather(x, all);
  expect(all, [](std::int64_t i) { return i / 40; });
  group.barrier();
}

TEST_CASE(
    "[S42] nccl: every call of NCCL that fails once is an error, no hang and no wrong result") {
  wrong = 0;
  int most = 0;
  for (const int result : {ncclSystemError, ncclRemoteError}) {
    const int victim = result == ncclSystemError ? 1 : 0;
    for (int k = 0;; ++k) {
      CAPTURE(result, victim, k);
      const FreshNccl fresh;
      cusim::nccl_settings().tell_of_aborts = k % 2 == 0;
      int calls = 0;
      std::string failed;
      cusim::on_nccl_call([&](const cusim::NcclCall& call) -> int {
        // Polls come in any number, and have a test of their own.
        if (this_rank != victim || std::string(call.name) == "ncclCommGetAsyncError") return 0;
        if (calls++ != k) return 0;
        failed = call.name;
        return result;
      });
      const auto ends = outcomes(
          2,
          [](const Group& group) {
            this_rank = group.rank();
            all_calls(group);
          },
          {.deadline = 0.15}, 5);
      if (failed.empty()) {
        if (ends[0] || ends[1]) continue;  // a deadline, on a machine that is slow
        most = std::max(most, k);
        break;
      }
      CAPTURE(failed);
      const bool at_the_end =
          failed == "ncclCommFinalize" || failed == "ncclCommDestroy" || failed == "ncclCommAbort";
      const auto& own = ends[static_cast<std::size_t>(victim)];
      if (!at_the_end) {
        REQUIRE(own);
        CHECK(own->is_rank_error);
        CHECK(has(own, failed + " answered"));
        CHECK(own->rank == victim);
      }
      for (const auto& end : ends)
        if (end) {
          CHECK(end->is_rank_error);
          CHECK(end->seconds < 5);
        }
    }
  }
  CHECK(most > 15);
  CHECK(wrong == 0);
}

TEST_CASE("nccl: the rendezvous of the ranks fails on all of them") {
  for (const char* name : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError"}) {
    CAPTURE(name);
    const FreshNccl fresh;
    std::atomic<bool> done{false};
    cusim::on_nccl_call([&](const cusim::NcclCall& call) -> int {
      return std::string(call.name) == name && !done.exchange(true) ? ncclSystemError : 0;
    });
    const auto ends = outcomes(
        3, [](const Group&) { throw std::runtime_error("met"); }, {.deadline = 0.3}, 5);
    for (const auto& end : ends) {
      REQUIRE(end);
      CHECK(end->is_rank_error);
      CHECK(end->op == "nccl_group");
      CHECK(end->seconds < 5);
    }
  }
}

TEST_CASE("[S42] nccl: an asynchronous error at every call is an error on all ranks") {
  wrong = 0;
  for (const int result : {ncclSystemError, ncclRemoteError})
    for (int k = 0; k < 8; ++k) {
      CAPTURE(result, k);
      const FreshNccl fresh;
      cusim::nccl_settings().tell_of_aborts = k % 2 == 0;
      std::atomic<int> groups{0};
      cusim::on_nccl_call([&](const cusim::NcclCall& call) -> int {
        const std::string name = call.name;
        if (this_rank == 1 &&
            (name == "ncclGroupEnd" || name == "ncclAllGather" || name == "ncclBroadcast" ||
             name == "ncclAllReduce") &&
            groups++ == k)
          cusim::nccl_async_error(1, result);
        return 0;
      });
      const auto ends = outcomes(
          3,
          [](const Group& group) {
            this_rank = group.rank();
            all_calls(group);
          },
          {.deadline = 0.2}, 5);
      if (groups <= k) continue;  // there are not so many
      for (const auto& end : ends)
        if (end) CHECK((end->is_rank_error && end->seconds < 5));
      REQUIRE(ends[1]);
      const bool said =
          has(ends[1], result == ncclSystemError ? "ncclSystemError" : "ncclRemoteError");
      CHECK(said);
    }
  CHECK(wrong == 0);
}

TEST_CASE(
    "[S42] nccl: what a group has not done when its last handle goes is an error of the next "
    "wait") {
  const FreshNccl fresh;
  const auto ends = outcomes(
      2,
      [](const Group& group) {
        const Tensor x = ones({5}, f32, group.device());
        {
          const Group part = group.split(0);
          part.all_reduce(x);  // connects the two
          if (group.rank() == 0) part.all_reduce(x);
          // Rank 1 has a handle as long as rank 0 waits, and makes no call.
          if (group.rank() == 1) sleep_for(0.6);
        }
        if (group.rank() == 1) return;
        std::string said;
        try {
          synchronize(group.device());
        } catch (const RankError& e) {
          said = e.what();
        }
        require(mentions(said, {"[all_reduce]", "did not end within 0.2 s"}), "said: " + said);
        synchronize(group.device());  // once
      },
      {.deadline = 0.2, .compare = false});
  for (const auto& end : ends) {
    INFO((end ? end->what : ""));
    CHECK_FALSE(end);
  }
}

TEST_CASE("nccl: a poll that fails, whichever it is") {
  wrong = 0;
  for (int k = 0; k < 12; ++k) {
    CAPTURE(k);
    const FreshNccl fresh;
    std::atomic<int> polls{0};
    cusim::on_nccl_call([&](const cusim::NcclCall& call) -> int {
      return call.rank == 0 && this_rank >= 0 &&
                     std::string(call.name) == "ncclCommGetAsyncError" && polls++ == k
                 ? ncclInternalError
                 : 0;
    });
    const auto ends = outcomes(
        2,
        [](const Group& group) {
          this_rank = group.rank();
          all_calls(group);
        },
        {.deadline = 0.15}, 5);
    if (polls <= k) continue;
    for (const auto& end : ends)
      if (end) CHECK((end->is_rank_error && end->seconds < 5));
  }
  CHECK(wrong == 0);
}

thread_local bool differ = false;  // this rank is at a call that differs

TEST_CASE("nccl: calls that differ are named on every rank, before a device begins them") {
  const FreshNccl fresh;
  std::atomic<int> begun{0};
  cusim::on_nccl_call([&](const cusim::NcclCall& call) {
    if (differ && std::string(call.name) != "ncclCommAbort") ++begun;
    return 0;
  });
  const auto ends = outcomes(
      3,
      [](const Group& group) {
        const Tensor x = ones({6}, f64, group.device());
        group.all_reduce(x);
        differ = true;
        try {
          if (group.rank() == 1)
            group.all_gather(ones({5}, f32, group.device()), empty({15}, f32, group.device()));
          else
            group.all_reduce(x, dist::Reduce::max);
        } catch (const RankError& e) {
          try {
            group.barrier();
          } catch (const RankError& later) {
            require(later.op() == "barrier" && later.message() == e.message(), "later calls");
            throw e;
          }
          throw std::runtime_error("a broken group goes on");
        }
      },
      {});
  CHECK(has(ends[0],
            "rank 0 calls all_reduce(max) of 6 f64, rank 1 calls all_gather with parts of 5 f32"));
  CHECK(has(ends[1],
            "rank 1 calls all_gather with parts of 5 f32, rank 0 calls all_reduce(max) of 6 f64"));
  CHECK(has(ends[2], "rank 2 calls all_reduce(max) of 6 f64, rank 1 calls"));
  CHECK(ends[2]->peer == 1);
  CHECK(begun == 0);
}

TEST_CASE("[S42] nccl: a rank that does not come within the deadline, with and without comparing") {
  for (const bool compare : {true, false})
    for (const bool first : {true, false}) {  // the first collective connects the ranks
      CAPTURE(compare, first);
      const FreshNccl fresh;
      const auto ends = outcomes(
          3,
          [&](const Group& group) {
            const Tensor x = ones({100}, f32, group.device());
            if (!first) group.all_reduce(x);
            if (group.rank() == 1) return sleep_for(0.6);
            group.all_reduce(x);
            const float got = x.to(Device::cpu()).to_vector<float>()[0];
            throw std::runtime_error("a sum without rank 1: " + std::to_string(got));
          },
          {.deadline = 0.2, .compare = compare}, 0.2);
      CHECK_FALSE(ends[1]);
      for (const int r : {0, 2}) {
        const auto& end = ends[static_cast<std::size_t>(r)];
        REQUIRE(end);
        CHECK(end->is_rank_error);
        CHECK(end->op == "all_reduce");
        CHECK(end->seconds < 2);
        if (compare) {
          CHECK(end->peer == 1);
          CHECK(has(end, "before all_reduce(sum) of 100 f32"));
        } else {
          CHECK(has(end, "0.2 s"));
        }
      }
    }
}

TEST_CASE("nccl: a rank that ends by an exception is named, with its text") {
  const FreshNccl fresh;
  const auto ends = outcomes(3,
                             [](const Group& group) {
                               const Tensor x = ones({100}, f32, group.device());
                               group.all_reduce(x);
                               if (group.rank() == 2) throw Error("train", "no such file");
                               group.broadcast(x);
                               group.broadcast(x);
                             },
                             {.deadline = 20});
  for (const int r : {0, 1}) {
    const auto& end = ends[static_cast<std::size_t>(r)];
    REQUIRE(end);
    CHECK(end->peer == 2);
    CHECK(has(end, "no such file"));
    CHECK(end->seconds < 10);
  }
}

TEST_CASE(
    "nccl: an error of what was queued comes at the next wait, once, and then from each call") {
  const FreshNccl fresh;
  on_devices(2,
             [](const Group& group) {
               const Tensor x = ones({100}, f32, group.device());
               group.all_reduce(x);
               if (group.rank() == 1) return;  // its communicator waits for nobody
               group.all_reduce(x);
               std::string late;
               try {
                 synchronize(group.device());
               } catch (const RankError& e) {
                 late = e.op() + ": " + e.message();
               }
               require(late ==
                           "all_reduce: all_reduce(sum) of 100 f32 did not end within 0.2 s on "
                           "cuda:0 of rank 0",
                       "late: " + late);
               synchronize(group.device());  // the device is in order
               for (int i = 0; i < 2; ++i) {
                 try {
                   group.broadcast(x);
                   throw std::runtime_error("a broken group goes on");
                 } catch (const RankError& e) {
                   require(e.op() == "broadcast", "a later call");
                 }
               }
             },
             {.deadline = 0.2, .compare = false});
}

TEST_CASE("nccl: the deadline does not count what the device has to do before") {
  const FreshNccl fresh;
  const LazyStreams late;  // nothing runs before the host waits
  on_devices(2,
             [](const Group& group) {
               const Tensor x = ones({100}, f32, group.device());
               group.all_reduce(x);
               sleep_for(0.5);
               group.all_reduce(x);
               require(x.to(Device::cpu()).to_vector<float>()[3] == 4, "a sum");
             },
             {.deadline = 0.3});
}

TEST_CASE("nccl: a call of CUDA that fails is an error, no hang and no wrong result") {
  wrong = 0;
  for (std::uint64_t k = 0; k < 120; k += 5) {
    CAPTURE(k);
    const FreshNccl fresh;
    std::optional<FailCall> fail;
    const auto ends = outcomes(
        2,
        [&](const Group& group) {
          const Tensor x = ones({100}, f32, group.device());
          group.all_reduce(x);
          group.barrier();
          if (group.rank() == 0) fail.emplace(k);
          all_calls(group);
        },
        {.deadline = 0.2}, 5);
    fail.reset();
    for (const auto& end : ends)
      if (end) CHECK(end->seconds < 5);
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace firn::testing
