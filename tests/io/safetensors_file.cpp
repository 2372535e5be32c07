// SafetensorsFile: what a file has without reading it, tensors by name, and the map.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "firn/runtime/storage.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::error_of;
using firn::testing::values_of;

namespace {

const std::vector<io::Metadata> kMetadata = {{"format", "pt"}, {"a", "{\"b\": [1]}"}, {"", "é\n"}};

std::vector<nn::NamedTensor> some() {
  return {{"w", tensor({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}, {2, 3})},
          {"n", tensor(7LL)},
          {"half", tensor({1.f, -2.f}).to(bf16)},
          {"mask", tensor<bool>({true, false, true})},
          {"none", empty({0, 4})}};
}

/// A file whose only tensor, 3 f32 numbers, begins at an odd byte.
std::string unaligned(const TempFolder& folder) {
  std::string header = "{\"t\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}";
  while (header.size() % 4 != 1) header += ' ';
  Bytes data(12, '\0');
  data[2] = '\x80', data[3] = '\x3f';  // 1
  return write_file(folder.file("odd"), little_endian(header.size(), 8) + header + data);
}

/// Whether an address lies in a mapping of the file, by the kernel's own list.
bool is_mapped(const std::string& path) {
  return read_file("/proc/self/maps").find(path) != std::string::npos;
}

}  // namespace

TEST_CASE("SafetensorsFile: names, shapes, dtypes and metadata without reading") {
  const TempFolder folder;
  const std::string path = folder.file("w.safetensors");
  io::save_safetensors(path, some(), kMetadata);
  const auto before = memory_stats(Device::cpu()).allocations;
  const io::SafetensorsFile file(path);
  CHECK(file.size() == 5);
  CHECK(file.names() == std::vector<std::string>{"n", "w", "none", "half", "mask"});
  CHECK(file.contains("half"));
  CHECK_FALSE(file.contains("hal"));
  CHECK_FALSE(file.contains("halff"));
  CHECK_FALSE(file.contains(""));
  CHECK_FALSE(file.contains("__metadata__"));
  CHECK(file.shape("w") == Shape{2, 3});
  CHECK(file.shape("n") == Shape{});
  CHECK(file.dtype("half") == bf16);
  CHECK(file.metadata() == kMetadata);
  CHECK(memory_stats(Device::cpu()).allocations == before);
  CHECK(values_of(file.read("w")) == std::vector<double>{1, 2, 3, 4, 5, 6});
  const auto all = file.read_all();
  REQUIRE(all.size() == 5);
  CHECK(all[0].name == "n");
  CHECK(all[0].tensor.item() == 7);
  CHECK(all[2].tensor.shape() == Shape{0, 4});
  CHECK(values_of(all[3].tensor) == std::vector<double>{1, -2});
  CHECK(io::SafetensorsFile(write_file(folder.file("e"), little_endian(2, 8) + "{}")).size() == 0);
}

TEST_CASE("SafetensorsFile: a name that is not there, and errors of its own name") {
  const TempFolder folder;
  const std::string path = folder.file("w");
  io::save_safetensors(path, some());
  const io::SafetensorsFile file(path);
  for (const auto& message : {error_of([&] { file.read("v"); }), error_of([&] { file.shape("v"); }),
                              error_of([&] { file.dtype("v"); })})
    CHECK_THAT(message, contains("[SafetensorsFile] " + path + " has no tensor \"v\""));
  CHECK_THAT(error_of([&] { io::SafetensorsFile(folder.file("gone")); }),
             contains("[SafetensorsFile] " + folder.file("gone") + ": cannot be opened"));
  CHECK_THAT(error_of([&] {
               io::SafetensorsFile(write_file(folder.file("bad"), little_endian(1, 8) + "["));
             }),
             contains("header, byte 0: expected '{'"));
  const std::string twice = "{\"__metadata__\":{},\"__metadata__\":{}}";
  CHECK_THAT(
      error_of([&] {
        io::SafetensorsFile(write_file(folder.file("m"), little_endian(twice.size(), 8) + twice));
      }),
      contains("the name \"__metadata__\" is used twice"));
  CHECK_THAT(error_of([&] { io::SafetensorsFile(folder.path().string()); }),
             contains("is a directory; expected a file; hint: it has neither "
                      "model.safetensors.index.json nor model.safetensors"));
}

