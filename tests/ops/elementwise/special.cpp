// Elementwise operations of firn/ops/elementwise.h at the edges: NaN, infinities, -0, ties, the
// ends of dtypes, integers. The numbers are PyTorch's.
#include <cmath>
#include <limits>

#include "ops/refusals/refused.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;
using Fn = Tensor (*)(const Tensor&);

/// 33 copies: through whole vectors as well as the rest of one.
Values repeated(const Values& v) {
  Values out;
  for (int i = 0; i < 33; ++i) out.insert(out.end(), v.begin(), v.end());
  return out;
}
Tensor column(const Values& v, DType t = f64) {
  return make(v, {static_cast<std::int64_t>(v.size())}, t);
}

TEST_CASE("elementwise: one operand at NaN, infinities and zeros", "[ops]") {
  struct Line {
    const char* name;
    Fn op;
    Values want;  // at NaN, inf, -inf, 0, -0
  };
  const Line table[] = {
      {"floor", floor, {kNaN, kInf, -kInf, 0.0, -0.0}},
      {"ceil", ceil, {kNaN, kInf, -kInf, 0.0, -0.0}},
      {"round", round, {kNaN, kInf, -kInf, 0.0, -0.0}},
      {"trunc", trunc, {kNaN, kInf, -kInf, 0.0, -0.0}},
      {"sign", sign, {0, 1, -1, 0, 0}},
      {"tan", tan, {kNaN, kNaN, kNaN, 0.0, -0.0}},
      {"asin", asin, {kNaN, kNaN, kNaN, 0.0, -0.0}},
      {"sinh", sinh, {kNaN, kInf, -kInf, 0.0, -0.0}},
      {"cosh", cosh, {kNaN, kInf, kInf, 1, 1}},
      {"asinh", asinh, {kNaN, kInf, -kInf, 0.0, -0.0}},
      {"acosh", acosh, {kNaN, kInf, kNaN, kNaN, kNaN}},
      {"atanh", atanh, {kNaN, kNaN, kNaN, 0.0, -0.0}},
      {"log10", log10, {kNaN, kInf, kNaN, -kInf, -kInf}},
      {"relu6", relu6, {kNaN, 6, 0, 0.0, -0.0}},
      {"hardshrink", [](const Tensor& x) { return hardshrink(x); }, {kNaN, kInf, -kInf, 0, 0}},
      {"softshrink", [](const Tensor& x) { return softshrink(x); }, {kNaN, kInf, -kInf, 0.0, -0.0}},
      {"erf", erf, {kNaN, 1, -1, 0.0, -0.0}},
      {"erfc", erfc, {kNaN, 0, 2, 1, 1}},
      {"log1p", log1p, {kNaN, kInf, kNaN, 0.0, -0.0}},
      {"expm1", expm1, {kNaN, kInf, -1, 0.0, -0.0}},
      {"log2", log2, {kNaN, kInf, kNaN, -kInf, -kInf}},
      {"exp2", exp2, {kNaN, kInf, 0, 1, 1}},
      {"hardtanh", [](const Tensor& x) { return hardtanh(x); }, {kNaN, 1, -1, 0.0, -0.0}},
      {"hardswish", hardswish, {kNaN, kInf, kNaN, 0.0, -0.0}},
      {"hardsigmoid", hardsigmoid, {kNaN, 1, 0, 0.5, 0.5}},
      {"softsign", softsign, {kNaN, kNaN, kNaN, 0.0, -0.0}},
      {"mish", mish, {kNaN, kInf, kNaN, 0.0, -0.0}},
      {"celu", [](const Tensor& x) { return celu(x); }, {kNaN, kInf, -1, 0.0, -0.0}},
      {"threshold", [](const Tensor& x) { return threshold(x, 0.5, 7); }, {kNaN, kInf, 7, 7, 7}},
      {"nan_to_num",
       [](const Tensor& x) { return nan_to_num(x, 3, 4, -5); },
       {3, 4, -5, 0.0, -0.0}},
      {"isnan", isnan, {1, 0, 0, 0, 0}},
      {"isinf", isinf, {0, 1, 1, 0, 0}},
      {"isfinite", isfinite, {0, 0, 0, 1, 1}},
      {"logical_not", logical_not, {0, 0, 0, 1, 1}},
  };
  for (const Line& line : table)
    for (const DType t : {f64, f32, f16, bf16}) {
      CAPTURE(line.name, to_string(t));
      const Tensor y = line.op(column(repeated({kNaN, kInf, -kInf, 0.0, -0.0}), t));
      expect_same(line.name, values_of(y), repeated(line.want));
    }
  for (const DType t : {f64, f32, f16, bf16}) {
    CHECK(values_of(logsigmoid(column({kInf, -kInf}, t))) == Values{0, -kInf});
    CHECK(values_of(logsigmoid(column({-1000, 1000}, t))) == rounded({-1000, 0}, t));
    CHECK(values_of(mish(column({-1000, 1000}, t)))[1] == rounded({1000}, t)[0]);
    CHECK(values_of(selu(column({kInf}, t))) == Values{kInf});
  }
}

