// Integers at the ends of their range: casts of floating numbers beyond it, and arithmetic that
// wraps around. On every device alike.
#include <limits>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using firn::test::contains;

namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int32_t kMax32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kMin32 = std::numeric_limits<std::int32_t>::min();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using I64 = std::vector<std::int64_t>;
using I32 = std::vector<std::int32_t>;
using U8 = std::vector<std::uint8_t>;

}  // namespace

TEST_CASE("cast: a number beyond an integer's range becomes its nearest end, NaN becomes 0") {
  const std::vector<double> values{
      kInf,  -kInf, kNan, 1e300, -1e300, 2147483648.0, -2147483649.0,
      255.9, 256,   -0.9, -1,    3.7,    -3.7,         9223372036854775808.0};
  const I32 in_32{kMax32, kMin32, 0, kMax32, kMin32, kMax32, kMin32,
                  255,    256,    0, -1,     3,      -3,     kMax32};
  const I64 in_64{kMax, kMin, 0, kMax, kMin, 2147483648, -2147483649, 255, 256, 0, -1, 3, -3, kMax};
  const U8 in_8{255, 0, 0, 255, 0, 255, 0, 255, 255, 0, 0, 3, 0, 255};
  const Tensor x = tensor(values, {14});
  CHECK(cast(x, i32).to_vector<std::int32_t>() == in_32);
  CHECK(cast(x, i64).to_vector<std::int64_t>() == in_64);
  CHECK(cast(x, u8).to_vector<std::uint8_t>() == in_8);
  CHECK(x.to_vector<std::int32_t>() == in_32);
  CHECK(x.to_vector<std::int64_t>() == in_64);
  CHECK(x.to_vector<std::uint8_t>() == in_8);
  // Not of one stride, and not at the start of a vector.
  CHECK(cast(stack({x, x}, 1).transpose(0, 1)[1].slice(0, 1, 14), u8).to_vector<std::uint8_t>() ==
        U8(in_8.begin() + 1, in_8.end()));
}

TEST_CASE("cast: the largest numbers of the 16 and 32-bit types become ends of integers too") {
  for (const DType dtype : {f32, f16, bf16}) {
    CAPTURE(to_string(dtype));
    const Tensor x = cast(tensor<double>({kInf, -kInf, kNan, 60000, -60000, 1, 0}), dtype);
    CHECK(cast(x, u8).to_vector<std::uint8_t>() == U8{255, 0, 0, 255, 0, 1, 0});
    const I64 whole = cast(x, i64).to_vector<std::int64_t>();
    CHECK(whole[0] == kMax);
    CHECK(whole[1] == kMin);
    CHECK(whole[2] == 0);
    CHECK(cast(x, i32).to_vector<std::int32_t>()[0] == kMax32);
    CHECK(cast(x, boolean).to_vector<bool>() ==
          std::vector<bool>{true, true, true, true, true, true, false});
  }
  // 2^31 and 2^63 are numbers of f32, and one past the end.
  const Tensor past = tensor<float>({2147483648.f, -2147483648.f, 9223372036854775808.f});
  CHECK(cast(past, i32).to_vector<std::int32_t>() == I32{kMax32, kMin32, kMax32});
  CHECK(cast(past, i64).to_vector<std::int64_t>() == I64{2147483648, -2147483648, kMax});
}

TEST_CASE("cast: an integer keeps its low bits in a narrower one") {
  const std::vector<std::int64_t> values{300, -1, kMax, kMin, std::int64_t{1} << 31};
  const Tensor x = tensor(values, {5});
  CHECK(cast(x, u8).to_vector<std::uint8_t>() == U8{44, 255, 255, 0, 0});
  CHECK(cast(x, i32).to_vector<std::int32_t>() == I32{300, -1, -1, 0, kMin32});
}

TEST_CASE("integers: sums, products, negation and absolute values wrap around") {
  const std::vector<std::int64_t> values{kMax, kMin, -1, 3};
  const Tensor x = tensor(values, {4});
  CHECK((x + x).to_vector<std::int64_t>() == I64{-2, 0, -2, 6});
  CHECK((x * x).to_vector<std::int64_t>() == I64{1, 0, 1, 9});
  CHECK((x - 1.0).to_vector<std::int64_t>() == I64{kMax - 1, kMax, -2, 2});
  CHECK(neg(x).to_vector<std::int64_t>() == I64{-kMax, kMin, 1, -3});
  CHECK(abs(x).to_vector<std::int64_t>() == I64{kMax, kMin, 1, 3});
  CHECK(square(x).to_vector<std::int64_t>() == I64{1, 0, 1, 9});
  CHECK(sum(tensor<std::int64_t>(std::vector<std::int64_t>{kMax, 1, 1}, {3}))
            .to_vector<std::int64_t>() == I64{kMin + 1});
}

TEST_CASE("arange: numbers that the integer type does not hold are refused") {
  CHECK_THROWS_WITH(arange(3, {.start = 1e300}), contains("1e+300 does not fit i64"));
  CHECK_THROWS_WITH(arange(3, {.step = -1e300, .dtype = i32}),
                    contains("-1e+300 does not fit i32"));
  CHECK_THROWS_AS(arange(3, {.start = 9007199254740993.0}),
                  Error);  // beyond 2^53 in its last element
  CHECK(arange(3, {.start = -9007199254740990.0}).to_vector<std::int64_t>() ==
        I64{-9007199254740990, -9007199254740989, -9007199254740988});
}

TEST_CASE("a number that no integer holds is refused beside an integer tensor", "[host]") {
  for (const double v : {kInf, -kInf, kNan, 1e300, 0.5}) {
    CAPTURE(v);
    CHECK_THROWS_AS(add(ones({2}, i64), v), Error);
    CHECK_THROWS_AS(v - ones({2}, i32), Error);
  }
}
