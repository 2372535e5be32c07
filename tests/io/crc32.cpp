// The checksum of firn's files against zlib's, byte for byte.
#include "io/file/crc32.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "data/files.h"
#include "support/catch.h"
#include "support/values.h"

namespace io = firn::io;
using firn::testing::Rng;

namespace {

std::vector<unsigned char> random_bytes(std::size_t n) {
  Rng rng(3);
  std::vector<unsigned char> bytes(n);
  for (unsigned char& b : bytes) b = static_cast<unsigned char>(rng.below(256));
  return bytes;
}

std::uint32_t of_zlib(std::uint32_t crc, const unsigned char* data, std::size_t bytes) {
  return static_cast<std::uint32_t>(::crc32_z(crc, data, bytes));
}

}  // namespace

TEST_CASE("crc32: it is zlib's at all lengths and alignments", "[host]") {
  const std::vector<unsigned char> all = random_bytes(16 + 300);
  int wrong = 0;
  for (std::size_t at = 0; at < 16; ++at) {
    for (std::size_t n = 0; n <= 300; ++n) {
      // A buffer of its own for each length: sanitizers see a byte that is read past its end.
      const std::vector<unsigned char> text(all.begin(), all.begin() + static_cast<long>(at + n));
      const unsigned char* const data = text.data() + at;
      for (const std::uint32_t before : {0u, 0xffffffffu, 0x12345678u}) {
        const std::uint32_t want = n == 0 ? before : of_zlib(before, data, n);
        wrong += io::crc32(before, data, n) == want ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("crc32: parts in a row give the sum of the whole", "[host]") {
  const std::vector<unsigned char> all = random_bytes(5000);
  const std::uint32_t whole = of_zlib(0, all.data(), all.size());
  CHECK(io::crc32(0, all.data(), all.size()) == whole);
  Rng rng(4);
  for (int round = 0; round < 200; ++round) {
    std::uint32_t crc = 0;
    for (std::size_t at = 0; at < all.size();) {
      const auto most = static_cast<std::int64_t>(all.size() - at);
      const auto n = static_cast<std::size_t>(rng.below(std::min<std::int64_t>(most, 700) + 1));
      crc = io::crc32(crc, all.data() + at, n);
      at += n;
    }
    REQUIRE(crc == whole);
  }
}

TEST_CASE("crc32: known sums, nothing, and every flipped bit", "[host]") {
  // The check value that catalogues of CRCs give for CRC-32/ISO-HDLC.
  CHECK(io::crc32(0, "123456789", 9) == 0xcbf43926u);
  CHECK(io::crc32(0, nullptr, 0) == 0);
  CHECK(io::crc32(0xcbf43926u, nullptr, 0) == 0xcbf43926u);
  for (const std::size_t n : {1, 15, 16, 31, 100, 128, 257}) {
    CAPTURE(n);
    std::vector<unsigned char> text = random_bytes(n);
    const std::uint32_t sum = io::crc32(0, text.data(), n);
    const std::string same(text.begin(), text.end());
    CHECK(sum == firn::test::crc32(same));
    int unseen = 0;
    for (std::size_t bit = 0; bit < 8 * n; ++bit) {
      const auto flip = static_cast<unsigned char>(1u << bit % 8);
      text[bit / 8] ^= flip;
      unseen += io::crc32(0, text.data(), n) == sum ? 1 : 0;
      text[bit / 8] ^= flip;
    }
    CHECK(unseen == 0);
  }
}
