// Rows: functions, steps, questions and activations of one operand (firn/ops/elementwise.h).
#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

// Rank 0 to 3, empty, one element, and 2^k - 1 and 2^k + 1 around a tile and a vector.
const std::vector<std::vector<Shape>> kShapes = {{{}},        {{0}},  {{1}},  {{3, 5}},
                                                 {{2, 3, 4}}, {{63}}, {{65}}, {{1025}}};

using Fn = Tensor (*)(const Tensor&);
using InPlace = Tensor& (*)(Tensor&);

void unary(const char* name, Fn fn, InPlace in_place, const Arg& arg,
           Accuracy accuracy = Accuracy::pointwise, double slope = 0) {
  Row(name, [fn](const Args& x) { return fn(x[0]); })
      .args({arg})
      .shapes(kShapes)
      .accuracy(accuracy)
      .cancels(0, slope)
      .golden()
      .in_place([in_place](Tensor& x, const Args&) { in_place(x); })
      .perf({{1 << 22}});
}

FIRN_OP_ROWS(functions) {
  unary("log1p", log1p, log1p_, real(-0.8, 4), Accuracy::normwise);   // near 0 the operand's ulp
  unary("expm1", expm1, expm1_, real(-2, 2), Accuracy::normwise, 1);  // y + 1
  unary("log2", log2, log2_, real(0.2, 6), Accuracy::normwise);
  unary("exp2", exp2, exp2_, real(-3, 3));
  unary("tan", tan, tan_, real(-1.2, 1.2), Accuracy::normwise, 1);  // 1 + y^2
  unary("asin", asin, asin_, real(-0.9, 0.9), Accuracy::normwise);
  unary("acos", acos, acos_, real(-0.9, 0.9), Accuracy::normwise);
  unary("atan", atan, atan_, real(-4, 4));
  unary("sinh", sinh, sinh_, real(-3, 3), Accuracy::normwise);
  unary("cosh", cosh, cosh_, real(-3, 3), Accuracy::normwise);
  unary("asinh", asinh, asinh_, real(-4, 4), Accuracy::normwise);
  unary("acosh", acosh, acosh_, real(1.2, 6), Accuracy::normwise);
  unary("atanh", atanh, atanh_, real(-0.9, 0.9), Accuracy::normwise);
  unary("log10", log10, log10_, real(0.2, 6), Accuracy::normwise);
  unary("erf", erf, erf_, real(-3, 3), Accuracy::normwise);
  unary("erfc", erfc, erfc_, real(-3, 3), Accuracy::normwise);
  Row("nan_to_num", [](const Args& x) { return nan_to_num(x[0]); })
      .args({real()})
      .shapes(kShapes)
      .accuracy(Accuracy::exact)
      .golden()
      .integers()
      .in_place([](Tensor& x, const Args&) { nan_to_num_(x); });
}

FIRN_OP_ROWS(shrinks) {
  const auto of = [](const char* name, Fn fn) {
    Row(name, [fn](const Args& x) { return fn(x[0]); })
        .args({real(-4, 4, {-0.5, 0, 0.5, 6})})
        .shapes(kShapes)
        .accuracy(Accuracy::normwise);
  };
  of("hardshrink", [](const Tensor& x) { return hardshrink(x); });
  of("softshrink", [](const Tensor& x) { return softshrink(x); });
  of("tanhshrink", tanhshrink);
  of("relu6", relu6);
  Row("glu", [](const Args& x) { return glu(x[0], 1); })
      .args({real(-3, 3)})
      .shapes({{{3, 4}}, {{2, 6, 3}}, {{0, 2}}})
      .accuracy(Accuracy::normwise);
  Row("normalize", [](const Args& x) { return normalize(x[0], 1); })
      .args({real(0.5, 3)})
      .shapes({{{3, 5}}, {{2, 4, 3}}})
      .accuracy(Accuracy::normwise);
}