TEST_CASE("elementwise: halves round to even, and large numbers stay", "[ops]") {
  for (const DType t : {f64, f32, f16, bf16}) {
    const Tensor x = column(repeated({0.5, 1.5, 2.5, -0.5, -1.5, 96, -0.25, 0.75}), t);
    expect_same("round", values_of(round(x)), repeated({0.0, 2, 2, -0.0, -2, 96, -0.0, 1}));
    expect_same("floor", values_of(floor(x)), repeated({0, 1, 2, -1, -2, 96, -1, 0}));
    expect_same("ceil", values_of(ceil(x)), repeated({1, 2, 3, -0.0, -1, 96, -0.0, 1}));
    expect_same("trunc", values_of(trunc(x)), repeated({0, 1, 2, -0.0, -1, 96, -0.0, 0}));
  }
  const Values large = {8388609, -8388609, 3e38, 16777216};
  for (const Fn op : {Fn(round), Fn(floor), Fn(ceil), Fn(trunc)}) {
    CHECK(values_of(op(column(large, f32))) == rounded(large, f32));
    CHECK(values_of(op(column({4503599627370497.0, -1e300}))) ==
          Values{4503599627370497.0, -1e300});
  }
}

TEST_CASE("elementwise: without a number infinities become the dtype's largest", "[ops]") {
  for (const DType t : {f64, f32, f16, bf16}) {
    const Tensor x = column({kNaN, kInf, -kInf, 1.5}, t);
    const double most = max_of(t);
    CHECK(values_of(nan_to_num(x)) == Values{0, most, -most, 1.5});
    CHECK(values_of(nan_to_num(x, 2)) == Values{2, most, -most, 1.5});
    CHECK(values_of(nan_to_num(x, 0, 9)) == Values{0, 9, -most, 1.5});
    Tensor y = column({kNaN, kInf, -kInf, 1.5}, t).set_requires_grad();
    nan_to_num(y, 1, 2, 3).sum().backward();
    CHECK(values_of(y.grad()) == Values{0, 0, 0, 1});
  }
  const Tensor n = column({1, -2}, i32);
  CHECK(values_of(nan_to_num(n)) == Values{1, -2});
  CHECK(nan_to_num(n).dtype() == i32);
}

TEST_CASE("elementwise: steps have gradient 0, added to what is there", "[ops]") {
  for (const Fn op : {Fn(round), Fn(floor), Fn(ceil), Fn(trunc), Fn(sign)}) {
    Tensor x = column({-1.5, 0, 2.25}).set_requires_grad();
    op(x).sum().backward();
    CHECK(values_of(x.grad()) == Values{0, 0, 0});
    (op(x) + 3 * x).sum().backward();
    op(x).sum().backward();
    CHECK(values_of(x.grad()) == Values{3, 3, 3});
  }
}

