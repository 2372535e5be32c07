// Models in several files with an index, as Hugging Face writes them.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::error_of;
using firn::testing::values_of;
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

std::vector<nn::NamedTensor> five(double value = 1) {
  std::vector<nn::NamedTensor> all;
  for (const char* name : {"e", "d", "c", "b", "a"}) all.push_back({name, full({25}, value++)});
  return all;  // 100 bytes each
}

Names files_in(const TempFolder& folder) {
  Names all;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    all.push_back(entry.path().filename().string());
  std::sort(all.begin(), all.end());
  return all;
}

/// A folder with the file "one.safetensors", which has t [2] u8 and u [] u8.
void write_one(const TempFolder& folder) {
  io::save_safetensors(folder.file("one.safetensors"),
                       std::vector<nn::NamedTensor>{{"t", zeros({2}, u8)}, {"u", zeros({}, u8)}});
}

}  // namespace

TEST_CASE("shards: files, index and sizes as huggingface.co has them") {
  const TempFolder folder;
  const std::string path =
      io::save_safetensors_shards(folder.path().string(), five(),
                                  std::vector<io::Metadata>{{"format", "pt"}}, {.max_bytes = 200});
  CHECK(path == folder.file("model.safetensors.index.json"));
  CHECK(files_in(folder) ==
        Names{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
              "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
  const auto json = nlohmann::json::parse(read_file(path));
  CHECK(json.at("metadata").at("total_size") == 500);
  CHECK(json.at("metadata").at("format") == "pt");
  CHECK(json.at("weight_map").size() == 5);
  CHECK(json.at("weight_map").at("d") == "model-00001-of-00003.safetensors");
  CHECK(json.at("weight_map").at("a") == "model-00003-of-00003.safetensors");
  const io::SafetensorsFile shard(folder.file("model-00002-of-00003.safetensors"));
  CHECK(shard.names() == Names{"c", "b"});
  CHECK(shard.metadata() == std::vector<io::Metadata>{{"format", "pt"}});

  for (const std::string& name : {path, folder.path().string(), folder.path().string() + "/"}) {
    for (const bool map : {false, true}) {
      const io::SafetensorsFile file(name, {.map = map});
      CHECK(file.names() == Names{"e", "d", "c", "b", "a"});
      CHECK(file.metadata() == std::vector<io::Metadata>{{"total_size", "500"}, {"format", "pt"}});
      CHECK(values_of(file.read("b")) == std::vector<double>(25, 4));
      const auto all = file.read_all();
      for (std::size_t i = 0; i < 5; ++i)
        CHECK(values_of(all[i].tensor) == values_of(five()[i].tensor));
    }
  }
  CHECK(io::load_safetensors(path).size() == 5);
}

TEST_CASE("shards: a module saved in several files loads from the folder") {
  const TempFolder folder;
  const nn::Linear saved(30, 20);
  io::save_safetensors_shards(folder.path().string(), io::state_of(saved), {}, {.max_bytes = 1});
  CHECK(files_in(folder).size() == 3);
  nn::Linear other(30, 20);
  io::load_safetensors(folder.path().string(), other);
  CHECK(values_of(other.weight) == values_of(saved.weight));
  CHECK(values_of(other.bias) == values_of(saved.bias));
  // The name alone makes no index of a file.
  io::save_safetensors(folder.file("w.json"), io::state_of(saved));
  CHECK(io::load_safetensors(folder.file("w.json")).size() == 2);
}

TEST_CASE(
    "shards: one file if it all fits, also without tensors, and a folder's model.safetensors") {
  const TempFolder folder, empty, plain;
  io::save_safetensors_shards(folder.path().string(), five());
  CHECK(files_in(folder) ==
        Names{"model-00001-of-00001.safetensors", "model.safetensors.index.json"});
  io::save_safetensors_shards(empty.path().string(), {});
  CHECK(io::SafetensorsFile(empty.path().string()).size() == 0);
  io::save_safetensors(plain.file("model.safetensors"), five());
  CHECK(io::SafetensorsFile(plain.path().string()).size() == 5);
}

TEST_CASE("shards: a second save replaces the first, whose files go at the end") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  write_file(folder.file("notes.txt"), "mine");
  io::save_safetensors_shards(path, five(1), {}, {.max_bytes = 200});
  const io::SafetensorsFile old(path);
  io::save_safetensors_shards(path, five(11), {}, {.max_bytes = 200});
  CHECK(files_in(folder) ==
        Names{"model-r2-00001-of-00003.safetensors", "model-r2-00002-of-00003.safetensors",
              "model-r2-00003-of-00003.safetensors", "model.safetensors.index.json", "notes.txt"});
  CHECK(values_of(io::SafetensorsFile(path).read("e"))[0] == 11);
  CHECK(values_of(old.read("e"))[0] == 1);  // opened before
  io::save_safetensors_shards(path, five(21), {}, {.max_bytes = 200});
  CHECK(files_in(folder)[0] == "model-00001-of-00003.safetensors");
  CHECK(values_of(io::SafetensorsFile(path).read("a"))[0] == 25);
  CHECK(files_in(folder).size() == 5);
}

TEST_CASE("shards: a save that fails leaves the old model and nothing of the new one") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  io::save_safetensors_shards(path, five(1), {}, {.max_bytes = 200});
  const Names before = files_in(folder);
  // The third file's name is a folder's: the first two have been written by then.
  auto tensors = five(11);
  fs::create_directory(folder.file("model-r2-00003-of-00003.safetensors"));
  fs::create_directory(folder.file("model-r3-00003-of-00003.safetensors"));
  io::save_safetensors_shards(path, tensors, {}, {.max_bytes = 200});  // takes r4
  CHECK(files_in(folder)[2].starts_with("model-r4-00001"));
  fs::remove(folder.file("model-r2-00003-of-00003.safetensors"));
  fs::remove(folder.file("model-r3-00003-of-00003.safetensors"));
  const Names after = files_in(folder);
  CHECK(after.size() == before.size());
  // A header that is too long fails after the first file was renamed.
  tensors[4].name = std::string(99'999'990, 'n');
  CHECK_THAT(error_of([&] { io::save_safetensors_shards(path, tensors, {}, {.max_bytes = 200}); }),
             contains("[save_safetensors_shards] the "));
  CHECK(files_in(folder) == after);
  CHECK(values_of(io::SafetensorsFile(path).read("e"))[0] == 11);
}

