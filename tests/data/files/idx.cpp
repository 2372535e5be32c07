// The IDX reader: every dtype, plain and gzip, and what it says about files that are not right.
#include "firn/data/idx.h"

#include "data/files.h"
#include "firn/error.h"
#include "firn/memory.h"
#include "support/catch.h"
#include "support/matchers.h"

using namespace firn;
using namespace firn::test;

namespace {

Bytes from_hex(const std::string& hex) {
  Bytes out;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

/// u8 [2, 3] with elements 1 to 6.
Bytes small_idx() { return idx_header(0x08, {2, 3}) + Bytes("\1\2\3\4\5\6", 6); }

/// The message of the IoError that reading `bytes` throws; "" where it reads.
std::string error_of(const Bytes& bytes) {
  const TempFolder folder;
  const std::string path = write_file(folder.file("f"), bytes);
  try {
    data::read_idx(path);
    return {};
  } catch (const IoError& e) {
    CHECK(e.path() == path);
    CHECK_THAT(e.what(), contains(path));
    CHECK(std::string(e.what()).find('\n') == std::string::npos);
    return e.what();
  }
}

template <class T>
void check_reads(const Bytes& bytes, DType dtype, const Shape& shape, const std::vector<T>& want) {
  const TempFolder folder;
  for (const Bytes& b : {bytes, gzip(bytes)}) {
    const Tensor t = data::read_idx(write_file(folder.file("f"), b));
    CHECK(t.dtype() == dtype);
    CHECK(t.shape() == shape);
    CHECK(t.to_vector<T>() == want);
  }
}

}  // namespace

TEST_CASE("IDX: every element type, plain and gzip") {
  check_reads<std::int8_t>(idx_header(0x09, {2}) + Bytes("\x05\xfe"), i8, {2}, {5, -2});
  check_reads<std::int16_t>(idx_header(0x0B, {2}) + Bytes("\x01\x02\xff\xfe"), i16, {2}, {258, -2});
  check_reads<std::uint8_t>(small_idx(), u8, {2, 3}, {1, 2, 3, 4, 5, 6});
  check_reads<std::int32_t>(idx_header(0x0C, {3}) + big_endian(1, 4) + big_endian(0xfffffffe, 4) +
                                big_endian(0x01020304, 4),
                            i32, {3}, {1, -2, 0x01020304});
  check_reads<float>(idx_header(0x0D, {2}) + big_endian(0x3fc00000, 4) + big_endian(0xc0200000, 4),
                     f32, {2}, {1.5f, -2.5f});
  check_reads<double>(idx_header(0x0E, {1, 1}) + big_endian(0x3fb999999999999a, 8), f64, {1, 1},
                      {0.1});
}

TEST_CASE("IDX: no axes is a scalar, a size of 0 is an empty tensor") {
  check_reads<std::uint8_t>(idx_header(0x08, {}) + Bytes("\7"), u8, {}, {7});
  check_reads<std::uint8_t>(idx_header(0x08, {0, 28, 28}), u8, {0, 28, 28}, {});
}

TEST_CASE("IDX: deflated data, and several gzip members in a row") {
  const TempFolder folder;
  const Bytes deflated = from_hex(
      "1f8b08000000000002036360e06062606060066216760e4e2e6e1e5e3e7e01412100324f44b718000000");
  std::vector<std::uint8_t> want;
  for (std::uint8_t v = 7; v < 19; ++v) want.push_back(v);
  CHECK(data::read_idx(write_file(folder.file("a"), deflated)).to_vector<std::uint8_t>() == want);

  const Bytes whole = small_idx();
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    const Bytes members = gzip(whole.substr(0, cut)) + gzip(whole.substr(cut));
    const Tensor t = data::read_idx(write_file(folder.file("b"), members));
    CHECK(t.to_vector<int>() == std::vector<int>{1, 2, 3, 4, 5, 6});
  }
}