TEST_CASE("elementwise: questions and logic of every dtype give bool without a gradient", "[ops]") {
  for (const DType t : {f64, f32, f16, bf16, i32, i64, u8, boolean}) {
    CAPTURE(to_string(t));
    const Tensor a = column({0, 1, 0, 1}, t), b = column({0, 0, 1, 1}, t);
    const auto is = [](const Tensor& y, const Values& want) {
      CHECK(y.dtype() == boolean);
      CHECK(values_of(y) == want);
    };
    is(isnan(a), {0, 0, 0, 0});
    is(isinf(a), {0, 0, 0, 0});
    is(isfinite(a), {1, 1, 1, 1});
    is(logical_not(a), {1, 0, 1, 0});
    is(logical_and(a, b), {0, 0, 0, 1});
    is(logical_or(a, b), {0, 1, 1, 1});
    is(logical_xor(a, b), {0, 1, 1, 0});
  }
  const Tensor n = column({kNaN, 0}).set_requires_grad();
  CHECK(values_of(logical_or(n, n)) == Values{1, 0});  // NaN is not 0
  CHECK_FALSE(isnan(n).requires_grad());
  CHECK_FALSE(logical_and(n, n).requires_grad());
}

TEST_CASE("elementwise: bits of integers and bools", "[ops]") {
  for (const DType t : {i32, i64}) {
    const Tensor a = column({12, -1, 5, -8}, t), b = column({10, 7, -2, -3}, t);
    CHECK(values_of(bitwise_and(a, b)) == Values{8, 7, 4, -8});
    CHECK(values_of(bitwise_or(a, b)) == Values{14, -1, -1, -3});
    CHECK(values_of(bitwise_xor(a, b)) == Values{6, -8, -5, 5});
    CHECK(values_of(bitwise_not(a)) == Values{-13, 0, -6, 7});
    CHECK(values_of(bitwise_and(a, 6)) == Values{4, 6, 4, 0});
    CHECK(values_of(bitwise_or(a, 1)) == Values{13, -1, 5, -7});
    CHECK(values_of(bitwise_xor(a, -1)) == values_of(bitwise_not(a)));
    CHECK(bitwise_and(a, b).dtype() == t);
  }
  CHECK(values_of(bitwise_not(column({0, 1, 255}, u8))) == Values{255, 254, 0});
  const Tensor p = column({0, 1, 0, 1}, boolean), q = column({0, 0, 1, 1}, boolean);
  CHECK(values_of(bitwise_not(p)) == Values{1, 0, 1, 0});
  CHECK(bitwise_not(p).dtype() == boolean);
  CHECK(values_of(bitwise_and(p, q)) == Values{0, 0, 0, 1});
  CHECK(values_of(bitwise_or(p, q)) == Values{0, 1, 1, 1});
  CHECK(values_of(bitwise_xor(p, q)) == Values{0, 1, 1, 0});
  CHECK(bitwise_xor(p, q).dtype() == boolean);
  Tensor n = column({1, -2}, i64), flags = column({1, 0}, boolean);
  bitwise_not_(n);
  bitwise_not_(flags);
  CHECK(values_of(n) == Values{-2, 1});
  CHECK(values_of(flags) == Values{0, 1});
}

TEST_CASE("elementwise: remainders of integers", "[ops]") {
  for (const DType t : {i32, i64}) {
    const Tensor a = column({7, -7, 7, -7, 5, -5}, t), b = column({3, 3, -3, -3, 0, 0}, t);
    CHECK(values_of(fmod(a, b)) == Values{1, -1, 1, -1, 5, -5});
    CHECK(values_of(remainder(a, b)) == Values{1, 2, -2, -1, 5, -5});
    CHECK(values_of(fmod(a, -3)) == Values{1, -1, 1, -1, 2, -2});
    CHECK(values_of(remainder(a, -3)) == Values{-2, -1, -2, -1, -1, -2});
  }
  const Tensor least = tensor({std::numeric_limits<std::int64_t>::min()});
  CHECK(fmod(least, -1).to_vector<std::int64_t>()[0] == 0);
  CHECK(remainder(least, tensor({std::int64_t{-1}})).to_vector<std::int64_t>()[0] == 0);
  CHECK(values_of(remainder(column({250, 9}, u8), 4)) == Values{2, 1});
}