TEST_CASE("shards: savers to one folder wait for each other", "[threads]") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      try {
        std::vector<nn::NamedTensor> tensors;
        for (const char* name : {"a", "b", "c"})
          tensors.push_back({name, full({25}, static_cast<double>(t))});
        for (int i = 0; i < 5; ++i)
          io::save_safetensors_shards(path, tensors, {}, {.max_bytes = 100});
      } catch (const std::exception& e) {
        errors[t] = e.what();
      }
    });
  for (auto& t : threads) t.join();
  CHECK(errors == std::vector<std::string>(3));
  CHECK(files_in(folder).size() == 4);
  const auto all = io::load_safetensors(path);
  CHECK(values_of(all[0].tensor) == values_of(all[1].tensor));
  CHECK(values_of(all[0].tensor) == values_of(all[2].tensor));
}

TEST_CASE("shards: the next saver removes the shards of those that were killed", "[host]") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  const auto save = [&](double x) {
    io::save_safetensors_shards(path, five(x), {}, {.max_bytes = 200});
  };
  save(1);
  write_file(folder.file("model-mine.safetensors"), "which no index names");
  for (int i = 0; i < 12; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0)
      for (;;) save(2);
    ::usleep(static_cast<useconds_t>(4000 + 1700 * i));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(io::load_safetensors(path).size() == 5);
  }
  save(3);
  const Names files = files_in(folder);
  CAPTURE(files);
  CHECK(files.size() == 5);  // three shards, the index and what is not firn's
  CHECK(values_of(io::SafetensorsFile(path).read("e"))[0] == 3);
}

TEST_CASE("shards: a saver that died after the new index left the old shards, which go", "[host]") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  io::save_safetensors_shards(path, five(1), {}, {.max_bytes = 200});
  // As it is when a process dies between the rename and the removal of the old files.
  const std::string index = read_file(folder.file("model.safetensors.index.json"));
  std::string old = index;
  for (std::size_t at = old.find("model-0"); at != std::string::npos; at = old.find("model-0", at))
    old.replace(at, 7, "model-r2-0");
  for (const char* const n : {"1", "2", "3"})
    write_file(folder.file("model-r2-0000" + std::string(n) + "-of-00003.safetensors"), "old");
  write_file(folder.file("model.safetensors.index.json.tmp-0123456789abcdef"), old);
  write_file(folder.file("model.safetensors.index.json.tmp-0123456789abcdee"), "{\"weight_");
  CHECK(files_in(folder).size() == 9);
  io::save_safetensors_shards(path, five(2), {}, {.max_bytes = 200});
  CHECK(files_in(folder).size() == 4);
  CHECK(values_of(io::SafetensorsFile(path).read("e"))[0] == 2);
  CHECK_THAT(error_of([&] { io::save_safetensors_shards("", five()); }),
             contains("the path is empty; hint: name a folder"));
}

TEST_CASE("shards: what cannot be written is refused") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  CHECK_THAT(error_of([&] { io::save_safetensors_shards(path, five(), {}, {.max_bytes = 0}); }),
             contains("max_bytes is 0"));
  CHECK_THAT(
      error_of([&] {
        io::save_safetensors_shards(path, five(), std::vector<io::Metadata>{{"total_size", "1"}});
      }),
      contains("the metadata key \"total_size\" is the index's own"));
  CHECK_THAT(error_of([&] { io::save_safetensors_shards(folder.file("none"), five()); }),
             contains("cannot be opened: No such file or directory; hint: make the folder first"));
  CHECK_THAT(error_of([&] { io::save_safetensors_shards(path + std::string("\0x", 2), five()); }),
             contains("a NUL character follows"));
  auto twice = five();
  twice[1].name = "e";
  CHECK_THAT(error_of([&] { io::save_safetensors_shards(path, twice, {}, {.max_bytes = 1}); }),
             contains("[save_safetensors_shards] the name \"e\" is used twice"));
  CHECK(files_in(folder).empty());
}

