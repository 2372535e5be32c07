// What a save does to the file system: the target is replaced whole, whoever else saves, dies or
// has planted something at its path.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "data/files.h"
#include "firn/data/idx.h"
#include "firn/firn.h"
#include "firn/io/safetensors.h"
#include "io/file/atomic_file.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::error_of;
using firn::testing::values_of;
namespace fs = std::filesystem;

namespace {

std::vector<nn::NamedTensor> filled(double value, std::int64_t n = 1000) {
  return {{"a", full({n}, value)}, {"b", full({n}, value)}};
}

std::size_t files_in(const TempFolder& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()));
}

int mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return static_cast<int>(info.st_mode & 0777);
}

}  // namespace

TEST_CASE("save: threads that save to one path leave one of their files, whole", "[threads]") {
  const TempFolder folder;
  const std::string path = folder.file("w.safetensors");
  std::vector<std::string> errors(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      try {
        for (int i = 0; i < 50; ++i) io::save_safetensors(path, filled(t));
      } catch (const std::exception& e) {
        errors[static_cast<std::size_t>(t)] = e.what();
      }
    });
  for (int i = 0; i < 100; ++i) {
    if (!fs::exists(path)) continue;
    const auto loaded = io::load_safetensors(path);
    CHECK(values_of(loaded.at(0).tensor) == values_of(loaded.at(1).tensor));
  }
  for (auto& t : threads) t.join();
  CHECK(errors == std::vector<std::string>(4));
  CHECK(files_in(folder) == 1);
}

TEST_CASE("save: what a dead process left is removed, what a live one writes is not") {
  const TempFolder folder;
  const std::string path = folder.file("w.safetensors");
  write_file(folder.file("w.safetensors.tmp-notes"), "mine");
  write_file(folder.file("other.tmp-0123456789abcdef"), "another's");
  // The child writes and is killed in the middle.
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    io::AtomicFile file("save", path);
    file.write("half", 4);
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(0);
  }
  char c = 0;
  REQUIRE(::read(ready[0], &c, 1) == 1);
  CHECK(files_in(folder) == 3);
  io::save_safetensors(path, filled(1));
  CHECK(files_in(folder) == 4);  // the child's is still there, it is alive
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  io::save_safetensors(path, filled(2));
  CHECK(files_in(folder) == 3);
  CHECK(fs::exists(folder.file("w.safetensors.tmp-notes")));
  CHECK(fs::exists(folder.file("other.tmp-0123456789abcdef")));
  CHECK(values_of(io::load_safetensors(path).at(0).tensor).front() == 2);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("save: a temporary file is new and is never reached through a link") {
  const TempFolder folder;
  const std::string path = folder.file("w.safetensors");
  io::AtomicFile first("save", path), second("save", path);
  CHECK(first.temporary() != second.temporary());
  first.write("1", 1);
  second.write("22", 2);
  first.commit();
  second.commit();
  CHECK(read_file(path) == "22");
  // A link that bears a temporary file's name leads no writer to its victim.
  const std::string victim = write_file(folder.file("victim"), "victim");
  fs::create_symlink(victim, folder.file("w.safetensors.tmp-0123456789abcdef"));
  io::save_safetensors(path, filled(1));
  CHECK(read_file(victim) == "victim");
}

TEST_CASE("save: a file that goes to the disk in parts is whole") {
  const TempFolder folder;
  const std::string path = folder.file("large");
  std::string block(4099, '\0'), piece;
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(i % 251);
  while (piece.size() < (33 << 20)) piece += block;  // more than a part
  io::AtomicFile file("save", path);
  std::string want;
  for (const std::size_t n : {std::size_t{8}, piece.size(), piece.size() - 9}) {
    file.write(piece.data(), n);
    want.append(piece, 0, n);
  }
  file.commit();
  REQUIRE(fs::file_size(path) == want.size());
  std::string got(want.size(), '\0');
  std::ifstream(path, std::ios::binary).read(got.data(), static_cast<std::streamsize>(got.size()));
  CHECK((got == want));  // without a copy of both in the message
}

TEST_CASE("save: a link at the path stays, and what it points at is replaced") {
  const TempFolder folder;
  fs::create_directory(folder.path() / "runs");
  const std::string target = folder.file("runs/7.safetensors"), link = folder.file("latest");
  fs::create_symlink("runs/7.safetensors", link);
  io::save_safetensors(link, filled(1));  // a link to a file that is not there yet
  CHECK(fs::is_symlink(link));
  CHECK(values_of(io::load_safetensors(target).at(0).tensor).front() == 1);
  io::save_safetensors(link, filled(2));
  CHECK(fs::is_symlink(link));
  CHECK(values_of(io::load_safetensors(target).at(0).tensor).front() == 2);
  CHECK(files_in(folder) == 2);

  fs::create_symlink("loop", folder.file("loop"));
  CHECK_THAT(error_of([&] { io::save_safetensors(folder.file("loop"), filled(1)); }),
             contains("cannot be looked up: Too many levels of symbolic links"));
}

