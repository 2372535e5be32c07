// GGUF files that are cut, changed, or made to cost memory: each is refused with the byte, the key
// or tensor and the value named, or read.
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "lm/gguf_writer.h"
#include "lm/read_everything.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::error_of;
using lm::GgufFile;

namespace {

GgufWriter good() {
  GgufWriter w;
  w.keys = {{"general.alignment", 4, raw_bytes<std::uint32_t>(32)},
            {"a.text", 8, gguf_text("words")},
            {"a.texts", 9, gguf_texts({"one", "two"})},
            {"a.flags", 9, gguf_array(7, 2, Bytes("\0\1", 2))},
            {"a.nested", 9, gguf_array(9, 1, gguf_array(4, 1, Bytes(4, '\1')))},
            {"a.number", 10, Bytes(8, '\1')}};
  w.tensors = {{"w", {3, 2}, 0, Bytes(24, '\1')}, {"q", {64, 1}, 2, Bytes(36, '\1')}};
  return w;
}

struct Refused {
  Bytes bytes;
  std::string why;  ///< the message from "byte" on
};

/// A file with one key, "k", whose value begins at byte 37.
Bytes of_key(std::uint32_t type, const Bytes& value) {
  GgufWriter w;
  w.keys = {{"k", type, value}};
  return w.bytes();
}
/// A file with one tensor, "t": its sizes begin at byte 37.
Bytes of_tensor(const std::vector<std::uint64_t>& ne, std::uint32_t type, const Bytes& data,
                std::uint64_t offset = 0) {
  GgufWriter w;
  w.tensors = {{"t", ne, type, data, offset}};
  Bytes header = w.header();
  header.resize((header.size() + 31) / 32 * 32, '\0');
  return header + data;
}

Bytes nested(int depth) {
  return depth == 0 ? Bytes()
                    : gguf_array(depth == 1 ? 0 : 9, depth == 1 ? 0 : 1, nested(depth - 1));
}

std::vector<Refused> refused_beginnings() {
  const auto begins = [](const Bytes& magic, std::uint32_t version, std::uint64_t tensors = 0,
                         std::uint64_t keys = 0) {
    return magic + little_endian(version, 4) + little_endian(tensors, 8) + little_endian(keys, 8);
  };
  return {{"", "byte 0: the beginning has 4 bytes, and 0 are left of the file"},
          {"GGU", "byte 0: the beginning has 4 bytes, and 3 are left of the file"},
          {begins("GGML", 3), "byte 0: the file begins with \"GGML\"; expected \"GGUF\""},
          {"GGUF", "byte 4: a version has 4 bytes, and 0 are left of the file"},
          {begins("GGUF", 0), "byte 4: the version is 0"},
          {begins("GGUF", 1), "byte 4: the version is 1"},
          {begins("GGUF", 4), "byte 4: the version is 4"},
          {begins("GGUF", 0x03000000), "byte 4: the version has its bytes in big-endian order"},
          {begins("GGUF", 3, 200001),
           "byte 8: the file declares 200001 tensors, and at most 200000 are read"},
          {begins("GGUF", 3, 0, ~std::uint64_t{0}),
           "byte 16: the file declares 18446744073709551615 keys, and at most 200000 are read"},
          {begins("GGUF", 3, 1), "byte 24: a length has 8 bytes, and 0 are left of the file"},
          {begins("GGUF", 3, 0, 1), "byte 24: a length has 8 bytes, and 0 are left of the file"}};
}

std::vector<Refused> refused_keys() {
  const auto alignment = [](std::uint32_t type, const Bytes& value) {
    GgufWriter w;
    w.keys = {{"general.alignment", type, value}};
    return w.bytes();
  };
  const auto aligned_to = [&](std::uint32_t value) { return alignment(4, raw_bytes(value)); };
  const std::string align = "byte 53: \"general.alignment\": the value is ";
  GgufWriter twice;
  twice.keys = {{"k", 0, "a"}, {"l", 0, "a"}, {"k", 8, gguf_text("b")}};
  GgufWriter long_key;
  long_key.keys = {{"", 0, "a"}};
  Bytes key_too_long = long_key.header();
  key_too_long.replace(24, 8, little_endian(std::uint64_t{1} << 63, 8));
  return {
      {key_too_long, "byte 32: a key has 9223372036854775808 bytes, and 5 are left of the file"},
      {of_key(13, "a"), "byte 33: \"k\": the type of the value is 13; the types are 0 to 12"},
      {of_key(4294967295u, "a"),
       "byte 33: \"k\": the type of the value is 4294967295; the types are 0 to 12"},
      {of_key(9, gguf_array(13, 1, "a")),
       "byte 37: \"k\": the type of the value is 13; the types are 0 to 12"},
      {of_key(7, "\2"), "byte 37: \"k\": a BOOL is 2, neither 0 nor 1"},
      {of_key(9, gguf_array(7, 3, Bytes("\0\1\xff", 3))),
       "byte 51: \"k\": a BOOL is 255, neither 0 nor 1"},
      {of_key(4, "abc"), "byte 37: \"k\": a value has 4 bytes, and 3 are left of the file"},
      {of_key(8, little_endian(4, 8) + "abc"),
       "byte 45: \"k\": a text has 4 bytes, and 3 are left of the file"},
      {of_key(8, Bytes(8, '\xff') + "abc"),
       "byte 45: \"k\": a text has 18446744073709551615 bytes, and 3 are left of the file"},
      {of_key(9, gguf_array(10, (std::uint64_t{1} << 61) + 1, Bytes(8, '\1'))),
       "byte 49: \"k\": 2305843009213693953 elements are more than a file can hold"},
      {of_key(9, gguf_array(4, std::uint64_t{1} << 40, Bytes(8, '\1'))),
       "byte 49: \"k\": a value has 4398046511104 bytes, and 8 are left of the file"},
      {of_key(9, gguf_array(8, std::uint64_t{1} << 60, gguf_text("abc"))),
       "byte 60: \"k\": a length has 8 bytes, and 0 are left of the file"},
      {of_key(9, gguf_array(9, std::uint64_t{1} << 60, gguf_array(0, 0, ""))),
       "byte 61: \"k\": a type has 4 bytes, and 0 are left of the file"},
      {of_key(9, nested(9)), "byte 133: \"k\": arrays are in arrays, more than 8 deep"},
      {twice.bytes(), "byte 60: \"k\": two keys have this name"},
      {alignment(5, Bytes(4, '\1')), align + "INT32; expected UINT32"},
      {alignment(10, Bytes(8, '\1')), align + "UINT64; expected UINT32"},
      {aligned_to(0), align + "0; expected a power of two from 8 on"},
      {aligned_to(4), align + "4; expected a power of two from 8 on"},
      {aligned_to(24), align + "24; expected a power of two from 8 on"},
      {aligned_to(4294967295u), align + "4294967295; expected a power of two from 8 on"}};
}

std::vector<Refused> refused_tensors() {
  const Bytes four(4, '\1');
  const std::string many =
      " makes too many elements; fewer than 2^54 are read, with sizes of 0 counted as 1";
  const auto two = [&](const std::string& a, const std::string& b, std::uint32_t type,
                       std::uint64_t offset) {
    GgufWriter w;
    w.tensors = {{a, {16}, 0, Bytes(64, '\1')}, {b, {1}, type, four, offset}};
    return w.bytes() + Bytes(64, '\1');
  };
  const std::string data = " bytes, and the file has 4 bytes of data, from byte 64 on";
  const std::uint64_t far = ~std::uint64_t{31};
  return {
      {of_tensor({1, 1, 1, 1, 1, 1}, 0, four).replace(33, 4, little_endian(9, 4)),
       "byte 33: \"t\": the tensor has 9 axes; firn has tensors of at most 8"},
      {of_tensor({1}, 0, four).replace(33, 4, Bytes(4, '\xff')),
       "byte 33: \"t\": the tensor has 4294967295 axes; firn has tensors of at most 8"},
      {of_tensor({std::uint64_t{1} << 54}, 0, four),
       "byte 37: \"t\": the size 18014398509481984" + many},
      {of_tensor({0, ~std::uint64_t{0}}, 0, four),
       "byte 45: \"t\": the size 18446744073709551615" + many},
      {of_tensor({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, four),
       "byte 45: \"t\": the size 4294967296" + many},
      {of_tensor({31}, 2, Bytes(18, '\1')),
       "byte 45: \"t\": in [31] Q4_0 rows of 31 are no multiple of blocks of 32"},
      {of_tensor({16, 2}, 2, Bytes(18, '\1')),
       "byte 53: \"t\": in [2, 16] Q4_0 rows of 16 are no multiple of blocks of 32"},
      {of_tensor({}, 8, Bytes(34, '\1')),
       "byte 37: \"t\": in [] Q8_0 rows of 1 are no multiple of blocks of 32"},
      {of_tensor({1}, 0, four, 4),
       "byte 49: \"t\": the offset 4 is no multiple of the alignment 32"},
      {of_tensor({2}, 0, four), "byte 32: \"t\": the tensor has the offset 0 and 8" + data},
      {of_tensor({1}, 0, four, 32), "byte 32: \"t\": the tensor has the offset 32 and 4" + data},
      {of_tensor({1}, 0, four, far),
       "byte 32: \"t\": the tensor has the offset 18446744073709551584 and 4" + data},
      {of_tensor({(std::uint64_t{1} << 54) - 1}, 0, four),
       "byte 32: \"t\": the tensor has the offset 0 and 72057594037927932" + data},
      {of_tensor({std::uint64_t{1} << 53}, 14, four),
       "byte 32: \"t\": the tensor has the offset 0 and 7388718138654720" + data},
      {of_tensor({256}, 16, four, 32), "byte 32: \"t\": the tensor has the offset 32 and 0" + data},
      {two("a", "b", 0, 0), "byte 32: \"a\": the tensor overlaps \"b\""},
      {two("a", "b", 0, 32),
       "byte 65: \"b\": the tensor overlaps \"a\", since it begins at byte 128, and that one ends "
       "at 160"},
      {two("a", "b", 16, 32), "byte 65: \"b\": the tensor overlaps \"a\""},
      {two("a", "a", 0, 64), "byte 65: \"a\": two tensors have this name"}};
}

}  // namespace

TEST_CASE("GgufFile: bad headers are refused with byte, name and value", "[host]") {
  const TempFolder folder;
  const std::string path = folder.file("bad.gguf");
  std::set<std::string> distinct;
  for (const auto& cases : {refused_beginnings(), refused_keys(), refused_tensors()})
    for (const Refused& c : cases) {
      CAPTURE(c.why);
      distinct.insert(c.bytes);
      write_file(path, c.bytes);
      for (const bool map : {true, false}) {
        const std::string message = error_of([&] { GgufFile file(path, {.map = map}); });
        CHECK_THAT(message, contains("[GgufFile] " + path + ": " + c.why));
        CHECK_THAT(message, contains("; hint: "));
        CHECK_THROWS_AS(GgufFile(path, {.map = map}), IoError);
      }
    }
  CHECK(distinct.size() >= 50);
  CHECK_THAT(error_of([&] { GgufFile file(folder.file("gone")); }), contains("cannot be opened"));
  CHECK_THAT(error_of([&] { GgufFile file(folder.path().string()); }), contains("is a directory"));
  // The place of a tensor without elements is of no account.
  for (const Bytes& bytes :
       {of_key(9, nested(8)), of_tensor({1}, 0, Bytes(4, '\1')), of_tensor({0}, 0, "", 1024)})
    CHECK_NOTHROW(read_everything(GgufFile(write_file(path, bytes))));
}

TEST_CASE("GgufFile: a file that ends early is refused, wherever it ends", "[host]") {
  const TempFolder folder;
  const Bytes bytes = good().bytes();
  const std::string path = folder.file("cut.gguf");
  CHECK_NOTHROW(read_everything(GgufFile(write_file(path, bytes))));
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    CAPTURE(n);
    write_file(path, bytes.substr(0, n));
    CHECK_THROWS_AS(GgufFile(path), IoError);
  }
}