TEST_CASE("shards: an index written by others: white space, further fields, odd metadata") {
  const TempFolder folder;
  write_one(folder);
  const std::string path = write_file(
      folder.file("x.json"),
      " {\"weight_map\" : {\"t\": \"one.safetensors\"},\n\"extra\": [1, {\"a\": [null, -1.5e+3]}, "
      "[]],"
      "\"metadata\": {\"total_size\": 2.0, \"l\": [1], \"b\": true, \"s\": \"a\\nb\"}}\n");
  const io::SafetensorsFile file(path);
  CHECK(file.names() == Names{"t"});  // u is not in the index
  CHECK(file.metadata() ==
        std::vector<io::Metadata>{{"total_size", "2.0"}, {"b", "true"}, {"s", "a\nb"}});
}

TEST_CASE("shards: a bad index is refused, naming the byte or the file") {
  const TempFolder folder;
  write_one(folder);
  write_file(folder.file("bad.safetensors"), "1234");
  fs::create_directory(folder.path() / "sub");
  fs::copy(folder.file("one.safetensors"), folder.path() / "sub");
  const std::string path = folder.file("x.index.json");
  const std::string map = R"({"weight_map":)", t = R"({"t":"one.safetensors"})";
  struct Case {
    std::string index, message;
  };
  const std::string deep(40, '[');
  for (const Case& c : std::vector<Case>{
           {"", "index, byte 0: expected '{'"},
           {"[]", "index, byte 0: expected '{'"},
           {"{", "index, byte 1: expected '\"'"},
           {"{}", "index, byte 2: has no weight_map"},
           {"{\"metadata\":{}}", "byte 15: has no weight_map"},
           {map + "[]}", "byte 14: expected '{'"},
           {map + "{}", "byte 16: expected '}'"},
           {map + "{}}x", "byte 17: something follows the index's object"},
           {map + "{\"t\":1}}", "byte 19: expected '\"'"},
           {map + "{\"t\":null}}", "byte 19: expected '\"'"},
           {map + "{\"t\":\"\"}}", "\"t\" is said to be in \"\", which is no name of a file"},
           {map + "{\"t\":\"../one.safetensors\"}}",
            "byte 39: \"t\" is said to be in \"../one.safetensors\", which is not a file of the "
            "index's folder"},
           {map + "{\"t\":\"" + folder.file("one.safetensors") + "\"}}",
            "which is not a file of the index's folder"},
           {map + "{\"t\":\"sub/one.safetensors\"}}", "not a file of the index's folder"},
           {map + "{\"t\":\"sub\\/one.safetensors\"}}", "not a file of the index's folder"},
           {map + "{\"t\":\"..\"}}", "\"..\", which is not a file of the index's folder"},
           {map + "{\"t\":\".\"}}", "\".\", which is not a file of the index's folder"},
           {map + "{\"t\":\"one.safetensors\\u0000.safetensors\"}}", "which has a NUL character"},
           {map + "{\"t\":\"x.index.json\"}}", "whose name does not end in .safetensors"},
           {map + "{\"t\":\"two.safetensors\"}}", "two.safetensors: cannot be opened"},
           {map + "{\"t\":\"bad.safetensors\"}}", "bad.safetensors: has 4 bytes"},
           {map + "{\"v\":\"one.safetensors\"}}",
            "\"v\" is said to be in \"one.safetensors\", which does not have it"},
           {map + R"({"t":"one.safetensors","t":"one.safetensors"}})",
            "byte 38: the name \"t\" is used twice"},
           {map + t + ",\"weight_map\":" + t + "}", "the field \"weight_map\" is used twice"},
           {map + t + ",\"metadata\":{\"a\":1,\"a\":2}}", "the metadata key \"a\" is used twice"},
           {map + t + ",\"metadata\":[]}", "expected '{'"},
           {map + t + ",\"a\":" + deep, "nested more than 32 deep"},
           {map + t + ",\"a\":nul}", "expected a value"},
           {map + t + ",\"a\":1.}", "expected a value"},
           {map + t + ",\"a\":\"\\q\"}", "an unknown escape"},
           {map + t + ",\"a\":\"", "the index ends too early"},
           {map + "{\"\xff\":\"one.safetensors\"}}", "byte 16: a string that is not UTF-8"}}) {
    INFO(c.index);
    write_file(path, c.index);
    CHECK_THAT(error_of([&] { io::SafetensorsFile file(path); }), contains(c.message));
    CHECK_THAT(error_of([&] { io::load_safetensors(path); }), contains("[load_safetensors] "));
  }
  // A link in the folder is a file of the folder: caches of models are made of them.
  fs::create_symlink("sub/one.safetensors", folder.file("link.safetensors"));
  write_file(path, map + "{\"t\":\"link.safetensors\"}}");
  CHECK(io::SafetensorsFile(path).contains("t"));
}
