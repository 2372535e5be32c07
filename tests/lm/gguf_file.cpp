// GgufFile: the metadata by type, and tensors that share the mapped file.
#include "firn/lm/gguf.h"

#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "firn/firn.h"
#include "lm/gguf_writer.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::error_of;
using firn::testing::values_of;
using lm::GgufFile;
using lm::GgufType;
using lm::GgufValueType;

namespace {

/// One key of each type, and an array of each.
GgufWriter every_type() {
  GgufWriter w;
  w.keys = {{"u8", 0, raw_bytes<std::uint8_t>(255)},
            {"i8", 1, raw_bytes<std::int8_t>(-128)},
            {"u16", 2, raw_bytes<std::uint16_t>(65535)},
            {"i16", 3, raw_bytes<std::int16_t>(-32768)},
            {"u32", 4, raw_bytes<std::uint32_t>(4294967295u)},
            {"i32", 5, raw_bytes<std::int32_t>(-2147483647 - 1)},
            {"f32", 6, raw_bytes(0.1f)},
            {"bool", 7, raw_bytes<std::uint8_t>(1)},
            {"string", 8, gguf_text(std::string("caf\xc3\xa9\0!", 7))},
            {"u64", 10, raw_bytes<std::uint64_t>(9223372036854775807u)},
            {"i64", 11, raw_bytes(std::numeric_limits<std::int64_t>::min())},
            {"f64", 12, raw_bytes(1e-300)},
            {"u8s", 9, gguf_array(0, 2, raw_bytes<std::uint8_t>({200, 1}))},
            {"i8s", 9, gguf_array(1, 2, raw_bytes<std::int8_t>({-1, 1}))},
            {"u16s", 9, gguf_array(2, 2, raw_bytes<std::uint16_t>({60000, 1}))},
            {"i16s", 9, gguf_array(3, 2, raw_bytes<std::int16_t>({-300, 1}))},
            {"u32s", 9, gguf_array(4, 2, raw_bytes<std::uint32_t>({4000000000u, 1}))},
            {"i32s", 9, gguf_array(5, 3, raw_bytes<std::int32_t>({-70000, 1, 2}))},
            {"f32s", 9, gguf_array(6, 2, raw_bytes<float>({0.5f, -1.f}))},
            {"bools", 9, gguf_array(7, 3, raw_bytes<std::uint8_t>({1, 0, 1}))},
            {"strings", 9, gguf_texts({"a", "", "\xff<|im_end|>"})},
            {"u64s", 9, gguf_array(10, 1, raw_bytes<std::uint64_t>(1))},
            {"i64s", 9, gguf_array(11, 1, raw_bytes<std::int64_t>(-1))},
            {"f64s", 9, gguf_array(12, 1, raw_bytes(0.1))},
            {"none", 9, gguf_array(8, 0, "")},
            {"nested", 9,
             gguf_array(9, 2, gguf_array(5, 1, raw_bytes<std::int32_t>(7)) + gguf_texts({"b"}))},
            {"", 7, raw_bytes<std::uint8_t>(0)}};
  return w;
}

Bytes floats(std::initializer_list<float> values) { return raw_bytes(std::vector<float>(values)); }

/// w [2, 3] f32, h [2] f16, b [2] bf16, and q [1, 32] of Q8_0.
GgufWriter some_tensors() {
  GgufWriter w;
  Bytes q = raw_bytes(half(0.5f).bits);
  for (int i = 0; i < 32; ++i) q += static_cast<char>(i - 16);
  w.tensors = {
      {"w", {3, 2}, 0, floats({1, 2, 3, 4, 5, 6})},
      {"h", {2}, 1, raw_bytes(half(1.5f).bits) + raw_bytes(half(-2.f).bits)},
      {"b", {2}, 30, raw_bytes(bfloat16(0.25f).bits) + raw_bytes(bfloat16(3.f).bits)},
      {"q", {32, 1}, 8, q},
      {"scalar", {}, 0, floats({7})},
      {"empty", {0, 4}, 0, ""},
  };
  return w;
}

bool is_mapped(const std::string& path) {
  return read_file("/proc/self/maps").find(path) != std::string::npos;
}

}  // namespace