TEST_CASE("GgufFile: with any number replaced by any extreme a file is read or refused", "[host]") {
  const TempFolder folder;
  const Bytes bytes = good().bytes();
  const std::size_t header = good().header().size();
  const std::string path = folder.file("changed.gguf");
  std::size_t read = 0, refused = 0;
  for (std::size_t at = 0; at < header; ++at)
    for (const int width : {1, 4, 8})
      for (const std::uint64_t value :
           {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, ~std::uint64_t{0} >> 1,
            std::uint64_t{1} << 63, std::uint64_t{1} << 31, std::uint64_t{1} << 61}) {
        Bytes changed = bytes;
        changed.replace(at, static_cast<std::size_t>(width), little_endian(value, width));
        changed.resize(bytes.size());
        write_file(path, changed);
        reset_peak_memory(Device::cpu());
        const std::size_t before = memory_stats(Device::cpu()).total.current;
        try {
          read_everything(GgufFile(path));
          ++read;
        } catch (const IoError&) {
          ++refused;
        }
        const auto after = memory_stats(Device::cpu()).total;
        if (after.current != before || after.peak > before + 4096) {
          INFO("byte " << at << ", " << width << " bytes of " << value);
          REQUIRE(after.peak == before);
        }
      }
  CHECK(read > 100);
  CHECK(refused > 1000);
}

TEST_CASE("GgufFile: a header longer than 256 MiB is refused before it is read", "[host]") {
  const TempFolder folder;
  const std::string path =
      write_file(folder.file("long.gguf"), of_key(8, little_endian(std::uint64_t{300} << 20, 8)));
  std::filesystem::resize_file(path, std::uint64_t{400} << 20);  // a hole, which takes no disk
  CHECK_THAT(
      error_of([&] { GgufFile file(path); }),
      contains("byte 45: \"k\": a text has 314572800 bytes, and headers of at most 268435456 "
               "are read"));
}
