// Every system call of a save fails once, in every way: the save reports it or is not hurt by it,
// the old file stays as it was, nothing is left behind, and the training goes on.
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "durability/syscalls.h"
#include "durability/training.h"
#include "firn/firn.h"
#include "firn/io/npy.h"
#include "io/bits.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using Kind = Fault::Kind;
using Path = std::filesystem::path;

/// A kind of file under test.
struct Saver {
  std::string target;  ///< the file whose rename makes the new state
  std::function<void(const Path& folder)> save;
  std::function<std::string(const Path& folder)> load;  ///< the bits of what the folder has
  std::function<std::string()> wanted;                  ///< the bits that save() writes now
  std::function<void()> go_on = [] {};                  ///< called after each fault
};

/// What a save did under a rule.
struct Outcome {
  std::string error;  ///< empty if it returned
  std::vector<Call> calls;
  Snapshot files;
  std::size_t leaked = 0;
};

Outcome save_under(const Saver& saver, const Path& folder, const Rule& rule) {
  Outcome out;
  const std::size_t descriptors = open_descriptors();
  {
    const Plan plan(folder, rule);
    try {
      saver.save(folder);
    } catch (const IoError& e) {
      out.error = e.what();
    }
    out.calls = plan.calls();
  }
  out.leaked = open_descriptors() - descriptors;
  out.files = snapshot_of(folder);
  return out;
}

bool is_replaced(const Outcome& outcome, const std::string& target) {
  for (const Call& call : outcome.calls)
    if (call.name == "rename" && call.target == target && call.is_done()) return true;
  return false;
}

std::vector<Fault> faults_of(const Call& call) {
  std::vector<Fault> out;
  for (const int error : {ENOSPC, EIO, EDQUOT, EINTR}) out.push_back({Kind::error, error});
  if (call.name == "write") {
    out.push_back({Kind::shortened, ENOSPC, 0});  // for ever, some file systems that are full
    if (call.data.size() > 1) out.push_back({Kind::shortened, 0, 1});
    if (call.data.size() > 3) out.push_back({Kind::shortened, 0, call.data.size() / 2});
  }
  return out;
}

enum class Answer { success, error, either };

/// What the save must answer to a fault of a call.
Answer answer_to(const Call& call, const Fault& fault) {
  if (fault.kind == Kind::shortened) return fault.bytes > 0 ? Answer::success : Answer::error;
  if (fault.error == EINTR)
    return call.name == "write" || call.name == "flock" ? Answer::success : Answer::either;
  // Locks and left-overs are no part of the new file, and the bytes are on the disk before close().
  for (const char* name : {"flock", "close", "unlink", "fstat", "fstatat"})
    if (call.name == name) return Answer::success;
  // opendir(), and reading what may be a left-over or an old index.
  if (call.name == "open" && (call.flags & O_NONBLOCK) != 0) return Answer::success;
  return Answer::error;
}

/// After a fault: the old state or the new one, whole, and a next save that works.
void check_after(const Saver& saver, const Path& folder, const Snapshot& before,
                 const std::string& old_bits, const Outcome& outcome) {
  CHECK(outcome.leaked == 0);
  const bool replaced = is_replaced(outcome, saver.target);
  if (outcome.error.empty()) CHECK(replaced);
  CHECK(saver.load(folder) == (replaced ? saver.wanted() : old_bits));
  if (!replaced)
    for (const auto& [name, bytes] : without_temporaries(before))
      CHECK((outcome.files.contains(name) && outcome.files.at(name) == bytes));
  saver.go_on();
  const Outcome next = save_under(saver, folder, {});
  CHECK(next.error.empty());
  CHECK(temporaries_in(next.files) == 0);
  CHECK(saver.load(folder) == saver.wanted());
}

