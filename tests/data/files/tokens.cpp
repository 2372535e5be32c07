// Files of tokens: windows as they were written, every format, and what is refused.
#include "firn/data/tokens.h"

#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "data/files.h"
#include "data/loader_sets.h"
#include "firn/data/loader.h"
#include "firn/firn.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using data::Loader;
using data::TokenDataset;
using data::TokenFormat;
using data::TokenOptions;

namespace {

using Ints = std::vector<std::int64_t>;

constexpr TokenFormat kFormats[] = {TokenFormat::u8, TokenFormat::u16, TokenFormat::u32,
                                    TokenFormat::i32, TokenFormat::i64};

Ints counting(std::int64_t first, std::int64_t n) {
  Ints v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), first);
  return v;
}

/// A raw file of the tokens 0 to n - 1.
std::string counting_file(const TempFolder& folder, std::int64_t n,
                          TokenFormat format = TokenFormat::u16) {
  const std::string path = folder.file("tokens.bin");
  data::write_tokens(path, counting(0, n), format);
  return path;
}

Bytes npy(const std::string& descr, const std::string& shape, const Bytes& elements) {
  const std::string text =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  return Bytes("\x93NUMPY\x01\x00", 8) + little_endian(text.size(), 2) + text + elements;
}

template <class Fn>
std::string message_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

void expect_windows(const TokenDataset& set, std::int64_t samples, std::int64_t length,
                    std::int64_t stride) {
  REQUIRE(set.size() == samples);
  for (std::int64_t i = 0; i < samples; ++i) {
    const data::Sample sample = set[i];
    REQUIRE(sample.size() == 2);
    CHECK(sample[0].dtype() == i64);
    CHECK(sample[0].to_vector<std::int64_t>() == counting(i * stride, length));
    CHECK(sample[1].to_vector<std::int64_t>() == counting(i * stride + 1, length));
  }
}

}  // namespace

TEST_CASE("tokens: y is x one token later, in every format", "[host]") {
  const TempFolder folder;
  for (const TokenFormat format : kFormats) {
    CAPTURE(data::to_string(format));
    const std::string path = counting_file(folder, 21, format);
    expect_windows(TokenDataset(path, {.length = 4, .format = format}), 5, 4, 4);
    expect_windows(TokenDataset(path, {.length = 4, .stride = 3, .format = format}), 6, 4, 3);
    expect_windows(TokenDataset(path, {.length = 4, .stride = 7, .format = format}), 3, 4, 7);
    expect_windows(TokenDataset(path, {.length = 20, .format = format}), 1, 20, 20);
    expect_windows(TokenDataset(path, {.length = 1, .stride = 1, .format = format}), 20, 1, 1);
  }
}

TEST_CASE("tokens: the largest and smallest number of each format come back", "[host]") {
  const TempFolder folder;
  const Ints extremes[] = {
      {0, 255},
      {0, 65535},
      {0, 4294967295},
      {std::numeric_limits<std::int32_t>::min(), 2147483647},
      {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}};
  for (const TokenFormat format : kFormats) {
    const Ints& want = extremes[static_cast<int>(format)];
    const std::string path = folder.file("t");
    data::write_tokens(path, want, format);
    const data::Sample sample = TokenDataset(path, {.length = 1, .format = format})[0];
    CHECK(sample[0].to_vector<std::int64_t>() == Ints{want[0]});
    CHECK(sample[1].to_vector<std::int64_t>() == Ints{want[1]});
  }
  const std::string path = folder.file("old");
  data::write_tokens(path, Ints{1, 2, 3});
  CHECK(read_file(path) == Bytes("\1\0\2\0\3\0", 6));
  CHECK(message_of([&] {
          data::write_tokens(path, Ints{1, 65536}, TokenFormat::u16);
        }) ==
        "[write_tokens] token 65536 at position 1 does not fit in u16, which holds 0 to "
        "65535; hint: choose a wider TokenFormat");
  CHECK_THROWS_AS(data::write_tokens(path, Ints{-1}, TokenFormat::u32), Error);
  CHECK_THROWS_AS(data::write_tokens(path, Ints{1}, static_cast<TokenFormat>(9)), Error);
  CHECK_THROWS_AS(data::write_tokens(folder.file("x.npy"), Ints{1}), Error);
  CHECK(read_file(path) == Bytes("\1\0\2\0\3\0", 6));
}

