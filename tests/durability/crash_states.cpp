// The power fails at any point of a save: every state of the disk that POSIX allows then is built
// in a folder and loaded. It is the old run or the new one, to the bit.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "durability/crash_model.h"
#include "durability/syscalls.h"
#include "durability/training.h"
#include "firn/firn.h"
#include "io/bits.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using Path = std::filesystem::path;

constexpr CrashSamples kSamples = kSlow ? CrashSamples{2, 2, 64} : CrashSamples{8, 8, 256};

/// Records the calls of `save` on a folder with these files, and leaves the folder as it is then.
std::vector<Call> recorded(const Path& folder, const Snapshot& before,
                           const std::function<void()>& save) {
  restore(folder, before);
  const Plan plan(folder);
  save();
  return plan.calls();
}

/// The log is complete if it makes the files that are there.
void check_log(const Path& folder, const Snapshot& before, const std::vector<Call>& calls) {
  CrashModel model(before, 1, kSamples);
  for (const Call& call : calls) model.apply(call);
  CHECK(model.live() == snapshot_of(folder));
}

const std::string kRun = "run.safetensors";

/// An old run, a new one, and what a folder has of them.
struct Runs {
  Runs() {
    const FastFolder folder;
    const std::string path = folder.file(kRun);
    Training run(f16);
    run.train_until(3);
    old_bits = run.bits();
    run.save(path);
    old_files = snapshot_of(folder.path());
    run.train_until(5);
    new_bits = run.bits();
    run.save(path);
    new_files = snapshot_of(folder.path());
  }
  /// Empty, or what is wrong with the folder.
  std::string judge(const Path& folder, bool had_old, bool returned) {
    const std::string path = (folder / kRun).string();
    if (!std::filesystem::exists(path))
      return had_old || returned ? "there is no file" : std::string();
    probe.scramble();
    try {
      probe.load(path);
    } catch (const IoError& e) {
      return e.what();
    }
    const std::string bits = probe.bits();
    if (bits == new_bits || (bits == old_bits && had_old && !returned)) return {};
    return bits == old_bits ? "the old run is back" : "a mixture";
  }

  Training probe{f16, 50};
  std::string old_bits, new_bits;
  Snapshot old_files, new_files;
};

/// Judges every crash; returns the different complaints, each with the first point that has it.
struct Verdict {
  std::size_t states = 0, with_old = 0, with_new = 0, with_temporaries = 0;
  std::vector<std::string> complaints;
};
Verdict judged(Runs& runs, const Snapshot& before, const std::vector<Call>& calls,
               const std::function<void(const Path&)>& after_each = {}) {
  const FastFolder folder;
  Verdict out;
  std::set<std::string> seen;
  out.states = for_each_crash(
      before, calls, kSamples, [&](const Snapshot& files, bool returned, const std::string& where) {
        restore(folder.path(), files);
        const std::string what = runs.judge(folder.path(), before.contains(kRun), returned);
        if (!what.empty()) {
          const std::string kind = what.substr(what.rfind(": ") + 1);
          if (seen.insert(kind).second) out.complaints.push_back(where + ": " + what);
          return;
        }
        const bool is_new = files.contains(kRun) && files.at(kRun) == runs.new_files.at(kRun);
        ++(is_new ? out.with_new : out.with_old);
        if (temporaries_in(files) == 0) return;
        ++out.with_temporaries;
        if (after_each) after_each(folder.path());
      });
  return out;
}

/// Bytes of a file, written as careless programs do it.
struct Careless {
  bool in_place = false;
  bool flush_first = true;
  bool flush_after = false;
  bool flush_folder = true;
};
void write_careless(const Path& folder, const std::string& bytes, const Careless& how) {
  const std::string path = (folder / kRun).string();
  const std::string temporary = path + ".tmp-0123456789abcdef";
  const int fd =
      ::open((how.in_place ? path : temporary).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  REQUIRE(fd >= 0);
  for (std::size_t at = 0; at < bytes.size(); at += 700) {
    const std::size_t n = std::min<std::size_t>(700, bytes.size() - at);
    REQUIRE(::write(fd, bytes.data() + at, n) == static_cast<ssize_t>(n));
  }
  if (how.flush_first) ::fsync(fd);
  if (!how.in_place) REQUIRE(std::rename(temporary.c_str(), path.c_str()) == 0);
  if (how.flush_after) ::fsync(fd);
  ::close(fd);
  if (!how.flush_folder) return;
  const int names = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  REQUIRE(names >= 0);
  ::fsync(names);
  ::close(names);
}

/// The complaints about a careless save over the old run.
std::string complaints_about(Runs& runs, const Careless& how) {
  const FastFolder folder;
  const auto calls = recorded(folder.path(), runs.old_files,
                              [&] { write_careless(folder.path(), runs.new_files.at(kRun), how); });
  check_log(folder.path(), runs.old_files, calls);
  std::string all;
  for (const std::string& text : judged(runs, runs.old_files, calls).complaints) all += text + "\n";
  return all;
}

std::vector<NamedTensor> model(int version) {
  Generator g(static_cast<std::uint64_t>(version));
  const GeneratorScope scope(g);
  return {{"a", randn({60, 5})}, {"b", randn({200})}, {"c", randn({300}).to(f16)}};
}

std::string bits_of(const std::vector<NamedTensor>& tensors) {
  std::string all;
  for (const auto& [name, t] : tensors) all += name + testing::bits_of(t);
  return all;
}

}  // namespace