void check_single_fault(const Saver& saver, const Path& folder, const Snapshot& before,
                        const std::string& old_bits, std::size_t index, const Fault& fault,
                        const Call& call) {
  restore(folder, before);
  const Outcome outcome = save_under(saver, folder, at(index, fault));
  INFO("call " << index << ", " << to_string(call) << ", error " << fault.error << ", bytes "
               << fault.bytes << ": " << outcome.error);
  const Answer answer = answer_to(call, fault);
  if (answer == Answer::success) CHECK(outcome.error.empty());
  if (answer == Answer::error) CHECK_FALSE(outcome.error.empty());
  if (!outcome.error.empty()) {
    CHECK(outcome.error.find(folder.string()) != std::string::npos);
    CHECK(outcome.error.find(std::strerror(fault.error)) != std::string::npos);
    if (!is_replaced(outcome, saver.target))
      CHECK(without_temporaries(outcome.files) == without_temporaries(before));
  }
  for (const auto& [name, bytes] : outcome.files)
    if (is_temporary(name))  // a left-over that could not be removed, or one of this save's own
      CHECK((before.contains(name) ||
             (call.name == "unlink" && outcome.calls[index].path.ends_with(name))));
  if (call.name == "fsync" && fault.error != EINTR) {
    for (std::size_t i = index + 1; i < outcome.calls.size(); ++i)
      CHECK((outcome.calls[i].name != "rename" || outcome.calls[i].path != call.path));
  }
  check_after(saver, folder, before, old_bits, outcome);
}

/// From call `index` on, everything fails (the disk is gone), or what needs space.
Rule sticky(std::size_t index, int error) {
  return [=](const Call& call, std::size_t i) {
    const bool needs_space = call.creates() || call.name == "write" || call.name == "fsync";
    return i >= index && (error == EIO || needs_space) ? Fault{Kind::error, error} : Fault{};
  };
}

/// All faults of a save over what the folder has `before`.
void sweep(const Saver& saver, const Snapshot& before) {
  const FastFolder temporary;
  const Path& folder = temporary.path();
  restore(folder, before);
  const std::string old_bits = saver.load(folder);
  const Outcome whole = save_under(saver, folder, {});
  REQUIRE(whole.error.empty());
  REQUIRE(saver.load(folder) == saver.wanted());
  REQUIRE(saver.wanted() != old_bits);
  REQUIRE(whole.calls.size() > 10);  // the plan sees them

  for (std::size_t i = 0; i < whole.calls.size(); ++i) {
    if (kSlow && whole.calls[i].name == "write" && i % 4 != 0) continue;
    for (const Fault& fault : faults_of(whole.calls[i]))
      check_single_fault(saver, folder, before, old_bits, i, fault, whole.calls[i]);
    for (const int error : {ENOSPC, EIO}) {
      restore(folder, before);
      const Outcome outcome = save_under(saver, folder, sticky(i, error));
      INFO("from call " << i << " on, " << to_string(whole.calls[i]) << ", error " << error << ": "
                        << outcome.error);
      // A disk that is full still removes files.
      if (error == ENOSPC && !is_replaced(outcome, saver.target))
        CHECK(without_temporaries(outcome.files) == without_temporaries(before));
      if (error == ENOSPC) CHECK(temporaries_in(outcome.files) <= temporaries_in(before));
      check_after(saver, folder, before, old_bits, outcome);
    }
  }
}

std::vector<NamedTensor> model(int version) {
  Generator g(static_cast<std::uint64_t>(version));
  const GeneratorScope scope(g);
  return {{"a", randn({40, 5})}, {"b", randn({30})}, {"c", randn({50}).to(f16)}};
}

std::string bits_of(const std::vector<NamedTensor>& tensors) {
  std::string all;
  for (const auto& [name, t] : tensors) all += name + testing::bits_of(t);
  return all;
}

/// What a saver leaves in an empty folder.
Snapshot made_by(const std::function<void(const Path&)>& save) {
  const FastFolder folder;
  save(folder.path());
  return snapshot_of(folder.path());
}

Saver shards(std::uint64_t max_bytes) {
  return {"model.safetensors.index.json",
          [=](const Path& folder) {
            io::save_safetensors_shards(folder.string(), model(2), {}, {.max_bytes = max_bytes});
          },
          [](const Path& folder) { return bits_of(io::load_safetensors(folder.string())); },
          [] { return bits_of(model(2)); }};
}

}  // namespace