TEST_CASE("save: permissions of an old file stay, a new one has the usual ones") {
  const TempFolder folder;
  const std::string path = folder.file("w.safetensors");
  const mode_t mask = ::umask(022);
  io::save_safetensors(path, filled(1));
  CHECK(mode_of(path) == 0644);
  for (const int mode : {0600, 0640, 0666}) {
    REQUIRE(::chmod(path.c_str(), static_cast<mode_t>(mode)) == 0);
    io::save_safetensors(path, filled(2));
    CHECK(mode_of(path) == mode);
  }
  ::umask(mask);
}

TEST_CASE("save: only a regular file is replaced") {
  const TempFolder folder;
  const auto refused = [&](const std::string& path) {
    return error_of([&] { io::save_safetensors(path, filled(1)); });
  };
  CHECK_THAT(refused("/dev/full"), contains("is a device, not a regular file"));
  CHECK(fs::is_character_file("/dev/full"));
  REQUIRE(::mkfifo(folder.file("fifo").c_str(), 0600) == 0);
  CHECK_THAT(refused(folder.file("fifo")), contains("is a FIFO, not a regular file"));
  CHECK_THAT(refused(folder.path().string()), contains("is a directory, not a regular file"));
  CHECK_THAT(refused(folder.path().string() + "/"), contains("is a directory"));
  CHECK_THAT(refused(""), contains("] the path is empty; hint: name a file"));
  CHECK_THAT(refused(folder.file("no/such")), contains("no temporary file can be created beside"));
  fs::create_symlink("/dev/null", folder.file("null"));
  CHECK_THAT(refused(folder.file("null")), contains("is a device"));
  CHECK(files_in(folder) == 2);
}

TEST_CASE("save: a name as long as the system allows") {
  const TempFolder folder;
  const std::string path = folder.file(std::string(255, 'n'));
  io::save_safetensors(path, filled(1));
  io::save_safetensors(path, filled(2));
  CHECK(values_of(io::load_safetensors(path).at(0).tensor).front() == 2);
  CHECK(files_in(folder) == 1);
}

TEST_CASE("save and load: a path with a NUL character is refused, not cut off") {
  const TempFolder folder;
  const std::string before = folder.file("a"), path = before + std::string("\0b", 2);
  CHECK_THAT(error_of([&] { io::save_safetensors(path, filled(1)); }),
             contains("[save_safetensors] " + before + ": a NUL character follows"));
  CHECK(files_in(folder) == 0);
  io::save_safetensors(before, filled(1));
  CHECK_THAT(error_of([&] { io::load_safetensors(path); }),
             contains("[load_safetensors] " + before + ": a NUL character follows"));
  CHECK_THAT(error_of([&] { data::read_idx(path); }), contains("a NUL character follows"));
  CHECK_THAT(error_of([&] {
               io::save_safetensors(
                   before, std::vector<nn::NamedTensor>{{std::string("w\0x", 3), ones({1})},
                                                        {std::string("w\0x", 3), ones({1})}});
             }),
             contains("\"w\\x00x\" is used twice"));
}

TEST_CASE("save: what load would refuse is not written") {
  const TempFolder folder;
  const std::string path = folder.file("w.safetensors");
  const Tensor t = ones({1});
  const auto refused = [&](const std::vector<nn::NamedTensor>& tensors,
                           const std::vector<io::Metadata>& metadata = {}) {
    return error_of([&] { io::save_safetensors(path, tensors, metadata); });
  };
  CHECK_THAT(refused({{"w\xff", t}}), contains("the name \"w\\xff\" is not UTF-8"));
  CHECK_THAT(refused({{"w", t}}, {{"k\xc3", "v"}}),
             contains("metadata key \"k\\xc3\" is not UTF-8"));
  CHECK_THAT(refused({{"w", t}}, {{"k", "\xed\xa0\x80"}}), contains("value of the metadata key"));
  CHECK_THAT(refused({{std::string(100'000'000, 'n'), t}}), contains("the header takes 100000"));
  CHECK_THAT(refused(std::vector<nn::NamedTensor>(200'000, {"w", t})), contains("200000 tensors"));
  CHECK(files_in(folder) == 0);
}