TEST_CASE("IDX: zeros behind a gzip member are padding, and other bytes are not") {
  const TempFolder folder;
  const Bytes whole = small_idx(), packed = gzip(whole);
  for (const std::size_t zeros : {1, 512, 200'000}) {
    const Bytes pad(zeros, '\0');
    CHECK(data::read_idx(write_file(folder.file("a"), packed + pad)).numel() == 6);
    const Bytes parts = gzip(whole.substr(0, 9)) + pad + gzip(whole.substr(9)) + pad;
    CHECK(data::read_idx(write_file(folder.file("a"), parts)).numel() == 6);
    CHECK_THAT(error_of(packed + pad + "x"), contains("gzip data"));
  }
}

TEST_CASE("IDX: gzip is told by content, not by name") {
  const TempFolder folder;
  CHECK(data::read_idx(write_file(folder.file("plain.gz"), small_idx())).numel() == 6);
  CHECK(data::read_idx(write_file(folder.file("packed"), gzip(small_idx()))).numel() == 6);
}

TEST_CASE("IDX: memory is accounted to data") {
  const TempFolder folder;
  const std::size_t before = memory_stats(Device::cpu()).of(Owner::data).current;
  const Tensor t = data::read_idx(
      write_file(folder.file("f"), idx_header(0x08, {100'000}) + Bytes(100'000, 'x')));
  CHECK(memory_stats(Device::cpu()).of(Owner::data).current >= before + 100'000);
}

TEST_CASE("IDX: errors say what was expected and what was found, and where") {
  CHECK_THAT(error_of(""), contains("truncated header: expected the magic number at byte 0") &&
                               contains("the file is empty"));
  CHECK_THAT(error_of(Bytes("\0\0\x08", 3)), contains("the end after 3"));
  CHECK_THAT(error_of("hello, world"),
             contains("wrong magic number at byte 0") && contains("found 68 65 6c 6c"));
  CHECK_THAT(error_of(idx_header(0x0a, {1}) + "x"),
             contains("unsupported element type at byte 2") && contains("found 0a"));
  CHECK_THAT(error_of(idx_header(0x08, std::vector<std::uint32_t>(9, 1)) + "x"),
             contains("too many axes at byte 3: expected at most 8, found 9"));
  CHECK_THAT(error_of(idx_header(0x08, {2, 3}).substr(0, 10)),
             contains("truncated header: expected the size of an axis at byte 8"));
  CHECK_THAT(error_of(small_idx().substr(0, 15)),
             contains("declare [2, 3] u8: expected 6 bytes of data, found only 3"));
  CHECK_THAT(error_of(small_idx() + "x"),
             contains("trailing data: expected the end of [2, 3] u8 at byte 18"));
  CHECK_THAT(error_of(idx_header(0x0D, {3}) + Bytes(11, 'x')), contains("expected 12 bytes"));
}

TEST_CASE("IDX: absurd sizes are refused before memory is taken") {
  const std::uint64_t allocations = memory_stats(Device::cpu()).allocations;
  const std::uint32_t most = 0xffffffff;
  CHECK_THAT(error_of(idx_header(0x08, {most, most, most}) + "x"),
             contains("absurd sizes at byte 4: [4294967295, 4294967295, 4294967295] u8"));
  // A product that wraps around to a small number, and one hidden behind a size of 0.
  CHECK_THAT(error_of(idx_header(0x0E, {0x80000000, 0x80000000, 4}) + "x"),
             contains("absurd sizes"));
  CHECK_THAT(error_of(idx_header(0x08, {0, most, most, most})), contains("absurd sizes"));
  // Fits in 64 bits, but not in a tensor.
  CHECK_THAT(error_of(idx_header(0x08, {0, 1441792, 1 << 20, 1 << 20})),
             contains("absurd sizes at byte 4: [0, 1441792, 1048576, 1048576] u8 has too many"));
  CHECK_THAT(error_of(idx_header(0x08, {most}) + "x"),
             contains("expected 4294967295 bytes of data, found only 1"));
  CHECK_THAT(error_of(gzip(idx_header(0x08, {most}) + "x")),
             contains("expected 4294967295 bytes of data, found a gzip file that holds at most"));
  CHECK(memory_stats(Device::cpu()).allocations == allocations);
}

TEST_CASE("IDX: damaged gzip") {
  const Bytes good = gzip(small_idx());
  Bytes bad_crc = good;
  bad_crc[bad_crc.size() - 8] ^= 1;
  CHECK_THAT(error_of(bad_crc), contains("damaged gzip data") && contains("incorrect data check"));
  Bytes bad_length = good;
  bad_length.back() ^= 1;
  CHECK_THAT(error_of(bad_length), contains("incorrect length check"));
  CHECK_THAT(error_of(good + "rubbish"), contains("damaged gzip data"));
  CHECK_THAT(error_of(gzip(small_idx() + "x")),
             contains("trailing data") && contains("decompressed byte 18"));
  CHECK_THAT(error_of(gzip(small_idx().substr(0, 15))),
             contains("truncated: [2, 3] u8 needs 6 bytes from decompressed byte 12 on, found the "
                      "end after 3"));
  // Far more data than the header declares is not even unpacked.
  CHECK_THAT(error_of(gzip(small_idx() + Bytes(1 << 20, 'x'))), contains("trailing data"));
}

TEST_CASE("IDX: every truncation of a file is an error") {
  for (const Bytes& whole : {small_idx(), gzip(small_idx())}) {
    for (std::size_t n = 0; n < whole.size(); ++n) {
      INFO("first " << n << " of " << whole.size() << " bytes");
      CHECK(!error_of(whole.substr(0, n)).empty());
    }
  }
}

TEST_CASE("IDX: every changed byte is an error or another valid file") {
  const TempFolder folder;
  const Bytes plain = small_idx();
  for (const Bytes& whole : {plain, gzip(plain)}) {
    const bool packed = whole != plain;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (int flip = 1; flip < 256; ++flip) {
        Bytes changed = whole;
        changed[i] = static_cast<char>(changed[i] ^ flip);
        const std::string path = write_file(folder.file("f"), changed);
        try {
          const Tensor t = data::read_idx(path);
          // Free in gzip: time stamp, flags of no consequence, system, padding of the block's head.
          // u8 and i8 (08 and 09 at byte 2) differ in their sign alone.
          const bool is_i8 = !packed && i == 2 && t.dtype() == i8;
          if (packed ? i > 10 : i < 12 && !is_i8)
            FAIL("byte " << i << " ^ " << flip << " went unnoticed");
          CHECK(t.numel() == 6);
        } catch (const IoError& e) {
          if (e.path() != path) FAIL("wrong path: " << e.what());
        }
      }
    }
  }
}

TEST_CASE("IDX: what cannot be read") {
  const TempFolder folder;
  CHECK_THROWS_WITH(data::read_idx(folder.file("none")),
                    contains("none") && contains("cannot be opened: No such file"));
  CHECK_THROWS_WITH(data::read_idx(folder.path().string()), contains("is a directory"));
  CHECK_THROWS_WITH(data::read_idx("/dev/zero"), contains("is not a regular file"));
}
