// The safetensors writer: the header parses, the bytes are the tensors', and failures leave no
// trace.
#include "firn/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "data/files.h"
#include "firn/firn.h"
#include "support/matchers.h"

using namespace firn;
using namespace firn::test;
using nlohmann::json;

namespace {

struct Parsed {
  json header;
  Bytes data;
};

Parsed parse(const Bytes& file) {
  REQUIRE(file.size() >= 8);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  REQUIRE(length % 8 == 0);
  REQUIRE(length <= file.size() - 8);
  return {json::parse(file.substr(8, length)), file.substr(8 + length)};
}

template <class T>
std::vector<T> values_of(const Parsed& p, const std::string& name) {
  const auto offsets = p.header.at(name).at("data_offsets").get<std::vector<std::size_t>>();
  std::vector<T> v((offsets[1] - offsets[0]) / sizeof(T));
  if (!v.empty()) std::memcpy(v.data(), p.data.data() + offsets[0], offsets[1] - offsets[0]);
  return v;
}

}  // namespace

TEST_CASE("safetensors: header and bytes of every dtype") {
  const TempFolder folder;
  const std::string path = folder.file("all.safetensors");
  const Tensor matrix = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const std::vector<nn::NamedTensor> tensors = {
      {"u8", tensor<std::uint8_t>({1, 2, 255})},
      {"layer.weight", matrix},
      {"view", matrix.transpose(0, 1)},
      {"i64", tensor<std::int64_t>({-1, 1LL << 40})},
      {"i32", tensor<std::int32_t>({-7})},
      {"f64", full({}, 0.1, f64)},
      {"f16", tensor<float>({1.5f, -2.f}).to(f16)},
      {"bf16", tensor<float>({1.5f}).to(bf16)},
      {"bool", ones({3}, boolean)},
      {"empty", empty({0, 4})},
  };
  const std::vector<io::Metadata> metadata = {{"format", "pt"}, {"note", "a \"b\" \\ \n\x01 é"}};
  io::save_safetensors(path, tensors, metadata);
  const Parsed p = parse(read_file(path));

  CHECK(p.header.size() == tensors.size() + 1);
  CHECK(p.header["__metadata__"]["format"] == "pt");
  CHECK(p.header["__metadata__"]["note"] == "a \"b\" \\ \n\x01 é");
  CHECK(p.header["layer.weight"]["dtype"] == "F32");
  CHECK(p.header["layer.weight"]["shape"] == json({2, 3}));
  CHECK(p.header["view"]["shape"] == json({3, 2}));
  CHECK(p.header["f64"]["shape"] == json::array());
  CHECK(p.header["f64"]["dtype"] == "F64");
  CHECK(p.header["bool"]["dtype"] == "BOOL");
  CHECK(p.header["u8"]["dtype"] == "U8");
  CHECK(p.header["i32"]["dtype"] == "I32");
  CHECK(p.header["i64"]["dtype"] == "I64");
  CHECK(p.header["f16"]["dtype"] == "F16");
  CHECK(p.header["bf16"]["dtype"] == "BF16");

  CHECK(values_of<float>(p, "layer.weight") == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(values_of<float>(p, "view") == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(values_of<std::uint8_t>(p, "u8") == std::vector<std::uint8_t>{1, 2, 255});
  CHECK(values_of<std::int64_t>(p, "i64") == std::vector<std::int64_t>{-1, 1LL << 40});
  CHECK(values_of<std::int32_t>(p, "i32") == std::vector<std::int32_t>{-7});
  CHECK(values_of<double>(p, "f64") == std::vector<double>{0.1});
  CHECK(values_of<std::uint16_t>(p, "f16") == std::vector<std::uint16_t>{0x3e00, 0xc000});
  CHECK(values_of<std::uint16_t>(p, "bf16") == std::vector<std::uint16_t>{0x3fc0});
  CHECK(values_of<float>(p, "empty").empty());

  // The ranges tile the data: no hole, no overlap; each tensor is aligned to its element size.
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (const auto& [name, t] : tensors) {
    const auto o = p.header[name]["data_offsets"].get<std::vector<std::size_t>>();
    CHECK(o[1] - o[0] == t.bytes());
    CHECK(o[0] % size_of(t.dtype()) == 0);
    ranges.emplace_back(o[0], o[1]);
  }
  std::sort(ranges.begin(), ranges.end());
  std::size_t end = 0;
  for (const auto& [from, to] : ranges) {
    CHECK(from == end);
    end = to;
  }
  CHECK(end == p.data.size());
}

TEST_CASE("safetensors: no tensors is a valid file") {
  const TempFolder folder;
  const std::string path = folder.file("none.safetensors");
  io::save_safetensors(path, {});
  const Parsed p = parse(read_file(path));
  CHECK(p.header == json::object());
  CHECK(p.data.empty());
}

TEST_CASE("safetensors: what cannot be written leaves the old file and no other") {
  const TempFolder folder;
  const std::string path = folder.file("w.safetensors");
  const Tensor t = ones({2});
  io::save_safetensors(path, std::vector<nn::NamedTensor>{{"a", t}});
  const Bytes old = read_file(path);

  const auto save = [&](const std::string& to, const std::vector<nn::NamedTensor>& tensors,
                        const std::vector<io::Metadata>& metadata = {}) {
    io::save_safetensors(to, tensors, metadata);
  };
  CHECK_THROWS_WITH(save(path, {{"a", t}, {"a", t}}), contains("\"a\" is used twice"));
  CHECK_THROWS_WITH(save(path, {{"a", Tensor()}}), contains("\"a\" is undefined"));
  CHECK_THROWS_WITH(save(path, {{"__metadata__", t}}), contains("reserved"));
  CHECK_THROWS_WITH(save(path, {{"a", t}}, {{"k", "1"}, {"k", "2"}}),
                    contains("\"k\" is used twice"));
  CHECK(read_file(path) == old);

  CHECK_THROWS_AS(save(folder.file("no/such/folder"), {{"a", t}}), IoError);
  std::filesystem::create_directory(folder.path() / "taken");
  CHECK_THROWS_WITH(save(folder.file("taken"), {{"a", t}}), contains("is a directory"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()),
                      std::filesystem::directory_iterator()) == 2);
}
