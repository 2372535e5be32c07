// The safetensors reader: what was saved comes back, and nothing else does.
#include <cstring>
#include <string>

#include "data/files.h"
#include "firn/firn.h"
#include "firn/io/safetensors.h"
#include "firn/nn/layers/linear.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::error_of;
using firn::testing::values_of;

namespace {

struct Net : nn::Module {
  explicit Net(DType dtype = f32, std::int64_t hidden = 5)
      : fc1(3, hidden, {.dtype = dtype}), fc2(hidden, 2, {.bias = false, .dtype = dtype}) {
    mean = nn::Buffer(randn({4}, dtype));
    batches = nn::Buffer(tensor<std::int64_t>({7}));
  }
  nn::Linear fc1, fc2;
  nn::Buffer mean, batches;
  FIRN_MEMBERS(fc1, fc2, mean, batches)
};

/// A file of this header, and of `data` bytes after it.
Bytes file_of(const std::string& header, std::size_t data) {
  Bytes out = little_endian(header.size(), 8) + header;
  for (std::size_t i = 0; i < data; ++i) out += static_cast<char>(i);
  return out;
}

}  // namespace

TEST_CASE("load_safetensors: every dtype and shape comes back, in the order of the header") {
  const TempFolder folder;
  const std::string path = folder.file("all.safetensors");
  const std::vector<nn::NamedTensor> tensors = {
      {"i64", tensor<std::int64_t>({-1, 1LL << 40})},
      {"f64", full({}, 0.1, f64)},
      {"f32", randn({2, 3, 4})},
      {"odd \"name\" \\ \n\x01 é", tensor<std::int32_t>({-7})},
      {"f16", randn({5}).to(f16)},
      {"bf16", randn({3}).to(bf16)},
      {"u8", tensor<std::uint8_t>({1, 2, 255})},
      {"bool", ones({3}, boolean)},
      {"empty", empty({0, 4})},
  };
  const std::vector<io::Metadata> metadata = {{"format", "pt"}, {"a", "{\"b\": [1, 2]}"}};
  io::save_safetensors(path, tensors, metadata);
  const auto loaded = io::load_safetensors(path);
  REQUIRE(loaded.size() == tensors.size());
  for (const auto& [name, t] : tensors) {
    int found = 0;
    for (const auto& [other, u] : loaded) {
      if (other != name) continue;
      ++found;
      CHECK(u.dtype() == t.dtype());
      CHECK(u.shape() == t.shape());
      CHECK(u.device().is_cpu());
      CHECK(values_of(u) == values_of(t));
    }
    INFO(name);
    CHECK(found == 1);
  }
}

TEST_CASE("load_safetensors: a header written by others: spaces, escapes, any order") {
  const TempFolder folder;
  const std::string path = write_file(
      folder.file("other"),
      file_of("{\n \"b\" : {\"shape\":[ 2 ], \"data_offsets\":[4 , 6],\t\"dtype\":\"U8\"} ,"
              "\"__metadata__\":{} , \"\\u0061\\/\\ud83d\\ude00\\u00E9\\u20ac\\t\":"
              "{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[0,4]}}  ",
              6));
  const auto loaded = io::load_safetensors(path);
  REQUIRE(loaded.size() == 2);
  CHECK(loaded[0].name == "b");
  CHECK(values_of(loaded[0].tensor) == std::vector<double>{4, 5});
  CHECK(loaded[1].name == "a/\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac\t");
  CHECK(loaded[1].tensor.shape() == Shape{2, 2});
  CHECK(io::load_safetensors(write_file(folder.file("none"), file_of("{}", 0))).empty());
}

TEST_CASE("load_safetensors: a module gets parameters and buffers, in its own dtypes") {
  const TempFolder folder;
  const std::string path = folder.file("net");
  const Net saved;
  io::save_safetensors(path, io::state_of(saved));
  Net same, half(f16);
  io::load_safetensors(path, same);
  io::load_safetensors(path, half);
  const auto want = io::state_of(saved), got = io::state_of(same), rounded = io::state_of(half);
  REQUIRE(want.size() == 5);
  CHECK(want[3].name == "mean");
  for (std::size_t i = 0; i < want.size(); ++i) {
    CHECK(values_of(got[i].tensor) == values_of(want[i].tensor));
    CHECK(values_of(rounded[i].tensor) == values_of(want[i].tensor.to(rounded[i].tensor.dtype())));
  }
  CHECK(rounded[0].tensor.dtype() == f16);
}

