#include "alloc_sweep/sweep.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <typeinfo>

#include "alloc_sweep/failing.h"
#include "firn/error.h"
#include "firn/memory.h"
#include "runtime/memory/fail_allocation.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

// Sweeps try so many failures one by one, then every third, unless FIRN_SWEEP_ALL is set.
constexpr int kOneByOne = 40, kLater = 3;

/// Runs `body` in a child process. What it returns comes back, with the status of its end.
struct Child {
  int status = 0;
  std::string said;
  bool ended_as(Tried how) const {
    return WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(how);
  }
};
Child in_child(const std::function<Tried(std::string& said)>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    close(ends[0]);
    for (const int s : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) signal(s, SIG_DFL);
    alarm(60);
    std::string said;
    const Tried tried = body(said);
    for (std::size_t at = 0; at < said.size();) {
      const ssize_t n = write(ends[1], said.data() + at, said.size() - at);
      if (n <= 0) break;
      at += static_cast<std::size_t>(n);
    }
    _exit(static_cast<int>(tried));
  }
  close(ends[1]);
  Child child;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    child.said.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  waitpid(pid, &child.status, 0);
  return child;
}

std::string describe_end(const Child& child) {
  if (WIFSIGNALED(child.status))
    return std::string("ended by ") + strsignal(WTERMSIG(child.status));
  return "exit " + std::to_string(WEXITSTATUS(child.status)) + ": " + child.said.substr(0, 600);
}

/// Runs `body` in a thread that has nothing cached, and passes on what it throws.
void in_thread(const std::function<void()>& body) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

/// One try with the failure that `fail` arms, and another without. If `warm`, a run goes before.
template <class Fail>
Tried attempt(const MakeWork& make, const std::string& expected, const Fail& fail, bool warm,
              std::string& said) {
  const std::unique_ptr<Work> work = make();
  std::string before = work->kept();
  FailingHeap::forget();
  release_cached_memory();
  bool threw = false;
  try {
    in_thread([&] {
      if (warm) {
        work->run();
        before = work->kept();
      }
      const auto armed = fail();
      work->run();
    });
  } catch (const Error&) {
    threw = true;
  } catch (const std::exception& e) {
    said = std::string("it threw ") + typeid(e).name() + ": " + e.what();
    return Tried::wrong;
  }
  if (threw) {
    if (work->kept() != before) {
      said = "a failure changed what it should have left alone";
      return Tried::wrong;
    }
    work->prepare_again();
    in_thread([&] { work->run(); });
  }
  if (work->made() != expected) {
    said = threw ? "the second try made something else" : "a failure that was hidden shows";
    return Tried::wrong;
  }
  return threw ? Tried::threw : FailingHeap::fired() ? Tried::hidden : Tried::done;
}

std::string without_failure(const MakeWork& make, bool warm = false) {
  const std::unique_ptr<Work> work = make();
  in_thread([&] {
    work->run();
    if (warm) work->run();
  });
  return work->made();
}

/// The same in a process of its own: this one, and so all children, have made nothing that a
/// process makes once.
std::string without_failure_elsewhere(const MakeWork& make) {
  const Child reference = in_child([&](std::string& said) {
    said = without_failure(make);
    return Tried::done;
  });
  REQUIRE(reference.ended_as(Tried::done));
  return reference.said;
}

template <class FailAt>
int sweep_with(const MakeWork& make, const std::string& expected, const FailAt& fail_at,
               std::int64_t step, bool warm = false) {
  return sweep_attempts(
      [&](std::int64_t k, std::string& said) {
        return attempt(make, expected, fail_at(k), warm, said);
      },
      step);
}

}  // namespace

int sweep_attempts(const Attempt& attempt, std::int64_t stride) {
  if (const char* at = std::getenv("FIRN_SWEEP_AT")) {
    std::string said;
    const Tried tried = attempt(std::atoll(at), said);
    WARN("allocation " << at << ": exit " << static_cast<int>(tried) << ": " << said);
    return 0;
  }
  const bool all = std::getenv("FIRN_SWEEP_ALL") != nullptr;
  int failed = 0, wrong = 0;
  std::string reports;
  for (std::int64_t k = 0, tries = 0;; ++tries) {
    const int stands_for = all || tries < kOneByOne ? 1 : kLater;
    const Child child = in_child([&](std::string& said) { return attempt(k, said); });
    if (child.ended_as(Tried::done)) break;
    if (child.ended_as(Tried::threw)) {
      failed += stands_for;
    } else if (!child.ended_as(Tried::hidden)) {
      ++wrong;
      if (wrong <= 20)
        reports += "allocation " + std::to_string(k) + ": " + describe_end(child) + "\n";
    }
    k += stands_for * stride;
    REQUIRE(k < 100000 * stride);
  }
  INFO(failed << " failures were errors, " << wrong << " were not:\n" << reports);
  CHECK(wrong == 0);
  return failed;
}

int sweep(const MakeWork& make, Fails what, int stride) {
  const bool warm = what == Fails::warm_heap;
  const std::string expected = without_failure(make, warm);
  if (what != Fails::blocks) {
    const bool sticky = what == Fails::heap_for_good;
    return sweep_with(
        make, expected,
        [=](std::int64_t k) {
          return [=] { return FailingHeap(k, {.sticky = sticky, .covered_too = warm}); };
        },
        stride, warm);
  }
  return sweep_with(
      make, expected,
      [](std::int64_t k) { return [k] { return FailAllocation(static_cast<std::uint64_t>(k)); }; },
      stride);
}

int sweep_first_use(const MakeWork& make) {
  return sweep_with(
      make, without_failure_elsewhere(make),
      [](std::int64_t k) { return [k] { return FailingHeap(k); }; }, 1);
}

int sweep_limits(const MakeWork& make, std::int64_t step) {
  return sweep_with(
      make, without_failure_elsewhere(make),
      [](std::int64_t bytes) { return [bytes] { return LimitedHeap(bytes); }; }, step);
}

}  // namespace firn::testing
