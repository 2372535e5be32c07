// Messages between two ranks, and groups that were split off: what they carry, what is refused, and
// what comes of a rank that fails.
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dist/checks.h"
#include "dist/training.h"

namespace firn::testing {
namespace {

using dist::Group;
using dist::RankError;
using dist::run_local;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("groups: messages of every dtype and size reach the rank that they are for") {
  for (const int ranks : {1, 2, 3, 5}) {
    CAPTURE(ranks);
    std::atomic<int> messages{0};
    run_local(ranks, [&](const Group& group) {
      messages += test::check_messages(group, {0, 1, 7, 1000, 100'003});
    });
    CHECK(messages == 5 * kDTypes * (2 * ranks * (ranks - 1) + (ranks > 1 ? ranks : 0)));
  }
}

TEST_CASE("groups: parts of a group, and parts of these") {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    CAPTURE(ranks);
    run_local(ranks, [](const Group& group) { test::check_splits(group); });
  }
  test::check_splits(Group());
}

TEST_CASE("groups: two messages that cross, and one that waits for a late rank") {
  run_local(2, [](const Group& group) {
    const int other = 1 - group.rank();
    const Tensor mine = full({100}, group.rank()), theirs = zeros({100});
    for (int i = 0; i < 50; ++i) group.send_recv(mine, other, theirs, other);
    if (theirs.sum().item() != 100.0 * other) throw std::runtime_error("not the other's");
    if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    if (group.rank() == 0) group.send(mine, 1);
    if (group.rank() == 1) group.recv(theirs, 0);
  });
}

TEST_CASE("groups: messages that are refused by the rank alone break nothing") {
  const auto errors = errors_on_ranks(2, [](const Group& group) {
    const Tensor x = ones({4, 2});
    const auto text = [](const std::function<void()>& call) -> std::string {
      try {
        call();
      } catch (const Error& e) {
        return e.what();
      }
      return "nothing";
    };
    const int own = group.rank(), other = 1 - own;
    std::string wrong;
    const auto expect = [&](const std::string& got, const std::string& part) {
      if (!has(got, part)) wrong += "[" + got + "] without [" + part + "]\n";
    };
    expect(text([&] { group.send(x, 2); }), "[send] rank 2 of 2 ranks");
    expect(text([&] { group.recv(x, -1); }), "[recv] rank -1 of 2 ranks");
    expect(text([&] { group.send(x, own); }), "to itself");
    expect(text([&] { group.send({}, other); }), "[send]");
    expect(text([&] { group.recv(x.transpose(0, 1), other); }), "is not contiguous");
    expect(text([&] { group.send_recv(x, other, x.slice(0, 1, 3), other); }), "memory in common");
    const Tensor leaf = ones({8}).set_requires_grad();
    expect(text([&] { group.recv(leaf, other); }), "guard it with NoGrad");
    expect(text([&] { plan_memory([&] { group.split(0); }); }), "in a dry run");
    plan_memory([&] { group.send(x, other); });
    group.send_recv(x, other, ones({4, 2}), other);
    if (!wrong.empty()) throw Error("test", wrong);
  });
  for (const std::string& e : errors) CHECK(e.empty());
}

TEST_CASE(
    "[S42] groups: two sides of a message that differ are an error on both, with both calls") {
  const auto unlike = [](const Tensor& sent, const Tensor& wanted) {
    return errors_on_ranks(3, [&](const Group& group) {
      if (group.rank() == 0) group.send(sent, 2);
      if (group.rank() == 2) group.recv(wanted, 0);
    });
  };
  const auto count = unlike(ones({5}), ones({6}));
  CHECK(has(count[0],
            "[send] rank 0 calls send of 5 f32 to rank 2, rank 2 calls recv of 6 f32 from"));
  CHECK(has(count[2],
            "[recv] rank 2 calls recv of 6 f32 from rank 0, rank 0 calls send of 5 f32 to"));
  const auto dtype = unlike(ones({5}), ones({5}, f16));
  CHECK(has(dtype[0], "5 f32"));
  CHECK(has(dtype[0], "5 f16"));
  CHECK(has(dtype[2], "5 f32"));
  CHECK(has(dtype[2], "5 f16"));
  // The group is broken for those that did not take part, too.
  const auto later = errors_on_ranks(3, [](const Group& group) {
    if (group.rank() == 0) group.send(ones({5}), 2);
    if (group.rank() == 2) group.recv(ones({6}), 0);
    if (group.rank() == 1) group.barrier();
  });
  CHECK(has(later[1], "[barrier] ranks"));
  const Tensor shared = ones({5});
  for (const std::string& e : errors_on_ranks(2, [&](const Group& group) {
         if (group.rank() == 0) group.send(shared, 1);
         if (group.rank() == 1) group.recv(shared, 0);
       }))
    CHECK(has(e, "gave the same memory to a message"));
}

TEST_CASE(
    "[S42] groups: two ranks that both send, or both receive, are an error at once, with both") {
  for (const bool both : {false, true}) {  // as a part of send_recv(), too
    CAPTURE(both);
    const auto sent = errors_on_ranks(4, [&](const Group& group) {
      if (group.rank() == 1 && both) group.send_recv(ones({5}), 3, ones({2}), 0);
      if (group.rank() == 1) group.send(ones({5}), 3);
      if (group.rank() == 3) group.send(ones({5}), 1);
      // The others are there, and break with the group: a rank that ended would break it before.
      if (group.rank() % 2 == 0 && both) group.barrier();
    });
    CHECK(
        has(sent[1], "rank 1 calls send of 5 f32 to rank 3, rank 3 calls send of 5 f32 to rank 1"));
    CHECK(
        has(sent[3], "rank 3 calls send of 5 f32 to rank 1, rank 1 calls send of 5 f32 to rank 3"));
    CHECK(has(sent[3], "one sends and the other receives"));
    CHECK(sent[0].empty() != both);
    CHECK(sent[2].empty() != both);
  }
  const auto received = errors_on_ranks(3, [](const Group& group) {
    if (group.rank() == 1) group.recv(ones({5}), 2);
    if (group.rank() == 2) group.recv(ones({6}, f64), 1);
    if (group.rank() == 0) group.barrier();
  });
  CHECK(
      has(received[1], "rank 1 calls recv of 5 f32 from rank 2, rank 2 calls recv of 6 f64 from"));
  CHECK(
      has(received[2], "rank 2 calls recv of 6 f64 from rank 1, rank 1 calls recv of 5 f32 from"));
  CHECK(has(received[0], "[barrier] ranks"));
  // Around a ring each rank's messages go two ways.
  const auto ring = errors_on_ranks(3, [](const Group& group) {
    for (int i = 0; i < 50; ++i)
      group.send_recv(ones({5}), (group.rank() + 1) % 3, ones({5}), (group.rank() + 2) % 3);
    for (int i = 0; i < 50; ++i)
      if (group.rank() < 2)
        group.send_recv(ones({5}), 1 - group.rank(), ones({5}), 1 - group.rank());
  });
  for (const std::string& e : ring) CHECK(e.empty());
}

TEST_CASE(
    "[S42] groups: a rank that does not come to a message is named when the deadline passes") {
  const auto errors = errors_on_ranks(
      3,
      [](const Group& group) {
        if (group.rank() == 0) group.recv(ones({5}), 1);
        if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
      },
      0.2);
  CHECK(
      has(errors[0], "[recv] rank 1 did not come to this call within 0.2 s; rank 0 waited for it"));
  CHECK(errors[1].empty());
}

TEST_CASE("[S42] groups: a rank that ends is an error for those that wait for its message") {
  const auto errors = errors_on_ranks(4, [](const Group& group) {
    const Tensor x = ones({5});
    if (group.rank() == 0) group.recv(x, 1);
    if (group.rank() == 1) return;
    // Ranks that do not need it go on.
    if (group.rank() >= 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (group.rank() == 2) group.send(x, 3);
    if (group.rank() == 3) group.recv(x, 2);
  });
  CHECK(has(errors[0], "[recv] rank 1 ended before it came to this call"));
  CHECK(errors[2].empty());
  CHECK(errors[3].empty());
}

TEST_CASE("[S42] groups: a rank that fails is known in every part that it is in") {
  // Rank 3 throws. Rank 2 waits for it in one part, rank 1 in another; rank 0 waits for rank 1.
  const auto threw = on_ranks<std::string>(4, [](const Group& group) -> std::string {
    const Group row = group.split(group.rank() / 2), column = group.split(group.rank() % 2);
    const auto body = [&] {
      const Tensor x = ones({5});
      if (group.rank() == 3) return;
      if (group.rank() == 2) row.recv(x, 1);
      if (group.rank() == 1) column.all_reduce(x);
      if (group.rank() == 0) row.recv(x, 1);
    };
    try {
      body();
    } catch (const RankError& e) {
      return std::to_string(e.peer()) + " " + e.what();
    }
    return {};
  });
  CHECK(has(threw[2], "1 [recv] rank 1 (rank 3 of all) ended before it came to this call"));
  CHECK(has(threw[1], "1 [all_reduce] rank 1 (rank 3 of all) ended before it came to this call"));
  CHECK(has(threw[0], "1 [recv] rank 1 (rank 1 of all) ended before it came to this call"));
  CHECK(threw[3].empty());

  // A part that was made after the rank has gone, and a handle that outlives the run.
  Group kept;
  CHECK_THROWS_AS(run_local(2,
                            [&](const Group& group) {
                              if (group.rank() == 1) {
                                group.split(1);
                                throw std::runtime_error("no more disk");
                              }
                              kept = group.split(0);
                              group.recv(ones({2}), 1);
                            }),
                  std::runtime_error);
  CHECK_THROWS_AS(kept.barrier(), RankError);
}

TEST_CASE("groups: a part that is broken leaves the others whole") {
  const auto errors = errors_on_ranks(4, [](const Group& group) {
    const Group part = group.split(group.rank() / 2);
    if (group.rank() < 2) {
      try {
        part.all_reduce(ones({2 + group.rank()}));
      } catch (const RankError&) {
      }
    } else {
      part.all_reduce(ones({2}));
    }
    group.barrier();
    if (group.rank() < 2) part.barrier();
  });
  CHECK(has(errors[0], "[barrier] rank 0 (rank 0 of all) and rank 1 (rank 1 of all) have made"));
  CHECK(has(errors[1], "have made different calls before"));
  CHECK(errors[2].empty());
  CHECK(errors[3].empty());
}

}  // namespace
}  // namespace firn::testing