TEST_CASE("tokens: a header is left out, and NumPy's arrays are read", "[host]") {
  const TempFolder folder;
  const Bytes three("\7\0\10\0\11\0", 6);
  const Ints x = {7, 8}, y = {8, 9};
  const std::string raw = write_file(folder.file("t"), "head" + three);
  CHECK(TokenDataset(raw, {.length = 2, .header_bytes = 4})[0][0].to_vector<std::int64_t>() == x);
  const auto reads = [&](const Bytes& bytes, TokenOptions options) {
    const data::Sample sample = TokenDataset(write_file(folder.file("t.npy"), bytes), options)[0];
    CHECK(sample[0].to_vector<std::int64_t>() == x);
    CHECK(sample[1].to_vector<std::int64_t>() == y);
  };
  reads(npy("<u2", "(3,)", three), {.length = 2});
  reads(npy("<u2", "(3,)", three), {.length = 2, .format = TokenFormat::u16});
  reads(npy("|u1", "(3,)", "\7\10\11"), {.length = 2});
  for (const char* const name : {"<u4", "<i4"})
    reads(npy(name, "(3,)", Bytes("\7\0\0\0\10\0\0\0\11\0\0\0", 12)), {.length = 2});
  io::write_npy(folder.file("u.npy"), tensor<std::int64_t>({7, 8, 9}, {3}));
  reads(read_file(folder.file("u.npy")), {.length = 2});
  // Version 2.0, whose header has a length of four bytes.
  const Bytes one = npy("<u2", "(3,)", three);
  reads(Bytes("\x93NUMPY\x02\x00", 8) + one.substr(8, 2) + Bytes(2, '\0') + one.substr(10),
        {.length = 2});
  const auto refused = [&](const Bytes& bytes, TokenOptions options = {.length = 2}) {
    const std::string path = write_file(folder.file("t.npy"), bytes);
    std::string text = message_of([&] { TokenDataset(path, options); });
    const std::size_t at = text.find(path);
    return at == std::string::npos ? text : text.replace(at, path.size(), "PATH");
  };
  CHECK(refused(npy("<u2", "(3,)", three), {.length = 2, .format = TokenFormat::i32}) ==
        "[TokenDataset] PATH: holds u16, but TokenOptions::format is i32; hint: leave out the "
        "format of a .npy file");
  CHECK_THAT(refused(npy(">u2", "(3,)", three)), contains("holds big-endian numbers"));
  CHECK_THAT(refused(npy("<f4", "(3,)", Bytes(12, 'x'))), contains("holds [3] f32, and tokens"));
  CHECK_THAT(refused(npy("<u2", "(3, 1)", three)), contains("an array of shape [3, 1]"));
  CHECK_THAT(refused(npy("<u2", "(4,)", three)), contains("4 tokens take 8 bytes from byte"));
  CHECK_THAT(refused(Bytes(12, 'x')), contains("byte 0 is 78, where 93 of the magic string"));
  CHECK_THAT(refused(npy("<u2", "(3,)", three), {.length = 2, .header_bytes = 1}),
             contains("header_bytes is 1"));
}

TEST_CASE("tokens: what is refused, in words", "[host]") {
  const TempFolder folder;
  const std::string path = counting_file(folder, 5);
  const auto refused = [&](TokenOptions options) {
    return message_of([&] { TokenDataset(path, options); });
  };
  CHECK(refused({}) ==
        "[TokenDataset] length must be at least 1, not 0; hint: set TokenOptions::length, the "
        "tokens of a sample");
  CHECK(refused({.length = 5}) ==
        "[TokenDataset] " + path +
            ": has 5 tokens, and a window of length 5 takes 5 and the next one; hint: use a "
            "smaller length, or more text");
  CHECK(refused({.length = 1, .format = TokenFormat::u32}) ==
        "[TokenDataset] " + path +
            ": has 10 bytes of tokens, which is no multiple of the 4 bytes of a u32; hint: check "
            "TokenOptions::format and header_bytes; the file may be truncated");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK_THAT(refused({.length = most}), contains("has 5 tokens"));
  CHECK_THAT(refused({.length = 1, .header_bytes = 11}), contains("has 10 bytes, fewer than"));
  CHECK_THAT(refused({.length = 1, .header_bytes = most}), contains("has 10 bytes, fewer than"));
  CHECK_THAT(refused({.length = 1, .stride = -1}), contains("are 0 or more, not -1, 0 and 0"));
  CHECK_THAT(refused({.length = 1, .format = static_cast<TokenFormat>(5)}),
             contains("5 is no token format"));
  CHECK(TokenDataset(path, {.length = 4, .stride = most}).size() == 1);
  CHECK_THROWS_AS(TokenDataset(folder.file("none"), {.length = 1}), IoError);
  CHECK_THROWS_AS(TokenDataset(path, {.length = 4})[1], Error);
}

