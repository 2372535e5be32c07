// A training process is killed before, within and after every system call of a save. Another
// process goes on with what is there, and ends with the bits of the training that nobody killed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "durability/syscalls.h"
#include "durability/training.h"
#include "firn/firn.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using Kind = Fault::Kind;

constexpr std::int64_t kSaved = 3, kKilled = 6, kSteps = 9;

/// Loads what is there, or begins.
Training begun(const std::string& path) {
  Training run(f16);
  if (std::filesystem::exists(path)) {
    run.scramble();
    run.load(path);
  }
  return run;
}

/// A child process trains up to micro-step kKilled and saves under the rule. Returns how it ended.
int status_of_child(const FastFolder& folder, const std::string& path, const Rule& rule) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      set_num_threads(1);
      Training run = begun(path);
      run.train_until(kKilled);
      const Plan plan(folder.path(), rule);
      run.save(path);
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("[S32][S34] kill: a training killed at any system call of a save ends with the same bits",
          "[host]") {
  Training whole(f16);
  whole.train_until(kSaved);
  const FastFolder made;
  whole.save(made.file("run.safetensors"));
  const Snapshot old_files = snapshot_of(made.path());
  whole.train_until(kSteps);

  std::size_t kills = 0, from_old = 0, from_new = 0;
  for (const Snapshot& before : {old_files, Snapshot{}}) {
    const FastFolder folder;
    const std::string path = folder.file("run.safetensors");
    restore(folder.path(), before);
    std::vector<Call> calls;
    {
      Training run = begun(path);
      run.train_until(kKilled);
      const Plan plan(folder.path());
      run.save(path);
      calls = plan.calls();
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (kSlow && calls[i].name == "write" && i % 8 != 0) continue;
      for (const Kind kind : {Kind::kill_before, Kind::kill_within, Kind::kill_after}) {
        if (kind == Kind::kill_within && calls[i].data.size() < 2) continue;
        INFO("call " << i << ", " << to_string(calls[i]) << ", " << static_cast<int>(kind));
        restore(folder.path(), before);
        const int status = status_of_child(folder, path, at(i, {kind}));
        REQUIRE(WIFSIGNALED(status));
        REQUIRE(WTERMSIG(status) == SIGKILL);
        ++kills;
        Training run = begun(path);
        const std::int64_t start = run.done();
        CHECK((start == kKilled || start == (before.empty() ? 0 : kSaved)));
        ++(start == kKilled ? from_new : from_old);
        run.train_until(kSteps);
        REQUIRE(run.bits() == whole.bits());
        const Plan plan(folder.path());
        run.save(path);
        CHECK(snapshot_of(folder.path()).size() == 1);
      }
    }
    // A child that nobody kills saves and ends.
    restore(folder.path(), before);
    REQUIRE(status_of_child(folder, path, {}) == 0);
    CHECK(begun(path).done() == kKilled);
  }
  CHECK(kills > (kSlow ? 40 : 200));
  CHECK(from_old > 0);
  CHECK(from_new > 0);
}

}  // namespace firn::testing
