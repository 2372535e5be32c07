// The order of a save's system calls, and the plans that record them.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "durability/syscalls.h"
#include "durability/training.h"
#include "firn/firn.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using Path = std::filesystem::path;

std::vector<NamedTensor> model(double value) { return {{"a", full({100}, value)}}; }

/// The calls that change files, with "T" for the name of a temporary one; writes in a row are one.
std::vector<std::string> steps_of(const std::vector<Call>& calls) {
  std::vector<std::string> out;
  for (Call call : calls) {
    if (const auto mark = call.path.find(".tmp-"); mark != std::string::npos)
      call.path.replace(mark, 21, ".T");
    std::string text = call.creates() ? "create" : call.name;
    const bool changes = text == "create" || text == "write" || text == "fsync" ||
                         text == "rename" || text == "unlink" || text == "ftruncate";
    if (!changes) continue;
    text += " " + call.path + (call.target.empty() ? "" : " " + call.target);
    if (out.empty() || out.back() != text) out.push_back(text);
  }
  return out;
}

/// The steps of a save to `path`, and a check that it arrived.
std::vector<std::string> steps_of_save(const Path& folder, const std::string& path) {
  const Plan plan(folder);
  io::save_safetensors(path, model(3));
  return steps_of(plan.calls());
}

/// While alive, another folder is the current one.
class CurrentFolder {
 public:
  explicit CurrentFolder(const Path& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~CurrentFolder() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }
  CurrentFolder(const CurrentFolder&) = delete;
  CurrentFolder& operator=(const CurrentFolder&) = delete;

 private:
  Path before_;
};

}  // namespace

TEST_CASE("durability: bytes reach the disk before the name, and the name before the save returns",
          "[host]") {
  using Steps = std::vector<std::string>;
  const FastFolder folder;
  const Steps want = {"create w.T", "write w.T", "fsync w.T", "rename w.T w", "fsync "};
  CHECK(steps_of_save(folder.path(), folder.file("w")) == want);  // the first save
  CHECK(steps_of_save(folder.path(), folder.file("w")) == want);
  {
    const CurrentFolder current(folder.path());
    CHECK(steps_of_save(folder.path(), "w") == want);
    CHECK(steps_of_save(folder.path(), "./w") == want);
  }
  // If a link leads to another folder, that one has the names.
  std::filesystem::create_directory(folder.path() / "runs");
  std::filesystem::create_symlink("runs/7", folder.path() / "latest");
  CHECK(steps_of_save(folder.path(), folder.file("latest")) ==
        Steps{"create runs/7.T", "write runs/7.T", "fsync runs/7.T", "rename runs/7.T runs/7",
              "fsync runs"});
  CHECK(io::load_safetensors(folder.file("latest")).at(0).tensor.to_vector<float>()[99] == 3);
}

TEST_CASE("durability: old shards are removed when the new index's name is on the disk", "[host]") {
  const FastFolder folder;
  io::save_safetensors_shards(folder.path().string(), model(1));
  const Plan plan(folder.path());
  io::save_safetensors_shards(folder.path().string(), model(2));
  const std::string index = "model.safetensors.index.json";
  const std::string old_file = "model-00001-of-00001.safetensors";
  const std::string file = "model-r2-00001-of-00001.safetensors";
  CHECK(steps_of(plan.calls()) ==
        std::vector<std::string>{"create " + index + ".T",  // names the old files
                                 "write " + index + ".T", "create " + index + ".T",
                                 "write " + index + ".T", "create " + file + ".T",
                                 "write " + file + ".T", "fsync " + file + ".T",
                                 "rename " + file + ".T " + file, "fsync ", "fsync " + index + ".T",
                                 "rename " + index + ".T " + index, "fsync ", "unlink " + old_file,
                                 "unlink " + index + ".T"});
}

TEST_CASE("durability: a plan is about one folder, one thread and one scope", "[host]") {
  const FastFolder folder, other;
  const auto save = [](const FastFolder& to) {
    try {
      io::save_safetensors(to.file("w"), model(1));
    } catch (const IoError&) {
      return false;
    }
    return true;
  };
  {
    const Plan plan(folder.path(), [](const Call& call, std::size_t) {
      return call.name == "write" ? Fault{Fault::Kind::error, ENOSPC} : Fault{};
    });
    CHECK_FALSE(save(folder));
    const std::size_t seen = plan.calls().size();
    CHECK(seen > 5);
    bool saved_by_thread = false;
    std::thread([&] { saved_by_thread = save(folder); }).join();
    CHECK(saved_by_thread);
    CHECK(plan.calls().size() == seen);
  }
  CHECK(save(folder));
  // A name that begins alike is another folder's.
  const Path sibling = folder.path().string() + "-other";
  std::filesystem::create_directory(sibling);
  {
    const Plan plan(folder.path());
    io::save_safetensors((sibling / "w").string(), model(1));
    CHECK(save(other));
    for (const Call& call : plan.calls()) CHECK(call.name == "getrandom");  // it has no file
  }
  std::filesystem::remove_all(sibling);
}

}  // namespace firn::testing