TEST_CASE("tokens: one outside of the vocabulary is named with its place", "[host]") {
  const TempFolder folder;
  const std::string path = counting_file(folder, 13);
  CHECK(TokenDataset(path, {.length = 4, .vocabulary = 13}).size() == 3);
  const TokenDataset set(path, {.length = 4, .vocabulary = 12});
  CHECK(set[1][1].to_vector<std::int64_t>() == Ints{5, 6, 7, 8});
  const std::string want =
      "[TokenDataset] sample 2: token 12 at position 12 of " + path +
      " is outside of the vocabulary [0, 12); hint: check TokenOptions::format and vocabulary";
  CHECK(message_of([&] { set[2]; }) == want);  // it is the last token of y alone
  const Ints all = {0, 1, 2};
  CHECK(message_of([&] { set.collect(all); }) == want);
  data::write_tokens(path, Ints{3, -1, 3}, TokenFormat::i32);
  const TokenDataset negative(path, {.length = 2, .format = TokenFormat::i32, .vocabulary = 4});
  CHECK_THAT(message_of([&] { negative[0]; }), contains("token -1 at position 1"));
  // A loader leaves the sample out on demand.
  counting_file(folder, 13);
  Loader loader(TokenDataset(path, {.length = 4, .vocabulary = 12}),
                {.batch = 3, .bad_sample = data::BadSample::skip});
  CHECK(ids_of(loader, 0) == Ints{0, 1});
}

TEST_CASE("tokens: a batch is what single samples make, and loaders agree", "[host]") {
  const TempFolder folder;
  const TokenDataset set(counting_file(folder, 1000), {.length = 16, .stride = 5});
  const Ints some = {7, 7, 0, set.size() - 1, 30};
  const data::Sample batch = set.collect(some);
  std::vector<data::Sample> samples;
  for (const std::int64_t i : some) samples.push_back(set[i]);
  const data::Sample expected = data::collate(samples);
  for (std::size_t f = 0; f < 2; ++f) {
    CHECK(batch[f].shape() == Shape{5, 16});
    CHECK(batch[f].to_vector<std::int64_t>() == expected[f].to_vector<std::int64_t>());
  }
  const auto loader_of = [&](int workers) {
    return Loader(set, {.batch = 8, .shuffle = true, .seed = 4, .workers = workers});
  };
  Loader plain = loader_of(0);
  const std::uint64_t first = hash_of(plain, 0);
  std::vector<std::uint64_t> rest;
  for (const int workers : {1, 3}) {
    Loader loader = loader_of(workers);
    CHECK(hash_of(loader, 0) == first);
    loader.seek({2, 40});
    rest.push_back(hash_of(loader, 2));
  }
  plain.seek({2, 40});
  CHECK(rest == std::vector<std::uint64_t>(2, hash_of(plain, 2)));
  // Sets of sets: two splits have all windows.
  const auto parts = data::random_split(set, {0.5, 0.5}, 1);
  CHECK(parts[0].size() + parts[1].size() == set.size());
  CHECK(data::Concat({parts[0], parts[1]}).collect(Ints{0, set.size() - 1})[0].size(0) == 2);
}

TEST_CASE("tokens: threads share one set", "[host][threads]") {
  const TempFolder folder;
  const TokenDataset set(counting_file(folder, 4001), {.length = 8});
  std::vector<int> wrong(4, 0);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t)
      threads.emplace_back([&, t] {
        for (std::int64_t i = static_cast<std::int64_t>(t); i < set.size(); i += 2)
          wrong[t] += set[i][0].to_vector<std::int64_t>() != counting(8 * i, 8) ? 1 : 0;
      });
  }
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("tokens: a file that shrinks after it was opened is an error, not a signal", "[host]") {
  const TempFolder folder;
  const std::string path = counting_file(folder, 4096);
  const TokenDataset set(path, {.length = 1024});
  std::filesystem::resize_file(path, 4096);
  CHECK(set[0][0].size(0) == 1024);
  CHECK_THROWS_AS(set[2], IoError);
  CHECK_THAT(message_of([&] {
               set.collect(Ints{0, 2});
             }),
             contains("[Dataset] sample 2: [TokenDataset] " + path + ": ends at byte 4096"));
}