TEST_CASE("elementwise: remainders, angles and logarithms at the edges", "[ops]") {
  for (const DType t : {f64, f32}) {
    const Tensor a = column(repeated({-1, 1, kInf, 2, -6, kNaN, 3}), t),
                 b = column(repeated({kInf, -kInf, 2, 0, 3, 1, kNaN}), t);
    expect_same("fmod", values_of(fmod(a, b)), repeated({-1, 1, kNaN, kNaN, -0.0, kNaN, kNaN}));
    expect_same("remainder", values_of(remainder(a, b)),
                repeated({kInf, -kInf, kNaN, kNaN, -0.0, kNaN, kNaN}));
    const double pi = rounded({M_PI}, t)[0], half = rounded({M_PI / 2}, t)[0];
    expect_same("atan2",
                values_of(atan2(column({0.0, -0.0, 0.0, -0.0, 1, -kInf}, t),
                                column({-1, -1, 1, 0.0, 0, 5}, t))),
                {pi, -pi, 0.0, -0.0, half, -half});
    expect_same("hypot",
                values_of(hypot(column({kInf, kNaN, kNaN, 3}, t), column({kNaN, -kInf, 1, 4}, t))),
                {kInf, kInf, kNaN, 5});
    expect_same("logaddexp",
                values_of(logaddexp(column({-kInf, kInf, kInf, -kInf, 1000, kNaN}, t),
                                    column({-kInf, kInf, -kInf, 2, -1000, 0}, t))),
                {-kInf, kInf, kInf, 2, 1000, kNaN});
    CHECK(values_of(hypot(column({3e38}, f32), column({1e38}, f32)))[0] < 4e38);
  }
  // The quotient is that of the remainder, though 0.3/0.1 rounds down.
  Tensor b = column({0.1}).set_requires_grad();
  remainder(column({0.3}), b).sum().backward();
  CHECK(values_of(b.grad()) == Values{-2});
}

TEST_CASE("elementwise: lerp and addcmul round once", "[ops]") {
  // In f16 the product 2049 2049 alone would be infinite.
  const Tensor big = column({2048}, f16);
  CHECK(values_of(addcmul(big, big, big, -1.0 / 2048)) == Values{0});
  const Tensor a = column({1, 1000, -2}, f16), b = column({3, -1000, 5}, f16);
  CHECK(values_of(lerp(a, b, 0)) == values_of(a));
  CHECK(values_of(lerp(a, b, 1)) == values_of(b));
  CHECK(values_of(lerp(a, b, 0.1)) == rounded({1.2, 800, -1.3}, f16));
  CHECK(values_of(lerp(column({1e30, -1e9}), column({1, 3}), 1)) == Values{1, 3});
  // A weight is no 16-bit number: 0.1 in f16 is 0.09998.
  CHECK(values_of(lerp(column({0}, f16), column({30000}, f16), 0.1)) == Values{3000});
  CHECK(values_of(addcmul(column({1, 2}, i64), column({3, 4}, i64), column({5, -6}, i64), 2)) ==
        Values{31, -46});
}

TEST_CASE("elementwise: clamp by tensors passes a NaN on from all operands", "[ops]") {
  const Tensor x = column(repeated({kNaN, 1, 1, 5, -5, 2})),
               low = column(repeated({0, kNaN, 0, 0, 0, 3})),
               high = column(repeated({4, 4, kNaN, 4, 4, 1}));
  expect_same("clamp", values_of(clamp(x, low, high)), repeated({kNaN, kNaN, kNaN, 4, 0, 1}));
  CHECK(values_of(clamp(column({-3, 3}, f16), Tensor(), column({1}, f16))) == Values{-3, 1});
  CHECK(values_of(clamp(column({-3, 3}, i32), column({0}, i32), Tensor())) == Values{0, 3});
}