TEST_CASE("[S32] faults: every system call of save_run() fails in every way, and training goes on",
          "[host]") {
  Training live, undisturbed;
  live.train_until(2), undisturbed.train_until(2);
  Snapshot before =
      made_by([&](const Path& folder) { live.save((folder / "run.safetensors").string()); });
  before["run.safetensors.tmp-0123456789abcdef"] = "a dead process left this";
  live.micro_step(), undisturbed.micro_step();
  const Saver saver{"run.safetensors",
                    [&](const Path& folder) { live.save((folder / "run.safetensors").string()); },
                    [](const Path& folder) {
                      Training again(f32, 77);
                      again.load((folder / "run.safetensors").string());
                      return again.bits();
                    },
                    [&] { return live.bits(); },
                    [&] {
                      // A cycle, so that each save has the same calls.
                      for (int i = 0; i < 2; ++i) live.micro_step(), undisturbed.micro_step();
                      CHECK(live.bits() == undisturbed.bits());
                    }};
  sweep(saver, before);
  CHECK(live.done() > 100);
}

TEST_CASE("[S32] faults: every system call of save_safetensors() and write_npy() fails", "[host]") {
  const auto save = [](int version) {
    return [=](const Path& folder) {
      io::save_safetensors((folder / "w.safetensors").string(), model(version));
    };
  };
  sweep({"w.safetensors", save(2),
         [](const Path& folder) {
           return bits_of(io::load_safetensors((folder / "w.safetensors").string()));
         },
         [] { return bits_of(model(2)); }},
        made_by(save(1)));
  const auto save_npy = [](int version) {
    return [=](const Path& folder) {
      io::write_npy((folder / "a.npy").string(), model(version)[0].tensor);
    };
  };
  sweep({"a.npy", save_npy(2),
         [](const Path& folder) {
           return testing::bits_of(io::read_npy((folder / "a.npy").string()));
         },
         [] { return testing::bits_of(model(2)[0].tensor); }},
        made_by(save_npy(1)));
}

TEST_CASE("[S32] faults: every system call of save_safetensors_shards() fails", "[host]") {
  // 500 bytes: several files. 1 MB: one, whose name the old model has already.
  for (const std::uint64_t most : {500, 1'000'000}) {
    INFO("at most " << most << " bytes a file");
    sweep(shards(most), made_by([&](const Path& folder) {
            io::save_safetensors_shards(folder.string(), model(1), {}, {.max_bytes = most});
          }));
  }
}

TEST_CASE("faults: a rename that is done but reports an error leaves the new file, whole",
          "[host]") {
  const FastFolder folder;
  const std::string path = folder.file("w.safetensors");
  io::save_safetensors(path, model(1));
  const Plan plan(folder.path(), [](const Call& call, std::size_t) {
    return call.name == "rename" ? Fault{Kind::error_after, EIO} : Fault{};
  });
  CHECK_THROWS_AS(io::save_safetensors(path, model(2)), IoError);
  CHECK(bits_of(io::load_safetensors(path)) == bits_of(model(2)));
  CHECK(snapshot_of(folder.path()).size() == 1);
}

TEST_CASE("faults: a folder that cannot be flushed is reported, the new file is whole", "[host]") {
  const FastFolder folder;
  const std::string path = folder.file("w.safetensors");
  const auto save = [&](const char* name, int error) -> std::string {
    const Plan plan(folder.path(), [=](const Call& call, std::size_t) {
      const bool flushes = call.name == name && call.path.empty() && (call.flags & O_NONBLOCK) == 0;
      return flushes ? Fault{Kind::error, error} : Fault{};
    });
    try {
      io::save_safetensors(path, model(error));
    } catch (const IoError& e) {
      return e.what();
    }
    return {};
  };
  const std::string said = save("fsync", EIO);
  INFO(said);
  CHECK(said.find("is written, but its folder cannot be flushed to disk: Input/output error") !=
        std::string::npos);
  CHECK(bits_of(io::load_safetensors(path)) == bits_of(model(EIO)));
  // A file system without such a flush, and a folder that may be written but not read.
  CHECK(save("fsync", EINVAL).empty());
  CHECK(bits_of(io::load_safetensors(path)) == bits_of(model(EINVAL)));
  CHECK(save("open", EACCES).empty());
  CHECK(bits_of(io::load_safetensors(path)) == bits_of(model(EACCES)));
  // A process without a free descriptor notices before the rename.
  CHECK_FALSE(save("open", EMFILE).empty());
  CHECK(bits_of(io::load_safetensors(path)) == bits_of(model(EACCES)));
  CHECK(snapshot_of(folder.path()).size() == 1);
}

}  // namespace firn::testing