FIRN_OP_ROWS(steps) {
  const auto step = [](const char* name, Fn fn, InPlace in_place, const Arg& arg) {
    Row(name, [fn](const Args& x) { return fn(x[0]); })
        .args({arg})
        .shapes(kShapes)
        .accuracy(Accuracy::exact)
        .kinks()  // a reduced operand may be a whole number
        .golden()
        .integers()
        .in_place([in_place](Tensor& x, const Args&) { in_place(x); })
        .perf({{1 << 22}});
  };
  step("floor", floor, floor_, real(-4, 4));
  step("ceil", ceil, ceil_, real(-4, 4));
  step("round", round, round_, real(-4, 4));
  step("trunc", trunc, trunc_, real(-4, 4));
  step("sign", sign, sign_, real(-4, 4, {0}));
  Row("round of halves", [](const Args& x) { return round(mul(x[0], 0.5)); })
      .args({whole()})
      .shapes({{{4, 5}}, {{65}}})
      .accuracy(Accuracy::exact)
      .kinks()
      .golden();
  Row("sign at zero", [](const Args& x) { return sign(x[0]); })
      .args({whole()})
      .shapes({{{4, 5}}, {{65}}})
      .accuracy(Accuracy::exact)
      .kinks()
      .golden();
}

FIRN_OP_ROWS(questions) {
  const auto question = [](const char* name, Fn fn) {
    Row(name, [fn](const Args& x) { return fn(x[0]); })
        .args({whole_constant()})
        .shapes(kShapes)
        .accuracy(Accuracy::exact)
        .golden()
        .integers()
        .own_dtype();
  };
  question("isnan", isnan);
  question("isinf", isinf);
  question("isfinite", isfinite);
  question("logical_not", logical_not);
}

FIRN_OP_ROWS(activations) {
  using Accuracy::exact, Accuracy::normwise, Accuracy::pointwise;
  unary("hardswish", hardswish, hardswish_, real(-5, 5, {-3, 3}), normwise, 1);
  unary("hardsigmoid", hardsigmoid, hardsigmoid_, real(-5, 5, {-3, 3}), normwise);
  unary("softsign", softsign, softsign_, real(-5, 5));
  unary("mish", mish, mish_, real(-6, 6), normwise);
  unary("selu", selu, selu_, real(-4, 4, {0}), normwise);
  unary("logsigmoid", logsigmoid, logsigmoid_, real(-6, 6), normwise);

  const auto with_parameters = [](const char* name, OpFn op,
                                  std::function<void(Tensor&, const Args&)> in_place,
                                  const Arg& arg, Accuracy accuracy) {
    Row(name, std::move(op))
        .args({arg})
        .shapes(kShapes)
        .accuracy(accuracy)
        .golden()
        .in_place(std::move(in_place));
  };
  with_parameters(
      "hardtanh", [](const Args& x) { return hardtanh(x[0]); },
      [](Tensor& x, const Args&) { hardtanh_(x); }, real(-3, 3, {-1, 1}), exact);
  with_parameters(
      "hardtanh -0.5 to 2", [](const Args& x) { return hardtanh(x[0], -0.5, 2); },
      [](Tensor& x, const Args&) { hardtanh_(x, -0.5, 2); }, real(-3, 3, {-0.5, 2}), exact);
  with_parameters(
      "celu", [](const Args& x) { return celu(x[0]); }, [](Tensor& x, const Args&) { celu_(x); },
      real(-4, 4, {0}), normwise);
  with_parameters(
      "celu alpha 0.7", [](const Args& x) { return celu(x[0], 0.7); },
      [](Tensor& x, const Args&) { celu_(x, 0.7); }, real(-4, 4, {0}), normwise);
  with_parameters(
      "threshold", [](const Args& x) { return threshold(x[0], 0.5, -2); },
      [](Tensor& x, const Args&) { threshold_(x, 0.5, -2); }, real(-3, 3, {0.5}), exact);
}

// At the kink itself: PyTorch's one-sided value.
FIRN_OP_ROWS(activations_at_kinks) {
  const auto at_kink = [](const char* name, OpFn op) {
    Row(name, std::move(op))
        .args({whole()})
        .shapes({{{4, 5}}, {{65}}})
        .accuracy(Accuracy::normwise)
        .kinks()
        .golden();
  };
  at_kink("hardtanh at its bounds", [](const Args& x) { return hardtanh(x[0]); });
  at_kink("hardswish at its bounds", [](const Args& x) { return hardswish(3 * x[0]); });
  at_kink("hardsigmoid at its bounds", [](const Args& x) { return hardsigmoid(3 * x[0]); });
  at_kink("threshold at it", [](const Args& x) { return threshold(x[0], 1, 5); });
  at_kink("selu at zero", [](const Args& x) { return selu(x[0]); });
  at_kink("celu at zero", [](const Args& x) { return celu(x[0]); });
  at_kink("softsign at zero", [](const Args& x) { return softsign(x[0]); });
}

}  // namespace
}  // namespace firn::testing