TEST_CASE("GgufFile: values of every type", "[host]") {
  const TempFolder folder;
  const GgufFile file(write_file(folder.file("m.gguf"), every_type().bytes()));
  CHECK(file.path() == folder.file("m.gguf"));
  CHECK(file.version() == 3);
  CHECK(file.integer("u8") == 255);
  CHECK(file.integer("i8") == -128);
  CHECK(file.integer("u16") == 65535);
  CHECK(file.integer("i16") == -32768);
  CHECK(file.integer("u32") == 4294967295);
  CHECK(file.integer("i32") == -2147483648);
  CHECK(file.integer("u64") == std::numeric_limits<std::int64_t>::max());
  CHECK(file.integer("i64") == std::numeric_limits<std::int64_t>::min());
  CHECK(file.real("f32") == 0.1f);
  CHECK(file.real("f64") == 1e-300);
  CHECK(file.flag("bool"));
  CHECK_FALSE(file.flag(""));
  CHECK(file.text("string") == std::string("caf\xc3\xa9\0!", 7));
  using Integers = std::vector<std::int64_t>;
  CHECK(file.integers("u8s") == Integers{200, 1});
  CHECK(file.integers("i8s") == Integers{-1, 1});
  CHECK(file.integers("u16s") == Integers{60000, 1});
  CHECK(file.integers("i16s") == Integers{-300, 1});
  CHECK(file.integers("u32s") == Integers{4000000000, 1});
  CHECK(file.integers("i32s") == Integers{-70000, 1, 2});
  CHECK(file.integers("u64s") == Integers{1});
  CHECK(file.integers("i64s") == Integers{-1});
  CHECK(file.reals("f32s") == std::vector<double>{0.5, -1});
  CHECK(file.reals("f64s") == std::vector<double>{0.1});
  CHECK(file.flags("bools") == std::vector<bool>{true, false, true});
  CHECK(file.texts("strings") == std::vector<std::string>{"a", "", "\xff<|im_end|>"});
  CHECK(file.texts("none").empty());
}

TEST_CASE("GgufFile: the list of keys", "[host]") {
  const TempFolder folder;
  const GgufWriter w = every_type();
  const GgufFile file(write_file(folder.file("m.gguf"), w.bytes()));
  const auto entries = file.entries();
  REQUIRE(entries.size() == w.keys.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    CHECK(entries[i].key == w.keys[i].key);
    CHECK(static_cast<std::uint32_t>(entries[i].type) == w.keys[i].type);
    CHECK(file.has(entries[i].key));
    CHECK(file.entry(entries[i].key).count == entries[i].count);
  }
  CHECK_FALSE(file.has("u"));
  CHECK_FALSE(file.has("u88"));
  CHECK(file.entry("i32").element_type == GgufValueType::i32);
  CHECK(file.entry("i32").count == 1);
  CHECK(file.entry("i32s").type == GgufValueType::array);
  CHECK(file.entry("i32s").element_type == GgufValueType::i32);
  CHECK(file.entry("i32s").count == 3);
  CHECK(file.entry("nested").element_type == GgufValueType::array);
  CHECK(to_string(GgufValueType::u8) == std::string("UINT8"));
  CHECK(to_string(GgufValueType::f64) == std::string("FLOAT64"));
  CHECK(to_string(static_cast<GgufValueType>(13)) == std::string("unknown type"));
}

