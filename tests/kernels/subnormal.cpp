// Kernels run with subnormal numbers flushed to 0 (device/parallel.h). Of a subnormal operand every
// elementwise kernel gives f(x) or f(0), and never a third number.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/elementwise.h"
#include "support/catch.h"
#include "support/formulas.h"
#include "support/values.h"

using namespace firn;
using firn::testing::args_of;
using firn::testing::formula;
using firn::testing::slope;

namespace {

constexpr std::int64_t kElements = 19;  // whole registers and a rest

/// The smallest and two other subnormal numbers.
std::vector<double> subnormals(DType t) {
  if (t == f64) return {5e-324, 1e-310, -2e-308};
  if (t == bf16) return {0x1p-133, 0x1p-130, -0x1.8p-127};
  return {0x1p-149, 0x1.17p-133, -0x1.8p-127};
}

/// x as it is, and flushed.
std::vector<double> ways(DType t, double x) {
  const double least = t == f64 ? std::numeric_limits<double>::min() : 0x1p-126;
  if (std::fabs(x) >= least || x == 0) return {x};
  return {x, std::copysign(0.0, x)};
}

/// Whether every element of `got`, in f32 or f64, is one of `want`, but for rounding and for a
/// result that is flushed.
bool is_one_of(const Tensor& got, const std::vector<double>& want) {
  const bool wide = got.dtype() == f64;
  const double unit = wide ? 0x1p-46 : 0x1p-20;
  const double least = wide ? std::numeric_limits<double>::min() : 0x1p-126;
  for (const double y : testing::values_of(got)) {
    const bool found = std::any_of(want.begin(), want.end(), [&](double w) {
      if (!wide) w = static_cast<double>(static_cast<float>(w));
      if (std::isnan(w) || std::isnan(y)) return std::isnan(w) && std::isnan(y);
      return w == y || std::fabs(y - w) <= unit * std::fabs(w) + 2 * least;
    });
    if (!found) return false;
  }
  return true;
}

Tensor repeated(double x, DType t) { return full({kElements}, x, f64).to(t); }
Tensor result(DType t) { return empty({kElements}, t == f64 ? f64 : f32); }
std::string text(const Tensor& t) { return std::to_string(testing::values_of(t)[0]); }

constexpr DType kOperands[] = {f32, f64, bf16};

}  // namespace

TEST_CASE("subnormal operands of unary kernels give f(x) or f(0), and gradients too", "[host]") {
  for (const math::UnaryInfo& info : math::kUnaryOps) {
    if (!info.floats || info.gives_bool) continue;
    const math::Args p = args_of(info.op);
    for (const DType t : kOperands)
      for (const double x : subnormals(t)) {
        std::vector<double> values, slopes;
        for (const double way : ways(t, x)) {
          values.push_back(formula(info.op, way, p));
          slopes.push_back(slope(info.op, way, p));
        }
        const Tensor in = repeated(x, t), y = result(t), dx = result(t);
        kernels::unary(info.op, in.view(), y.mutable_view(), p, Stream());
        INFO(info.name << " " << to_string(t) << " of " << x << ": " << text(y));
        CHECK(is_one_of(y, values));
        if (!info.has_gradient()) continue;
        kernels::unary_backward(info.op, repeated(1, t).view(), in.view(), dx.mutable_view(), p, 0,
                                Stream());
        INFO("gradient " << text(dx));
        CHECK(is_one_of(dx, slopes));
      }
  }
}

TEST_CASE("subnormal operands of binary kernels give f(x) or f(0), and gradients too", "[host]") {
  for (const math::BinaryInfo& info : math::kBinaryOps) {
    if (!info.floats || info.gives_bool) continue;
    const math::Args p{.a = 0.75};
    for (const DType t : kOperands) {
      std::vector<double> numbers = subnormals(t);
      for (const double other : {0.75, -1.5, 0.0, 0.5}) numbers.push_back(other);
      for (const double a : numbers)
        for (const double b : numbers) {
          std::vector<double> values, slopes[2];
          for (const double u : ways(t, a))
            for (const double v : ways(t, b)) {
              values.push_back(formula(info.op, {u, v}, p));
              for (int i = 0; i < 2; ++i) slopes[i].push_back(slope(info.op, i, {u, v}, p));
            }
          const Tensor x = repeated(a, t), z = repeated(b, t), y = result(t), dx = result(t);
          kernels::binary(info.op, x.view(), z.view(), y.mutable_view(), p, Stream());
          INFO(info.name << " " << to_string(t) << " of " << a << " and " << b << ": " << text(y));
          CHECK(is_one_of(y, values));
          for (int i = 0; i < 2 && info.has_gradient(); ++i) {
            kernels::binary_backward(info.op, i, repeated(1, t).view(), x.view(), z.view(),
                                     dx.mutable_view(), p, 0, Stream());
            INFO("gradient " << i << ": " << text(dx));
            CHECK(is_one_of(dx, slopes[i]));
          }
        }
    }
  }
}

TEST_CASE("functions that read an operand's bits see 0 for a subnormal number", "[host]") {
  const Tensor x = full({kElements}, 1e-40), small = full({kElements}, 1e-310, f64);
  CHECK(testing::values_of(atan2(x, x)) == std::vector<double>(kElements, 0.0));
  CHECK(testing::values_of(pow(x, full({}, 0.5))) == std::vector<double>(kElements, 0.0));
  CHECK(testing::values_of(log(small)) == std::vector<double>(kElements, -HUGE_VAL));
  CHECK(testing::values_of(log(zeros({3}) + 1e-45)) == std::vector<double>(3, -HUGE_VAL));
  for (const double y : testing::values_of(log(zeros({3}) + 1e-30)))
    CHECK(std::fabs(y - std::log(1e-30)) < 1e-5);
}
