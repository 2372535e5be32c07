// Files that are changed at random: every reader returns or throws Error, and allocates no more
// than the file has.
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::Rng;

namespace {

/// One to four changes: a bit, a byte, a piece removed, repeated or replaced by a token.
Bytes mutated(Bytes bytes, const std::vector<std::string>& tokens, Rng& rng) {
  const auto place = [&](std::size_t end) {
    return static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(end) + 1));
  };
  for (std::int64_t changes = 1 + rng.below(4); changes > 0; --changes) {
    const std::size_t at = place(bytes.size()),
                      n = place(std::min<std::size_t>(bytes.size() - at, 12));
    switch (rng.below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << rng.below(8));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(rng.below(256));
        break;
      case 2:
        bytes.erase(at, n);
        break;
      case 3:
        bytes.insert(place(bytes.size()), bytes.substr(at, n));
        break;
      case 4:
        bytes.replace(
            at, n,
            tokens[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(tokens.size())))]);
        break;
      default:
        if (rng.below(4) == 0) bytes.resize(at);
    }
  }
  return bytes;
}

/// FIRN_FUZZ_SEED and FIRN_FUZZ_CALLS as for firn_test_fuzz.
std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

void run(const std::string& path, const Bytes& good, const std::vector<std::string>& tokens,
         std::uint64_t salt, const std::function<void()>& read) {
  const auto seed = static_cast<std::uint64_t>(setting("FIRN_FUZZ_SEED", 1)) + salt;
  const std::int64_t calls = setting("FIRN_FUZZ_CALLS", 7000);
  Rng rng(seed);
  write_file(path, good);
  read();
  const std::size_t idle = memory_stats(Device::cpu()).total.current;
  int returned = 0, refused = 0;
  for (std::int64_t i = 0; i < calls; ++i) {
    const Bytes bytes = mutated(good, tokens, rng);
    write_file(path, bytes);
    reset_peak_memory(Device::cpu());
    std::string wrong;
    try {
      read();
      ++returned;
    } catch (const Error&) {
      ++refused;
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    const auto stats = memory_stats(Device::cpu()).total;
    // A block is a multiple of 64 bytes, and a tensor may have none of its own.
    if (!wrong.empty() || stats.current != idle || stats.peak > idle + bytes.size() + 64 * 64) {
      INFO("seed " << seed << ", file " << i << ": " << wrong << "; peak " << stats.peak);
      REQUIRE(false);
    }
  }
  INFO(returned << " read, " << refused << " refused");
  CHECK(refused > calls / 2);
  CHECK(returned > calls / 200);  // the changes are small enough to get past the header
}

const std::vector<nn::NamedTensor>& some() {
  static const std::vector<nn::NamedTensor> tensors = {{"w", ones({2, 3})},
                                                       {"n", zeros({}, i64)},
                                                       {"h", ones({5}, bf16)},
                                                       {"m", ones({3}, boolean)}};
  return tensors;
}

const std::vector<std::string> kJson = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "\\",
                                        "\\u0000",
                                        "\\ud800",
                                        "-1",
                                        "1e999",
                                        "0",
                                        "4294967296",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "null",
                                        "\"dtype\"",
                                        "\"shape\"",
                                        "\"data_offsets\"",
                                        "\"F64\"",
                                        "\"BOOL\"",
                                        "\"U8\"",
                                        "[0,0]",
                                        "\"__metadata__\"",
                                        "\"weight_map\"",
                                        "\"metadata\"",
                                        "../",
                                        "/",
                                        "..",
                                        std::string(1, '\0'),
                                        "\xff",
                                        "\xc3\xa9",
                                        "one.safetensors",
                                        std::string(40, '[')};

}  // namespace

TEST_CASE("mutated: safetensors files", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("x.safetensors");
  io::save_safetensors(path, some(), std::vector<io::Metadata>{{"format", "pt"}});
  nn::Linear module(3, 2);
  int round = 0;
  run(path, read_file(path), kJson, 0, [&] {
    switch (++round % 3) {
      case 0:
        io::load_safetensors(path);
        break;
      case 1: {
        const io::SafetensorsFile file(path, {.map = true});
        file.metadata();
        for (const auto& name : file.names()) file.read(name).sum();
        break;
      }
      default:
        io::load_safetensors(path, module, {.strict = false, .rename = {{"w", "weight"}}});
    }
  });
}

TEST_CASE("mutated: indexes of several files", "[host]") {
  const TempFolder folder;
  io::save_safetensors(folder.file("one.safetensors"), some());
  io::save_safetensors(folder.file("two.safetensors"),
                       std::vector<nn::NamedTensor>{{"x", ones({3})}, {"y", ones({2})}});
  const std::string path = folder.file("model.safetensors.index.json");
  const Bytes good =
      "{\"metadata\": {\"total_size\": 65, \"a\": [1, {}]}, \"weight_map\": {"
      "\"w\": \"one.safetensors\", \"n\": \"one.safetensors\", \"x\": \"two.safetensors\"}}\n";
  // Each file that is opened may be as large as these two: the bound below is of the index alone.
  run(path, good + std::string(200, ' '), kJson, 1000, [&] {
    const io::SafetensorsFile file(folder.path().string());
    file.metadata();
    file.read_all();
  });
}

TEST_CASE("mutated: npy files", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("x.npy");
  io::write_npy(path, ones({2, 3, 4}));
  const std::vector<std::string> tokens = {"{",
                                           "}",
                                           "(",
                                           ")",
                                           ",",
                                           "'",
                                           "\"",
                                           ":",
                                           "True",
                                           "False",
                                           "'descr'",
                                           "'shape'",
                                           "<f4",
                                           ">i8",
                                           "|b1",
                                           "<V2",
                                           "|O",
                                           "()",
                                           "(0,)",
                                           "(4294967296, 4294967296)",
                                           "18446744073709551616",
                                           "L",
                                           std::string(1, '\0'),
                                           "\x93NUMPY",
                                           "\x02",
                                           "\x03",
                                           "\n"};
  // Without the white space that most changes would fall into.
  std::string text = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 4), }\n";
  const Bytes all = read_file(path);
  const Bytes good =
      all.substr(0, 8) + little_endian(text.size(), 2) + text + all.substr(all.size() - 96);
  run(path, good, tokens, 2000, [&] { io::read_npy(path).sum(); });
}