TEST_CASE("SafetensorsFile: a file that shrinks after it was opened is an error of read()") {
  const TempFolder folder;
  const std::string path = folder.file("w");
  io::save_safetensors(path, some());
  const io::SafetensorsFile file(path);
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 1);
  CHECK_THAT(error_of([&] { file.read("mask"); }),
             contains("ends at byte " + std::to_string(size - 1)));
  CHECK(values_of(file.read("w")).size() == 6);  // the others are still there
}

TEST_CASE("SafetensorsFile: moved, and read by several threads", "[threads]") {
  const TempFolder folder;
  const std::string path = folder.file("w");
  std::vector<nn::NamedTensor> many;
  for (int i = 0; i < 50; ++i) many.push_back({std::to_string(i), full({1000}, i)});
  io::save_safetensors(path, many);
  io::SafetensorsFile first(path);
  const io::SafetensorsFile file = std::move(first);
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const auto values = file.read(std::to_string(i)).to_vector<float>();
        for (const float v : values) wrong[t] += v == static_cast<float>(i) ? 0 : 1;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("SafetensorsFile: mapped tensors share the file, which never changes", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("mapped.safetensors");
  io::save_safetensors(path, some());
  const Bytes bytes = read_file(path);
  const auto before = memory_stats(Device::cpu());
  Tensor w, again;
  {
    const io::SafetensorsFile file(path, {.map = true});
    w = file.read("w");
    again = file.read("w");
    for (const auto& [name, t] : some()) {
      INFO(name);
      CHECK(values_of(file.read(name)) == values_of(t));
      CHECK(file.read(name).dtype() == t.dtype());
    }
  }
  CHECK(is_mapped(path));  // by the tensors alone
  CHECK(memory_stats(Device::cpu()).total.current == before.total.current);
  w.fill_(9);  // seen in the other handle of the page, and nowhere else
  CHECK(values_of(again) == std::vector<double>(6, 9));
  CHECK(read_file(path) == bytes);
  CHECK(values_of(io::load_safetensors(path)[1].tensor)[0] == 1);
  CHECK(w.storage()->version() == 1);
  CHECK(again.storage()->version() == 0);
  // The file may be replaced or removed meanwhile.
  io::save_safetensors(path, std::vector<nn::NamedTensor>{{"w", zeros({2, 3})}});
  std::filesystem::remove(path);
  CHECK(values_of(w + 1) == std::vector<double>(6, 10));
  const Tensor part = w[1];
  w = again = Tensor();
  CHECK(is_mapped(path));
  CHECK(values_of(part) == std::vector<double>(3, 9));
}

TEST_CASE("SafetensorsFile: the map goes with the last tensor", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("mapped.safetensors");
  io::save_safetensors(path, some());
  {
    const Tensor w = io::SafetensorsFile(path, {.map = true}).read("w");
    CHECK(is_mapped(path));
    const Tensor copy = w.clone();
    CHECK(values_of(copy) == values_of(w));
  }
  CHECK_FALSE(is_mapped(path));
}

TEST_CASE("SafetensorsFile: an unaligned tensor is copied out of the map", "[host]") {
  const TempFolder folder;
  const std::string path = unaligned(folder);
  const Tensor t = io::SafetensorsFile(path, {.map = true}).read("t");
  CHECK_FALSE(is_mapped(path));
  CHECK(values_of(t) == std::vector<double>{1, 0, 0});
  CHECK(reinterpret_cast<std::uintptr_t>(t.data<float>()) % 4 == 0);
}

TEST_CASE("SafetensorsFile: a mapped bool is checked too") {
  const TempFolder folder;
  const std::string header = "{\"t\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}";
  const std::string path =
      write_file(folder.file("b"), little_endian(header.size(), 8) + header + "\x01\x02");
  const io::SafetensorsFile file(path, {.map = true});
  CHECK_THAT(error_of([&] { file.read("t"); }), contains("\"t\" is BOOL, and its element 1 is 2"));
}

TEST_CASE("storage: adopted memory is released once, also if it moves elsewhere", "[memory]") {
  static int released;
  released = 0;
  alignas(64) float mine[16] = {3};
  const auto release = [](void* data, std::size_t bytes) noexcept {
    released += static_cast<float*>(data)[0] == 3 && bytes == 64 ? 1 : 100;
  };
  {
    auto s = Storage::adopt(mine, sizeof mine, Device::cpu(), release);
    auto part = Storage::part_of(s, 0, 32);
    s = nullptr;
    CHECK(released == 0);
    CHECK(part->data() == mine);
  }
  CHECK(released == 1);
  {
    const auto s = Storage::adopt(mine, sizeof mine, Device::cpu(), release);
    s->move_into(Storage::allocate(64, Device::cpu()), 0);
    CHECK(released == 2);
    CHECK(static_cast<float*>(s->data())[0] == 3);
  }
  CHECK(released == 2);
}

TEST_CASE("SafetensorsFile: a tensor that firn cannot have leaves the others readable", "[host]") {
  const TempFolder folder;
  const std::string nine = "[1,1,1,1,1,1,1,1,2]";
  struct Case {
    std::string dtype, shape, why;
  };
  for (const auto& [dtype, shape, why] :
       std::vector<Case>{{"U64", "[1]", "has dtype \"U64\", which firn does not have"},
                         {"C64", "[1]", "has dtype \"C64\", which firn does not have"},
                         {"F8_E8M0", "[2,4]", "has dtype \"F8_E8M0\", which firn does not have"},
                         {"F4", "[16]", "has dtype \"F4\", which firn does not have"},
                         {"F32", nine, "has 9 axes, and a tensor has 8 at most"}}) {
    CAPTURE(dtype, shape);
    const std::string header = R"({"__metadata__":null,"step":{"dtype":")" + dtype +
                               R"(","shape":)" + shape +
                               R"(,"data_offsets":[0,8],"more":{"a":[1,null]}},)"
                               R"("w":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]}})";
    const float w = 3;
    Bytes data(8, '\1');
    data.append(reinterpret_cast<const char*>(&w), sizeof w);
    const std::string path =
        write_file(folder.file("x"), little_endian(header.size(), 8) + header + data);
    for (const bool map : {false, true}) {
      const io::SafetensorsFile file(path, {.map = map});
      CHECK(file.names() == std::vector<std::string>{"step", "w"});
      CHECK(file.metadata().empty());
      CHECK(values_of(file.read("w")) == std::vector<double>{3});
      CHECK_THROWS_WITH(file.read("step"), contains("\"step\" " + why));
      CHECK_THROWS_WITH(file.dtype("step"), contains("\"step\" " + why));
      CHECK_THROWS_AS(file.shape("step"), IoError);
      CHECK_THROWS_WITH(file.read_all(), contains("\"step\" " + why));
    }
    CHECK_THROWS_WITH(io::load_safetensors(path), contains("\"step\" " + why));
    // Into a module: it matters only if the module wants it.
    nn::Linear net(1, 1, {.bias = false});
    io::load_safetensors(path, net, {.rename = {{"w", "weight"}, {"step", ""}}});
    CHECK(net.weight.item() == 3);
    CHECK_THROWS_WITH(io::load_safetensors(path, net, {.rename = {{"w", "weight"}}}),
                      contains("left over: step"));
    nn::Linear wants(1, 1, {.bias = false});
    const double before = wants.weight.item();
    const io::LoadReport report =
        io::load_safetensors(path, wants, {.strict = false, .rename = {{"step", "weight"}}});
    REQUIRE(report.mismatched.size() == 1);
    CHECK(report.mismatched[0].name == "weight");
    CHECK(report.mismatched[0].what == why);
    CHECK(wants.weight.item() == before);
  }
}
