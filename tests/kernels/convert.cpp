// Rows to and from the compute types, against the conversions of half.h element by element.
#include "kernels/cpu/device/convert.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "firn/half.h"
#include "support/catch.h"

namespace {

using namespace firn;
using namespace firn::kernels::cpu::FIRN_ISA;

template <class H>
std::vector<H> all_16bit() {
  std::vector<H> v(65536);
  for (int i = 0; i < 65536; ++i) v[i] = H::from_bits(static_cast<std::uint16_t>(i));
  return v;
}

/// f32 values around every 16-bit value, its upper neighbour and the point half way between.
template <class H>
std::vector<float> rounding_cases() {
  std::vector<float> v;
  for (int i = 0; i < 65536; ++i) {
    const float x = H::from_bits(static_cast<std::uint16_t>(i));
    const float next = H::from_bits(static_cast<std::uint16_t>(i + 1));
    const float middle = std::isfinite(next) ? x + (next - x) / 2 : x + x / 4096;
    for (float m : {x, middle}) {
      v.push_back(m);
      v.push_back(std::nextafter(m, HUGE_VALF));
      v.push_back(std::nextafter(m, -HUGE_VALF));
    }
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (float x : {0.f, -0.f, inf, -inf, 65504.f, 65519.996f, 65520.f, 65536.f, 1e30f, 5.9604645e-8f,
                  2.9802322e-8f, 2.9802326e-8f, 1e-40f, std::numeric_limits<float>::max()}) {
    v.push_back(x);
    v.push_back(-x);
  }
  return v;
}

template <class H>
void check_16bit(DType dtype) {
  const std::vector<H> halves = all_16bit<H>();
  std::vector<float> wide(halves.size());
  std::vector<H> back(halves.size());
  // In odd pieces, so that the vector code and what follows it both run.
  for (std::int64_t i = 0; i < 65536; i += 61) {
    const std::int64_t n = std::min<std::int64_t>(61, 65536 - i);
    REQUIRE(load_row(halves.data() + i, dtype, 1, n, wide.data() + i) == wide.data() + i);
    store_row(wide.data() + i, back.data() + i, dtype, 1, n);
  }
  int bad = 0;
  for (int i = 0; i < 65536; ++i) {
    const float expected = halves[i];
    const bool nan = std::isnan(expected);
    bad += nan ? !std::isnan(wide[i])
               : std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(expected);
    bad += nan ? !std::isnan(static_cast<float>(back[i])) : back[i].bits != halves[i].bits;
  }
  CHECK(bad == 0);

  const std::vector<float> cases = rounding_cases<H>();
  std::vector<H> rounded(cases.size());
  store_row(cases.data(), rounded.data(), dtype, 1, static_cast<std::int64_t>(cases.size()));
  bad = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!std::isnan(cases[i])) bad += rounded[i].bits != H(cases[i]).bits;
  }
  CHECK(bad == 0);
}

}  // namespace

TEST_CASE("every 16-bit value survives a load and a store, and f32 rounds to it as in half.h",
          "[host]") {
  check_16bit<half>(f16);
  check_16bit<bfloat16>(bf16);
}

TEST_CASE("half.h rounds to nearest even", "[host]") {
  for (int i = 0; i < 0x7bff; ++i) {  // between every two neighbours
    const half low = half::from_bits(static_cast<std::uint16_t>(i));
    const half high = half::from_bits(static_cast<std::uint16_t>(i + 1));
    const float middle = (static_cast<float>(low) + static_cast<float>(high)) / 2;
    const half even = i % 2 == 0 ? low : high;
    const bool right = half(middle).bits == even.bits &&
                       half(std::nextafter(middle, 0.f)).bits == low.bits &&
                       half(std::nextafter(middle, HUGE_VALF)).bits == high.bits;
    if (!right) FAIL("between " << static_cast<float>(low) << " and " << static_cast<float>(high));
  }
  CHECK(std::isinf(static_cast<float>(half(65520.f))));
  CHECK(static_cast<float>(half(std::nextafter(65520.f, 0.f))) == 65504.f);
}

TEST_CASE("f64 and i64 reach 16 bits with one rounding", "[host]") {
  // Just above a tie of f16, but exactly on it when rounded to f32 first.
  const double above = 1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  const double below = 1.0 + 3 * std::ldexp(1.0, -11) - std::ldexp(1.0, -40);
  const double values[] = {above, below, -above, 1e300, 65519.999999999, 1e-300};
  half out[6];
  store_row(values, out, f16, 1, 6);
  CHECK(static_cast<float>(out[0]) == 1.0f + 0x1p-10f);
  CHECK(static_cast<float>(out[1]) == 1.0f + 0x1p-10f);
  CHECK(static_cast<float>(out[2]) == -1.0f - 0x1p-10f);
  CHECK(std::isinf(static_cast<float>(out[3])));
  CHECK(static_cast<float>(out[4]) == 65504.f);
  CHECK(static_cast<float>(out[5]) == 0.f);

  // 2^61 + 2^53 is a tie of bf16 (8 bits); one more must round up, through f64 and f32 alike.
  const std::int64_t tie = (std::int64_t{1} << 61) + (std::int64_t{1} << 53);
  const std::int64_t integers[] = {tie, tie + 1, -(tie + 1), 257, 0};
  bfloat16 narrow[5];
  store_row(integers, narrow, bf16, 1, 5);
  CHECK(static_cast<float>(narrow[0]) == 0x1p61f);
  CHECK(static_cast<float>(narrow[1]) == 0x1p61f + 0x1p54f);
  CHECK(static_cast<float>(narrow[2]) == -(0x1p61f + 0x1p54f));
  CHECK(static_cast<float>(narrow[3]) == 256.f);
  CHECK(static_cast<float>(narrow[4]) == 0.f);
}

TEST_CASE("rows: strides, repeats, bool, and no copy where none is needed", "[host]") {
  const float source[] = {0.f, 1.f, -2.5f, std::nanf(""), 4.f, 5.f};
  float buffer[6];
  CHECK(load_row(source, f32, 1, 6, buffer) == source);
  CHECK(load_row(source, f32, 2, 3, buffer) == buffer);
  CHECK(buffer[2] == 4.f);
  load_row(source + 2, f32, 0, 6, buffer);
  CHECK(buffer[5] == -2.5f);

  bool flags[6];
  store_row(source, flags, boolean, 1, 6);
  const bool expected[] = {false, true, true, true, true, true};
  CHECK(std::equal(flags, flags + 6, expected));
  std::int64_t numbers[6];
  CHECK(load_row(flags, boolean, 1, 6, numbers)[3] == 1);

  std::int32_t spread[12] = {};
  const float truncated[] = {2.9f, -2.9f, 0.f};
  store_row(truncated, spread, i32, 4, 3);
  CHECK((spread[0] == 2 && spread[4] == -2 && spread[8] == 0 && spread[1] == 0));
}
