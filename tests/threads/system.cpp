// What the operating system does to threads: fork() while another thread computes, and threads that
// it refuses.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "data/loader_sets.h"
#include "firn/firn.h"
#include "kernels/cpu/device/parallel.h"
#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

using namespace firn;
using firn::testing::Threads;
using firn::testing::values_of;
using kernels::cpu::parallel_for;

#if !defined(__SANITIZE_THREAD__)  // which allows no threads after fork()
namespace {

/// Runs `body` in a child process, for at most 20 seconds. Whether it returned true.
bool in_child(const std::function<bool()>& body) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    for (const int s : {SIGSEGV, SIGABRT, SIGALRM}) signal(s, SIG_DFL);
    alarm(20);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) FAIL_CHECK("the child ended by signal " << WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__)  // whose own allocator another thread may hold at fork()
TEST_CASE("fork while another thread computes: the child computes too", "[host][threads]") {
  const Threads threads(4);
  manual_seed(1);
  const Tensor a = randn({96, 96}), b = randn({96, 96});
  const Tensor x = randn({2, 8, 10, 10}), w = randn({8, 8, 3, 3});
  const auto work = [&] {
    std::vector<double> all = values_of(matmul(a, b).sum());
    for (const double v : values_of(conv2d(x, w).sum())) all.push_back(v);
    return all;
  };
  const std::vector<double> expected = work();
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) work();
  });
  int failed = 0;
  for (int i = 0; i < 500 && failed == 0; ++i)
    if (!in_child([&] { return work() == expected; })) ++failed;
  done = true;
  other.join();
  CHECK(failed == 0);
  CHECK(work() == expected);
}
#endif

TEST_CASE("a child of fork goes on with a loader, by threads of its own", "[host][threads]") {
  data::Loader whole(test::bad_set(60, {}, true), {.batch = 7, .workers = 2});
  whole.seek({0, 7});
  const std::uint64_t expected = test::hash_of(whole, 0);
  data::Loader loader(test::bad_set(60, {}, true), {.batch = 7, .workers = 2});
  for (const auto& batch : loader) {
    CHECK(batch.size() == 7);
    break;  // threads are making further batches
  }
  CHECK(in_child([&] {
    data::Loader here = std::move(loader);
    here.seek(here.position());
    return test::hash_of(here, 0) == expected;
  }));
  CHECK(in_child([&] {
    const data::Loader unused = std::move(loader);  // and is destroyed
    return true;
  }));
  loader.seek(loader.position());
  CHECK(test::hash_of(loader, 0) == expected);
}

TEST_CASE("a child of fork uses threads of its own", "[host][threads]") {
  const Threads threads(3);
  const auto count = [] {
    std::vector<std::thread::id> ids(3);
    std::atomic<int> arrived{0};
    parallel_for(3, kernels::cpu::kParallelWork, [&](std::int64_t i) {
      ids[static_cast<std::size_t>(i)] = std::this_thread::get_id();
      ++arrived;
      while (arrived < 3) std::this_thread::yield();  // three threads, or this never ends
    });
    return ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2];
  };
  CHECK(count());
  CHECK(in_child(count));
}

#if !defined(__SANITIZE_ADDRESS__)  // which needs terabytes of address space
TEST_CASE("threads that the system refuses: fewer compute, with the same result",
          "[host][threads]") {
  std::vector<double> expected(64);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<double>(i * i);
  const auto squares = [&] {
    std::vector<double> out(64);
    parallel_for(64, kernels::cpu::kParallelWork, [&](std::int64_t i) {
      out[static_cast<std::size_t>(i)] = static_cast<double>(i * i);
    });
    return out;
  };
  CHECK(in_child([&] {
    const Threads threads(64);
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    // Address space for two threads: a stack takes 8 MiB.
    const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (20U << 20);
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return false;
    for (int i = 0; i < 100; ++i)
      if (squares() != expected) return false;
    int made = 0;  // the limit is one that refuses 63 threads
    try {
      for (; made < 63; ++made) std::thread([] { pause(); }).detach();
    } catch (const std::system_error&) {
      return true;
    }
    return false;
  }));
}
#endif
#endif