TEST_CASE("GgufFile: a missing key, another type, a number out of range", "[host]") {
  const TempFolder folder;
  GgufWriter w = every_type();
  w.keys.push_back({"huge", 10, raw_bytes<std::uint64_t>(9223372036854775808u)});
  w.keys.push_back({"huges", 9, gguf_array(10, 1, Bytes(8, '\xff'))});
  const std::string path = write_file(folder.file("m.gguf"), w.bytes());
  const GgufFile file(path);
  const std::string begin = "[GgufFile] " + path + ": ";
  const auto check = [&](const std::string& want, auto&& get) {
    CHECK_THAT(error_of(get), contains(begin + want));
    CHECK_THROWS_AS(get(), IoError);
  };
  check("has no key \"gone\"; hint: entries()", [&] { file.text("gone"); });
  check("has no key \"gone\"", [&] { file.entry("gone"); });
  check("has no key \"gone\"", [&] { file.texts("gone"); });
  check("\"u32\" is UINT32; expected STRING", [&] { file.text("u32"); });
  check("\"strings\" is an array of 3 STRING; expected STRING", [&] { file.text("strings"); });
  check("\"u8\" is UINT8; expected BOOL", [&] { file.flag("u8"); });
  check("\"bool\" is BOOL; expected a whole number", [&] { file.integer("bool"); });
  check("\"f32\" is FLOAT32; expected a whole number", [&] { file.integer("f32"); });
  check("\"string\" is STRING; expected a whole number", [&] { file.integer("string"); });
  check("\"i32s\" is an array of 3 INT32; expected a whole number", [&] { file.integer("i32s"); });
  check("\"u32\" is UINT32; expected FLOAT32 or FLOAT64", [&] { file.real("u32"); });
  check("\"string\" is STRING; expected an array of STRING", [&] { file.texts("string"); });
  check("\"i32s\" is an array of 3 INT32; expected an array of STRING",
        [&] { file.texts("i32s"); });
  check("\"i32\" is INT32; expected an array of whole numbers", [&] { file.integers("i32"); });
  check("\"bools\" is an array of 3 BOOL; expected an array of whole numbers",
        [&] { file.integers("bools"); });
  check("\"u8s\" is an array of 2 UINT8; expected an array of BOOL", [&] { file.flags("u8s"); });
  check("\"i32s\" is an array of 3 INT32; expected an array of FLOAT32 or FLOAT64",
        [&] { file.reals("i32s"); });
  check("\"nested\" is an array of 2 ARRAY; expected an array of STRING",
        [&] { file.texts("nested"); });
  check("\"nested\" is an array of 2 ARRAY; expected an array of whole numbers",
        [&] { file.integers("nested"); });
  check("\"huge\" is 9223372036854775808; expected a number below 2^63",
        [&] { file.integer("huge"); });
  check("\"huges\" is 18446744073709551615; expected a number below 2^63",
        [&] { file.integers("huges"); });
  check("\"u16\" is 65535; expected 1 to 1000", [&] { file.integer("u16", 1, 1000); });
  check("\"i8\" is -128; expected 0 to 1000", [&] { file.integer("i8", 0, 1000); });
  CHECK(file.integer("u16", 65535, 65535) == 65535);
}

TEST_CASE("GgufFile: tensors, their shapes in row-major order", "[host]") {
  const TempFolder folder;
  const std::string path = write_file(folder.file("m.gguf"), some_tensors().bytes());
  for (const bool map : {true, false}) {
    const GgufFile file(path, {.map = map});
    CHECK(file.names() == std::vector<std::string>{"w", "h", "b", "q", "scalar", "empty"});
    CHECK(file.contains("q"));
    CHECK_FALSE(file.contains("r"));
    CHECK(file.shape("w") == Shape{2, 3});
    CHECK(file.shape("q") == Shape{1, 32});
    CHECK(file.shape("scalar") == Shape{});
    CHECK(file.shape("empty") == Shape{4, 0});
    CHECK(file.type("h") == GgufType::f16);
    CHECK(file.type("q") == GgufType::q8_0);
    CHECK(values_of(file.read("w")) == std::vector<double>{1, 2, 3, 4, 5, 6});
    CHECK(file.read("w").dtype() == f32);
    CHECK(file.read("h").dtype() == f16);
    CHECK(values_of(file.read("h")) == std::vector<double>{1.5, -2});
    CHECK(file.read("b").dtype() == bf16);
    CHECK(values_of(file.read("b")) == std::vector<double>{0.25, 3});
    CHECK(values_of(file.read("scalar")) == std::vector<double>{7});
    CHECK(file.read("scalar").shape() == Shape{});
    CHECK(file.read("empty").shape() == Shape{4, 0});
    const Tensor q = file.read("q");
    CHECK(q.dtype() == f32);
    CHECK(q.shape() == Shape{1, 32});
    CHECK(values_of(q)[0] == -8);
    CHECK(values_of(q)[31] == 7.5);
    for (const DType dtype : {f16, bf16, f32, f64})
      for (const char* name : {"w", "h", "b", "q"}) {
        CHECK(file.read(name, dtype).dtype() == dtype);
        CHECK(values_of(file.read(name, dtype)) == values_of(file.read(name)));
      }
    CHECK_THAT(error_of([&] { file.read("w", i32); }), contains("\"w\" as i32"));
    const Tensor blocks = file.blocks("q");
    CHECK(blocks.shape() == Shape{1, 34});
    CHECK(blocks.dtype() == u8);
    CHECK(values_of(blocks)[2] == 240);  // -16
    CHECK(file.blocks("w").shape() == Shape{2, 12});
    CHECK(file.blocks("scalar").shape() == Shape{4});
    CHECK(file.blocks("empty").shape() == Shape{4, 0});
    for (const auto& message :
         {error_of([&] { file.read("v"); }), error_of([&] { file.shape("v"); }),
          error_of([&] { file.type("v"); }), error_of([&] { file.blocks("v"); })})
      CHECK_THAT(message, contains("[GgufFile] " + path + ": has no tensor \"v\""));
  }
}

