// The parts of firn-report against published vectors and plain loops.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "support/catch.h"
#include "tools/report/log/format.h"
#include "tools/report/log/series.h"
#include "tools/report/page/axis.h"
#include "tools/report/page/html.h"
#include "tools/report/write/events.h"
#include "tools/report/write/sha256.h"

namespace firn::report {
namespace {

std::string hex(const std::array<std::uint8_t, 32>& hash) {
  std::string out;
  for (const std::uint8_t byte : hash)
    for (const int digit : {byte >> 4, byte & 15}) out += "0123456789abcdef"[digit];
  return out;
}

TEST_CASE("report: SHA-256 of NIST's examples, base64 of RFC 4648") {
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
                   "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu")) ==
        "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(hex(sha256(std::string(1'000'000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  const std::pair<const char*, const char*> kBase64[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : kBase64) CHECK(base64(plain) == coded);
}

TEST_CASE("report: CRC-32C of RFC 3720's examples, masked") {
  const auto unmasked = [](std::string_view bytes) {
    const std::uint32_t m = masked_crc32c(bytes) - 0xa282ead8u;
    return m >> 17 | m << 15;
  };
  CHECK(unmasked(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(unmasked(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(unmasked("123456789") == 0xe3069283u);
}

TEST_CASE("report: a series of any length keeps its extremes, its ends and its mean") {
  std::mt19937_64 draw(5);
  for (const std::size_t n : {1u, 2u, 7u, 64u, 65u, 1000u, 12345u}) {
    CAPTURE(n);
    Series s(64);
    std::vector<Point> all;
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const Point p{static_cast<double>(i + 1), std::uniform_real_distribution<>(-1, 1)(draw)};
      all.push_back(p);
      if (i % 5 == 3) s.add(p.x, std::numeric_limits<double>::infinity());
      s.add(p.x, p.value);
      sum += p.value;
    }
    // Of each range of neighbours, by a plain loop.
    REQUIRE(s.ranges().size() <= 64);
    std::size_t at = 0;
    double mean = 0;
    for (const Series::Range& r : s.ranges()) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
      const auto end = begin + r.count;
      const auto less = [](const Point& a, const Point& b) { return a.value < b.value; };
      const auto low = std::min_element(begin, end, less),
                 high = std::max_element(begin, end, less);
      CHECK(r.low.value == low->value);
      CHECK(r.low.x == low->x);
      CHECK(r.high.value == high->value);
      CHECK(r.high.x == high->x);
      CHECK(r.low_first == (low->x <= high->x));
      mean += r.mean * static_cast<double>(r.count);
      at += static_cast<std::size_t>(r.count);
    }
    CHECK(at == n);
    CHECK(mean == Approx(sum).margin(1e-9));
    CHECK(s.count() == static_cast<std::int64_t>(n));
    CHECK(s.missing() == static_cast<std::int64_t>((n + 1) / 5));
    const Series half = s.coarser(20);
    CHECK(half.ranges().size() <= 20);
    CHECK(half.lowest() == s.lowest());
    CHECK(half.highest() == s.highest());
    for (const Series* one : {static_cast<const Series*>(&s), &half}) {
      const std::vector<Point> points = one->points();
      CHECK(points.size() <= 2 * one->ranges().size() + 2);
      CHECK(points.front().x == 1);
      CHECK(points.back().x == static_cast<double>(n));
      CHECK(std::is_sorted(points.begin(), points.end(),
                           [](const Point& a, const Point& b) { return a.x < b.x; }));
      for (const Point& p : points) CHECK(all[static_cast<std::size_t>(p.x) - 1].value == p.value);
    }
  }
}

TEST_CASE("report: a spike and a step of a constant series stay among a million values") {
  Series s;
  for (int i = 1; i <= 1'000'000; ++i) s.add(i, i == 765'432 ? 1e9 : i < 333'333 ? 2 : 4);
  const std::vector<Point> points = s.coarser(100).points();
  CHECK(points.size() <= 12);
  const auto at = [&](double x) {
    return std::any_of(points.begin(), points.end(), [&](const Point& p) { return p.x == x; });
  };
  CHECK(at(765'432));
  CHECK(s.highest() == 1e9);
  CHECK(at(1));
  CHECK(at(1'000'000));
}

TEST_CASE("report: places are bounded, sorted, and real ones") {
  Places p;
  for (int i = 0; i < 100'000; ++i) p.add(i * 7);
  const std::vector<double> all = p.all();
  CHECK(all.size() <= 1000);
  CHECK(all.size() > 400);
  CHECK(std::is_sorted(all.begin(), all.end()));
  for (const double x : all) CHECK(std::fmod(x, 7) == 0);
}

TEST_CASE("report: axes of any finite values have finite places and few readable ticks") {
  const double values[] = {0, 1, -1, 1e-300, 1e300, 1.7e308, -1.7e308, 5e-324, 0.1, 12345.678};
  for (const double a : values) {
    for (const double b : values) {
      CAPTURE(a, b);
      const double low = std::min(a, b), high = std::max(a, b);
      for (const Axis& axis :
           {Axis::around(low, high, true, 200, 10), Axis::around(low, high, false, 200, 10),
            Axis::powers_of_two(low, high, 200, 10)}) {
        for (const double x : {low, high}) {
          const double place = axis.place(x);
          CHECK((place >= 10 && place <= 200));
        }
        CHECK(axis.place(low) >= axis.place(high));
        const std::vector<double> ticks = axis.ticks(5);
        CHECK(ticks.size() <= 12);
        for (const double t : ticks) CHECK(std::isfinite(t));
      }
    }
  }
  CHECK(Axis(Axis::Kind::linear, 0, 10, 0, 100).ticks(5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(Axis(Axis::Kind::log10, 1, 1000, 0, 90).place(10) == Approx(30));
}

TEST_CASE("report: texts are shown without bytes that a terminal or a page should not get") {
  CHECK(visible("a\x1b[31m\x7f\n\t", 100) == "a\\x1b[31m\\x7f\\x0a\\x09");
  CHECK(visible("a\n\tb", 100, true) == "a\n\tb");
  CHECK(visible("\u202e\u2066\u0085\ufeff", 100) == "\\u202e\\u2066\\x85\\ufeff");
  CHECK(visible("äöü € 𝄞", 100) == "äöü € 𝄞");
  CHECK(visible("ääää", 5) == "ää… (8 bytes)");
  CHECK(visible("\xc3\x1b[2J \xff \xe2\x80", 100) == "\\xc3\\x1b[2J \\xff \\xe2\\x80");
  CHECK(escaped("<script>&\"'</script>") == "&lt;script&gt;&amp;&quot;&#39;&lt;/script&gt;");
}

TEST_CASE("report: numbers are rounded for people, and whole for programs") {
  CHECK(full(0.1) == "0.1");
  CHECK(full(1.0 / 3) == "0.3333333333333333");
  CHECK(full(123456789) == "123456789");
  CHECK(full(std::nan("")) == "null");
  CHECK(std::strtod(full(5e-324).c_str(), nullptr) == 5e-324);
  CHECK(rounded(1.0 / 3) == "0.33333");
  CHECK(rounded(1024) == "1024");
  CHECK(grouped(1234567) == "1,234,567");
  CHECK(grouped(-1234) == "-1,234");
  CHECK(grouped(999) == "999");
  CHECK(bytes_text(1024 * 1024 * 1.5) == "1.5 MiB");
  CHECK(duration(0.5) == "0.5 s");
  CHECK(duration(125) == "2 min 5 s");
  CHECK(duration(7260) == "2 h 1 min");
}

}  // namespace
}  // namespace firn::report