TEST_CASE("elementwise: masked_fill takes a tensor of rank 0, whose gradient is a sum", "[ops]") {
  Tensor x = column({1, 2, 3}).set_requires_grad(), v = make({7}, {}).set_requires_grad();
  const Tensor mask = column({1, 0, 1}, boolean);
  const Tensor y = masked_fill(x, mask, v);
  CHECK(values_of(y) == Values{7, 2, 7});
  (y * column({2, 3, 5})).sum().backward();
  CHECK(values_of(x.grad()) == Values{0, 3, 0});
  CHECK(values_of(v.grad()) == Values{7});
  Tensor scores = zeros({2, 3}, f16);
  masked_fill_(scores, mask, -kInf);
  CHECK(values_of(scores) == Values{-kInf, 0, -kInf, -kInf, 0, -kInf});
  Tensor flags = column({1, 0, 1}, boolean);
  masked_fill_(flags, flags, 0);  // the mask is what is written
  CHECK(values_of(flags) == Values{0, 0, 0});
}

TEST_CASE("refusals: elementwise operations", "[ops]") {
  const Tensor x = zeros({2, 3}), n = ones({3}, i64), flags = ones({3}, boolean);
  refused("erf", {"i64"}, [&] { erf(n); });
  refused("floor", {"bool"}, [&] { floor(flags); });
  refused("bitwise_not", {"[2, 3] f32 cpu", "i64"}, [&] { bitwise_not(x); });
  refused("bitwise_and", {"integers and bool", "f32"}, [&] { bitwise_and(x, x); });
  refused("bitwise_or", {"0.5"}, [&] { bitwise_or(n, 0.5); });
  refused("bitwise_xor", {"i64", "bool"}, [&] { bitwise_xor(n, flags); });
  refused("fmod", {"divided by 0", "[3] i64 cpu"}, [&] { fmod(n, 0); });
  refused("remainder", {"divided by 0"}, [&] { remainder(n, 0); });
  refused("celu", {"alpha is 0"}, [&] { celu(x, 0); });
  refused("prelu", {"[2] f32 cpu", "[2, 3] f32 cpu"}, [&] { prelu(x, zeros({2})); });
  refused("prelu", {"[3] f32 cpu", "[3] f32 cpu"}, [] { prelu(zeros({3}), zeros({3})); });
  refused("prelu", {"[1, 3]"}, [&] { prelu(x, zeros({1, 3})); });
  refused("prelu", {"f64"}, [&] { prelu(x, zeros({3}, f64)); });
  refused("lerp", {"i64"}, [&] { lerp(n, n, 0.5); });
  refused("lerp", {"f32", "f64"}, [&] { lerp(x, x, zeros({}, f64)); });
  refused("lerp", {"[2, 3]", "[4]"}, [&] { lerp(x, x, zeros({4})); });
  refused("addcmul", {"0.5", "i64"}, [&] { addcmul(n, n, n, 0.5); });
  refused("addcmul", {}, [&] { addcmul(x, Tensor(), x); });
  refused("clamp", {"neither bound", "[2, 3] f32 cpu"},
          [&] { return clamp(x, Tensor(), Tensor()); });
  refused("clamp", {"f64"}, [&] { return clamp(x, zeros({}, f64), Tensor()); });
  refused("masked_fill", {"f32"}, [&] { return masked_fill(x, x, 1.0); });
  refused("masked_fill", {"[3]"}, [&] { return masked_fill(x, flags, zeros({3})); });
  refused("masked_fill", {"infinite as f16"},
          [&] { return masked_fill(zeros({3}, f16), flags, 1e9); });
  Tensor row = zeros({3});
  refused("masked_fill_", {"[2, 3] bool cpu", "[3] f32 cpu"}, [&] {
    masked_fill_(row, ones({2, 3}, boolean), 1);
  });
}

}  // namespace
}  // namespace firn::testing