TEST_CASE(
    "[S32] crash_states: a save_run() that the power failure stops leaves the old run or the new",
    "[host]") {
  Runs runs;
  Training next(f16);
  next.train_until(6);
  // Over an old file, over one with what a dead process left, and the first save of all.
  Snapshot with_leftover = runs.old_files;
  with_leftover[kRun + ".tmp-00000000000000aa"] = runs.new_files.at(kRun).substr(0, 900);
  for (const Snapshot& before : {runs.old_files, with_leftover, Snapshot{}}) {
    const FastFolder folder;
    Training run(f16);
    run.train_until(5);
    const auto calls =
        recorded(folder.path(), before, [&] { run.save((folder.path() / kRun).string()); });
    check_log(folder.path(), before, calls);
    std::size_t tried = 0;
    const Verdict verdict = judged(runs, before, calls, [&](const Path& crashed) {
      // What the crash left does not disturb the next save, which removes it.
      if (++tried % (kSlow ? 20 : 4) != 1) return;
      const Plan plan(crashed);
      next.save((crashed / kRun).string());
      CHECK(temporaries_in(snapshot_of(crashed)) == 0);
    });
    for (const std::string& complaint : verdict.complaints) FAIL_CHECK(complaint);
    CHECK(verdict.states > (kSlow ? 100 : 500));
    CHECK(verdict.with_old > 100);
    CHECK(verdict.with_new >= 2);
    CHECK(verdict.with_temporaries > 100);
    CHECK(tried > 100);
  }
}

TEST_CASE("crash_states: saves that leave out a flush are found out", "[host]") {
  Runs runs;
  const auto says = [&](const Careless& how, const char* what) {
    const std::string complaints = complaints_about(runs, how);
    INFO(complaints);
    CHECK(complaints.find(what) != std::string::npos);
  };
  CHECK(complaints_about(runs, {}).empty());  // a careful one
  says({.in_place = true}, "before call 1, write(run.safetensors, 700 bytes at 0): [load_");
  says({.flush_first = false}, ", close(run.safetensors): [load_");
  says({.flush_first = false, .flush_after = true}, ", fsync(run.safetensors): [load_");
  says({.flush_folder = false}, "after the save returned: the old run is back");
}

TEST_CASE("[S32] crash_states: a folder of shards has the old model or the new one", "[host]") {
  const std::string old_bits = bits_of(model(1)), new_bits = bits_of(model(2));
  const std::string index = "model.safetensors.index.json";
  const auto save = [](const Path& folder, int version) {
    io::save_safetensors_shards(folder.string(), model(version), {},
                                {.max_bytes = version == 1 ? 900U : 1300U});
  };
  const FastFolder first;
  save(first.path(), 1);
  for (const Snapshot& before : {snapshot_of(first.path()), Snapshot{}}) {
    const FastFolder folder, crashed;
    const auto calls = recorded(folder.path(), before, [&] { save(folder.path(), 2); });
    check_log(folder.path(), before, calls);
    std::size_t with_old = 0, with_new = 0;
    const auto check = [&](const Snapshot& files, bool returned, const std::string& where) {
      INFO(where);
      restore(crashed.path(), files);
      if (!files.contains(index)) {
        CHECK((before.empty() && !returned));
        ++with_old;
        return;
      }
      const std::string bits = bits_of(io::load_safetensors(crashed.path().string()));
      CHECK((bits == new_bits || (bits == old_bits && !returned)));
      const bool is_new = bits == new_bits;
      ++(is_new ? with_new : with_old);
      if ((with_old + with_new) % (kSlow ? 20 : 4) != 1) return;
      const Plan plan(crashed.path());
      save(crashed.path(), is_new ? 1 : 2);
      CHECK(bits_of(io::load_safetensors(crashed.path().string())) ==
            (is_new ? old_bits : new_bits));
    };
    for_each_crash(before, calls, kSamples, check);
    CHECK(with_old > 50);
    CHECK(with_new >= 2);
  }
}

}  // namespace firn::testing
