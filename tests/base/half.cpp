// The 16-bit types: every bit pattern, every tie, both ends of the range.
#include "firn/half.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "firn/dtype.h"
#include "support/catch.h"

using firn::bfloat16;
using firn::half;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Every finite pattern comes back; so do the infinities; a NaN comes back as some NaN of its sign.
template <class T>
int patterns_that_change() {
  int changed = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T value = T::from_bits(static_cast<std::uint16_t>(bits));
    const T back(static_cast<float>(value));
    if (std::isnan(static_cast<float>(value))) {
      changed += !std::isnan(static_cast<float>(back)) || (back.bits ^ bits) & 0x8000;
    } else {
      changed += back.bits != bits;
    }
  }
  return changed;
}

// Between two neighbours a and b: just below the middle rounds to a, just above to b, the middle to
// the even one. Counts what does not.
template <class T>
int ties_that_fail(std::uint16_t last_finite) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < last_finite; ++bits) {
    const T a = T::from_bits(static_cast<std::uint16_t>(bits));
    const T b = T::from_bits(static_cast<std::uint16_t>(bits + 1));
    // Exact: both have at most 11 bits, so their mean fits into a float.
    const float middle = static_cast<float>(
        (static_cast<double>(static_cast<float>(a)) + static_cast<double>(static_cast<float>(b))) /
        2);
    const std::uint16_t even = static_cast<std::uint16_t>(bits + (bits & 1));
    wrong += T(middle).bits != even;
    wrong += T(-middle).bits != (even | 0x8000);
    wrong += T(std::nextafterf(middle, 0)).bits != bits && middle != 0;
    wrong += T(std::nextafterf(middle, kInf)).bits != bits + 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("half: all 65536 bit patterns survive a round trip", "[base]") {
  CHECK(patterns_that_change<half>() == 0);
}

TEST_CASE("bfloat16: all 65536 bit patterns survive a round trip", "[base]") {
  CHECK(patterns_that_change<bfloat16>() == 0);
}

TEST_CASE("half: rounds to nearest, ties to even, between all neighbours", "[base]") {
  CHECK(ties_that_fail<half>(0x7bff) == 0);
}

TEST_CASE("bfloat16: rounds to nearest, ties to even, between all neighbours", "[base]") {
  CHECK(ties_that_fail<bfloat16>(0x7f7f) == 0);
}

TEST_CASE("half: known values", "[base]") {
  CHECK(half(1.f).bits == 0x3c00);
  CHECK(half(-2.f).bits == 0xc000);
  CHECK(half(-0.f).bits == 0x8000);
  CHECK(half(65504.f).bits == 0x7bff);
  CHECK(half(0x1p-14f).bits == 0x0400);  // smallest normal
  CHECK(half(0x1p-24f).bits == 0x0001);  // smallest subnormal
  CHECK(half(0x1p-25f).bits == 0x0000);  // a tie, to even
  CHECK(half(0x1.8p-25f).bits == 0x0001);
}

TEST_CASE("half: overflow goes to infinity from 65520 on", "[base]") {
  CHECK(half(65519.996f).bits == 0x7bff);
  CHECK(half(65520.f).bits == 0x7c00);
  CHECK(half(-1e10f).bits == 0xfc00);
  CHECK(half(kInf).bits == 0x7c00);
}

TEST_CASE("bfloat16: known values and overflow", "[base]") {
  CHECK(bfloat16(1.f).bits == 0x3f80);
  CHECK(bfloat16(-0.f).bits == 0x8000);
  CHECK(bfloat16(3.3895313892515355e38f).bits == 0x7f7f);
  CHECK(bfloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(bfloat16(std::numeric_limits<float>::denorm_min()).bits == 0);
}

TEST_CASE("dtype: sizes, names and unit roundoffs agree with the types", "[base]") {
  CHECK(firn::size_of(firn::f16) == sizeof(half));
  CHECK(firn::size_of(firn::bf16) == sizeof(bfloat16));
  CHECK(firn::size_of(firn::f64) == sizeof(double));
  CHECK(firn::size_of(firn::boolean) == sizeof(bool));
  CHECK(std::string(firn::to_string(firn::bf16)) == "bf16");
  CHECK(std::string(firn::to_string(firn::boolean)) == "bool");
  CHECK(firn::epsilon_of(firn::f32) == std::numeric_limits<float>::epsilon() / 2);
  CHECK(firn::max_of(firn::f16) == static_cast<float>(half::from_bits(0x7bff)));
  CHECK(firn::max_of(firn::bf16) == static_cast<float>(bfloat16::from_bits(0x7f7f)));
  // 1 + u is a tie and rounds to 1; a little more does not.
  const auto u = static_cast<float>(firn::epsilon_of(firn::f16));
  CHECK(half(1 + u).bits == half(1.f).bits);
  CHECK(half(1 + 1.01f * u).bits == half(1.f).bits + 1);
  CHECK(firn::is_floating(firn::f16));
  CHECK_FALSE(firn::is_floating(firn::u8));
  CHECK(firn::compute_dtype(firn::bf16) == firn::f32);
  CHECK(firn::compute_dtype(firn::boolean) == firn::i64);
}