TEST_CASE("GgufFile: plain tensors and blocks are parts of the mapped file", "[host]") {
  const TempFolder folder;
  const Bytes bytes = some_tensors().bytes();
  const std::string path = write_file(folder.file("m.gguf"), bytes);
  const std::size_t before = memory_stats(Device::cpu()).total.current;
  Tensor w, again, blocks;
  {
    const GgufFile file(path);
    w = file.read("w");
    again = file.read("w", f32);
    blocks = file.blocks("q");
  }
  CHECK(is_mapped(path));  // by the tensors alone
  CHECK(memory_stats(Device::cpu()).total.current == before);
  w.fill_(9);  // seen through the other handle, and not in the file
  CHECK(values_of(again) == std::vector<double>(6, 9));
  CHECK(read_file(path) == bytes);
  std::filesystem::remove(path);
  w = again = Tensor();
  CHECK(values_of(blocks)[33] == 15);
  CHECK(is_mapped(path));
  blocks = Tensor();
  CHECK_FALSE(is_mapped(path));

  const GgufFile read(write_file(folder.file("read.gguf"), bytes), {.map = false});
  CHECK_FALSE(is_mapped(folder.file("read.gguf")));
  w = read.read("w");
  CHECK(memory_stats(Device::cpu()).total.current > before);
  std::filesystem::resize_file(folder.file("read.gguf"), bytes.size() - 64);
  CHECK_THAT(error_of([&] { read.read("scalar"); }), contains("ends at byte"));
}

TEST_CASE("GgufFile: a type that is not read leaves the other tensors readable", "[host]") {
  const TempFolder folder;
  GgufWriter w = some_tensors();
  w.tensors.push_back({"codebook", {256, 2}, 16, Bytes(132, '\1')});
  w.tensors.push_back({"counts", {2}, 26, Bytes(8, '\1')});
  w.tensors.push_back({"new", {33}, 4294967295u, Bytes(8, '\1')});
  const std::string path = write_file(folder.file("m.gguf"), w.bytes());
  const GgufFile file(path);
  CHECK(file.names().size() == 9);
  CHECK(file.shape("codebook") == Shape{2, 256});
  CHECK(to_string(file.type("counts")) == "I32");
  CHECK(values_of(file.read("scalar")) == std::vector<double>{7});
  for (const auto& pair : std::vector<std::pair<std::string, std::string>>{
           {"codebook", "IQ2_XXS"}, {"counts", "I32"}, {"new", "type 4294967295"}}) {
    const std::string& name = pair.first;
    const std::string want = path + ": \"" + name + "\" is " + pair.second +
                             ", which firn does not read; hint: quantise";
    CHECK_THAT(error_of([&] { file.read(name); }), contains(want));
    CHECK_THAT(error_of([&] { file.read(name, f32); }), contains(want));
    CHECK_THAT(error_of([&] { file.blocks(name); }), contains(want));
  }
}

TEST_CASE("GgufFile: versions, alignments, and files without tensors", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("m.gguf");
  GgufWriter w = some_tensors();
  w.version = 2;
  CHECK(GgufFile(write_file(path, w.bytes())).version() == 2);
  for (const std::uint32_t alignment : {8u, 64u, 4096u}) {
    w.alignment = alignment;
    w.keys = {{"general.alignment", 4, raw_bytes(alignment)}};
    const GgufFile file(write_file(path, w.bytes()));
    CHECK(values_of(file.read("w")) == std::vector<double>{1, 2, 3, 4, 5, 6});
    CHECK(values_of(file.read("scalar")) == std::vector<double>{7});
  }
  const GgufWriter none;
  CHECK(GgufFile(write_file(path, none.bytes())).names().empty());
  // Bytes between and behind tensors, and an order of its own.
  w = GgufWriter();
  w.tensors = {{"late", {1}, 0, floats({2}), 64}, {"early", {1}, 0, "", 0}};
  const GgufFile file(write_file(path, w.bytes() + "behind"));
  CHECK(values_of(file.read("late")) == std::vector<double>{2});
  CHECK(values_of(file.read("early")) == std::vector<double>{0});
}

TEST_CASE("GgufFile: moved, and read by several threads", "[threads]") {
  const TempFolder folder;
  GgufFile first(write_file(folder.file("m.gguf"), some_tensors().bytes()));
  const GgufFile file = std::move(first);
  CHECK(first.names() == file.names());  // both have the file
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        wrong[t] += file.read("q").to_vector<float>()[31] == 7.5f ? 0 : 1;
        wrong[t] += file.read("w").to_vector<float>()[5] == 6.f ? 0 : 1;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == std::vector<int>(4));
}
