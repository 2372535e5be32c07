// Messages between two devices, and parts of a group of devices.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "dist/checks.h"
#include "engine/engine.h"
#include "firn/runtime/graph.h"
#include "nccl/ranks.h"
#include "support/device/simulator.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using dist::Group;
using dist::RankError;

Tensor filled(const Group& group, double value, std::int64_t n = 5, DType dtype = f32) {
  return full({n}, value, dtype, group.device());
}

double first_of(const Tensor& t) { return t.to(Device::cpu()).to_vector<float>()[0]; }

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

TEST_CASE("nccl: messages of every dtype and size reach the rank that they are for") {
  const FreshNccl fresh;
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    std::atomic<int> messages{0};
    on_devices(ranks, [&](const Group& group) {
      messages += test::check_messages(group, {0, 1, 7, 1000});
    });
    CHECK(messages == 4 * kDTypes * (2 * ranks * (ranks - 1) + (ranks > 1 ? ranks : 0)));
  }
}

TEST_CASE("nccl: parts of a group, and parts of these") {
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    const FreshNccl fresh;
    on_devices(ranks, [](const Group& group) { test::check_splits(group); });
  }
}

TEST_CASE("nccl: ranks that a file has brought together send messages, and split") {
  const FreshNccl fresh;
  const auto errors = by_file(4, file_path("split"), 20, [](const Group& group) {
    test::check_messages(group.host(), {0, 1, 33});
    test::check_splits(group);
    const Group half = group.split(group.rank() / 2);
    const Tensor x = full({3}, half.rank() + 1);
    half.host().all_reduce(x);  // of the host
    require(x.to_vector<float>()[0] == 3, "a sum of the half");
    test::check_splits(group.host());
  });
  for (const auto& e : errors) CHECK(e.empty());
}

TEST_CASE("nccl: messages and parts in 30 orders of completion, with streams that run late") {
  const FreshNccl fresh;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    cusim::seed_random(seed);
    cusim::nccl_settings().most_polls = static_cast<int>(seed % 6);
    std::optional<LazyStreams> late;
    if (seed % 2 == 0) late.emplace();
    on_devices(3, [&](const Group& group) {
      const int n = group.size(), own = group.rank();
      const Group turned = group.split(0, -own);
      const Tensor x = filled(group, own), y = filled(group, -1);
      for (int i = 0; i < 4; ++i) {  // once around and one more, by turns in both groups
        const Group& over = i % 2 == 0 ? group : turned;
        const int at = over.rank(), before = (at + n - 1) % n;
        over.send_recv(x, (at + 1) % n, y, before);
        require(first_of(y) == (i % 2 == 0 ? before : n - 1 - before), "of the one before");
        x.fill_(own);  // the memory may be written to again
      }
    });
  }
}

TEST_CASE("[S42] nccl: two sides of a message that differ are an error on both") {
  const FreshNccl fresh;
  const auto ends = outcomes(3,
                             [](const Group& group) {
                               if (group.rank() == 0) group.send(filled(group, 1, 5), 2);
                               if (group.rank() == 2) group.recv(filled(group, 1, 6), 0);
                             },
                             {});
  CHECK(has(ends[0], "[send] rank 0 calls send of 5 f32 to rank 2, rank 2 calls recv of 6 f32"));
  CHECK(has(ends[2], "[recv] rank 2 calls recv of 6 f32 from rank 0, rank 0 calls send of 5 f32"));
  CHECK_FALSE(ends[1]);
}

TEST_CASE("[S42] nccl: a rank that does not come to a message, or has ended, is named") {
  const FreshNccl fresh;
  const auto late = outcomes(
      2,
      [](const Group& group) {
        if (group.rank() == 0) group.recv(filled(group, 1), 1);
        if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
      },
      {}, 0.2);
  CHECK(has(late[0], "[recv] rank 1 did not come to this call within 0.2 s"));
  CHECK((late[0] && late[0]->peer == 1));
  const auto gone = outcomes(2,
                             [](const Group& group) {
                               if (group.rank() == 0) group.recv(filled(group, 1), 1);
                             },
                             {});
  CHECK(has(gone[0], "[recv] rank 1 ended before it came to this call"));
  // Nobody compares: what waits on the device ends at the deadline.
  const auto unseen = outcomes(2,
                               [](const Group& group) {
                                 if (group.rank() == 0) group.recv(filled(group, 1), 1);
                                 if (group.rank() == 1)
                                   std::this_thread::sleep_for(std::chrono::milliseconds(600));
                               },
                               {.deadline = 0.2, .compare = false});
  CHECK(has(unseen[0], "rank 0 waited 0.2 s for the other ranks in recv of 5 f32 from rank 1"));
}

TEST_CASE("[S42] nccl: a part that is broken leaves the others whole, and names ranks of all") {
  const FreshNccl fresh;
  std::atomic<int> whole{0};
  const auto ends = outcomes(
      4,
      [&](const Group& group) {
        const Group half = group.split(group.rank() / 2);
        std::string text;
        try {
          half.all_reduce(filled(group, 1, group.rank() == 3 ? 6 : 5));
        } catch (const RankError& e) {
          text = e.what();
        }
        require(text.empty() == (group.rank() < 2), "one half has made different calls");
        if (group.rank() >= 2)
          require(mentions(text, {"rank 1 (rank 3 of all) calls all_reduce(sum) of 6 f32",
                                  "rank 0 (rank 2 of all) calls all_reduce(sum) of 5 f32"}),
                  "the text");
        const Tensor x = filled(group, 1);
        group.all_reduce(x);
        if (first_of(x) == 4) ++whole;
      },
      {});
  for (const auto& end : ends) CHECK_FALSE(end);
  CHECK(whole == 4);
}

TEST_CASE("[S42] nccl: ranks of which only some split are told so") {
  const FreshNccl fresh;
  const auto ends = outcomes(2,
                             [](const Group& group) {
                               if (group.rank() == 0) group.split(0);
                               group.all_reduce(filled(group, 1));
                             },
                             {});
  for (const auto& end : ends) CHECK(has(end, "rank 1 calls all_reduce(sum) of 5 f32"));
  for (const auto& end : ends) CHECK(has(end, "rank 0 calls split"));
}

TEST_CASE("nccl: what messages refuse breaks nothing") {
  const FreshNccl fresh;
  on_devices(2, [](const Group& group) {
    const int other = 1 - group.rank();
    const Tensor x = filled(group, group.rank());
    require(mentions(error_of([&] { group.send(ones({5}), other); }), {"[send]", "cpu"}),
            "a device");
    require(mentions(error_of([&] { group.host().send(x, other); }), {"[send]", "cuda"}),
            "the host");
    const Tensor y = filled(group, -1);
    const std::string captured = error_of([&] {
      graph::Graph::capture(group.device(), [&] { group.send_recv(x, other, y, other); });
    });
    require(mentions(captured, {"[send]", "could not compare"}), "a capture");
    plan_memory([&] { group.send(x, other); });
    group.send_recv(x, other, y, other);
    require(first_of(y) == other, "the other's");
  });
}

}  // namespace
}  // namespace firn::testing
