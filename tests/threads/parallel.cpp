// The threads of CPU kernels: every chunk once, exceptions, nesting, two callers at a time.
#include "kernels/cpu/device/parallel.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/threads.h"

using namespace firn;
using kernels::cpu::kParallelWork;
using kernels::cpu::Order;
using kernels::cpu::parallel_for;
using testing::Threads;

TEST_CASE("parallel_for runs every chunk once, for any number of threads", "[host][threads]") {
  const Threads threads(GENERATE(1, 2, 3, 8));
  const Order order = GENERATE(Order::forward, Order::backward);
  for (int round = 0; round < 500; ++round) {
    std::vector<int> runs(static_cast<std::size_t>(1 + round % 70));
    parallel_for(
        static_cast<std::int64_t>(runs.size()), kParallelWork,
        [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; }, order);
    REQUIRE(runs == std::vector<int>(runs.size(), 1));
  }
}

TEST_CASE("parallel_for goes backward where it is asked to", "[host][threads]") {
  const Threads threads(1);
  std::vector<std::int64_t> seen;
  parallel_for(
      4, kParallelWork, [&](std::int64_t i) { seen.push_back(i); }, Order::backward);
  CHECK(seen == std::vector<std::int64_t>{3, 2, 1, 0});
}

TEST_CASE("parallel_for runs small work in the calling thread", "[host][threads]") {
  const Threads threads(4);
  const auto self = std::this_thread::get_id();
  parallel_for(50, kParallelWork - 1, [&](std::int64_t) {
    if (std::this_thread::get_id() != self) throw std::logic_error("another thread");
  });
}

TEST_CASE("parallel_for passes on the exception of the lowest chunk that threw",
          "[host][threads]") {
  const Threads threads(GENERATE(1, 4));
  for (int round = 0; round < 50; ++round) {
    std::string caught;
    try {
      parallel_for(40, kParallelWork, [&](std::int64_t i) {
        if (i >= 7) throw std::runtime_error("chunk " + std::to_string(i));
      });
    } catch (const std::runtime_error& e) {
      caught = e.what();
    }
    REQUIRE(caught == "chunk 7");
  }
  int runs = 0;  // and the threads are fit for more
  parallel_for(1, kParallelWork, [&](std::int64_t) { ++runs; });
  CHECK(runs == 1);
}

TEST_CASE("parallel_for inside parallel_for, and from two threads at a time", "[host][threads]") {
  const Threads threads(3);
  std::atomic<int> runs{0};
  const auto work = [&] {
    for (int round = 0; round < 200; ++round)
      parallel_for(6, kParallelWork, [&](std::int64_t) {
        parallel_for(4, kParallelWork, [&](std::int64_t) { ++runs; });
      });
  };
  std::thread other(work);
  work();
  other.join();
  CHECK(runs == 2 * 200 * 6 * 4);
}

TEST_CASE("kernels flush subnormals and give the caller's mode back", "[host][threads]") {
  const Threads threads(GENERATE(1, 3));
  volatile float tiny = 1e-40f, one = 1;
  float flushed = 1;
  parallel_for(8, kParallelWork, [&](std::int64_t i) {
    if (i == 0) flushed = tiny * one;
  });
  CHECK(flushed == 0);
  CHECK(tiny * one == 1e-40f);
}