TEST_CASE("load_safetensors: another model's file is refused and nothing written", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("net");
  Net net;
  const auto before = values_of(net.fc1.weight);
  io::save_safetensors(path, io::state_of(Net(f32, 6)));
  CHECK_THAT(error_of([&] { io::load_safetensors(path, net); }),
             contains("\"fc1.weight\" is [6, 3], the module's is [5, 3]"));
  io::save_safetensors(path, Net().fc1.named_parameters());
  CHECK_THAT(error_of([&] { io::load_safetensors(path, net); }),
             contains("missing: fc1.weight, fc1.bias, fc2.weight, mean, batches; left over: bias, "
                      "weight"));
  auto state = io::state_of(Net());
  state[0].tensor = zeros({5, 3}, i64);
  io::save_safetensors(path, state);
  CHECK_THAT(error_of([&] { io::load_safetensors(path, net); }),
             contains("\"fc1.weight\" is i64, the module's is f32"));
  CHECK(values_of(net.fc1.weight) == before);
}

TEST_CASE("load_safetensors: what is no such file, or a damaged one, is said", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("bad.safetensors");
  const auto message = [&](const Bytes& bytes) {
    write_file(path, bytes);
    const std::string text = error_of([&] { io::load_safetensors(path); });
    CHECK_THAT(text, contains(path));
    return text;
  };
  CHECK_THAT(error_of([&] { io::load_safetensors(folder.file("none")); }),
             contains("cannot be opened"));
  CHECK_THAT(error_of([&] { io::load_safetensors(folder.path().string()); }),
             contains("is a directory"));
  CHECK_THAT(message("1234"), contains("has 4 bytes"));
  CHECK_THAT(message(little_endian(100, 8) + "{}"), contains("declares a header of 100 bytes"));
  CHECK_THAT(message(little_endian(~0ull, 8) + "{}"), contains("declares a header of 1844674407"));
  const std::string t = R"("t":{"dtype":"U8","shape":[3],"data_offsets":[0,3]})";
  CHECK_THAT(message(file_of("{" + t + "}", 4)), contains("describes 3 bytes of data, found 4"));
  CHECK_THAT(message(file_of("{" + t + "}", 2)), contains("describes 3 bytes of data, found 2"));
  struct Case {
    const char *header, *message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"", "byte 0: expected '{'"},
           {"[]", "expected '{'"},
           {"{", "expected '\"'"},
           {"{}{}", "something follows"},
           {R"({"t":7})", "expected '{'"},
           {R"({"t":{}})", "lacks dtype, shape or data_offsets"},
           {R"({"t":{"dtype":"U8","dtype":"U8"}})", "\"t\" has two dtype"},
           {R"({"t":{"color":"red"}})", "\"t\" lacks dtype"},
           {R"({"t":{"dtype":"F8_E8M0"}})", "\"t\" lacks dtype"},
           {R"({"t":{"shape":[-1]}})", "expected a whole number"},
           {R"({"t":{"shape":[1.5]}})", "expected ']'"},
           {R"({"t":{"shape":[4294967296,4294967296]}})", "the sizes of \"t\" make too many"},
           {R"({"t":{"shape":[0,9223372036854775807]}})", "the sizes of \"t\" make too many"},
           {R"({"t":{"shape":[0,72057594037927936]}})", "the sizes of \"t\" make too many"},
           {R"({"t":{"shape":[99999999999999999999]}})", "a number does not fit"},
           {R"({"t":{"shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}})", "\"t\" lacks dtype"},
           {R"({"t":{"shape":[1,1,1,1,1,1,1,1,1]}})", "\"t\" lacks dtype"},
           {R"({"t":{"data_offsets":[3,0]}})", "not a begin and an end"},
           {R"({"t":{"data_offsets":[3]}})", "not a begin and an end"},
           {R"({"t)", "ends too early"},
           {"{\"t\n\"", "a control byte"},
           {R"({"\x")", "an unknown escape"},
           {R"({"\u12g4")", "four hexadecimal digits"},
           {R"({"\ud800x")", "surrogate"},
           {R"({"\udc00")", "surrogate"},
           {R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}})", "takes 2 bytes, and has 3"},
           {R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            "begins at byte 1 of the data, where 0 was expected"},
           {R"({"t":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})",
            "\"t\" is BOOL, and its element 2 is 2"}}) {
    INFO(c.header);
    CHECK_THAT(message(file_of(c.header, 3)), contains(c.message));
  }
  CHECK_THAT(message(file_of("{" + t + "," + t + "}", 3)), contains("\"t\" is used twice"));
  const std::string u = R"("u":{"dtype":"U8","shape":[2],"data_offsets":[1,3]})";
  CHECK_THAT(message(file_of("{" + t + "," + u + "}", 3)),
             contains("\"u\" begins at byte 1 of the data, where 3 was expected"));
}
