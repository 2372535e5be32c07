// Rows: elementwise ops of one operand, with every parameter.
#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

// Rank 0 to 3, empty, one element, 2^k - 1 and 2^k + 1 around a tile and a vector, more than 2^16.
const std::vector<std::vector<Shape>> kShapes = {
    {{}}, {{0}}, {{1}}, {{7}}, {{3, 5}}, {{2, 3, 4}}, {{63}}, {{65}}, {{1025}}, {{65537, 1}}};

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

FIRN_OP_ROWS(unary) {
  unary("exp", exp, exp_, real(-3, 3));
  unary("log", log, log_, real(0.2, 6), Accuracy::normwise);  // near 1 the operand's ulp rules
  unary("sqrt", sqrt, sqrt_, real(0.2, 6), Accuracy::rounded);
  unary("rsqrt", rsqrt, rsqrt_, real(0.2, 6));
  unary("reciprocal", reciprocal, reciprocal_, real(-3, 3, {0, 0.1, -0.1, 0.2, -0.2}),
        Accuracy::rounded);
  unary("relu", relu, relu_, real(-2, 2, {0}), Accuracy::exact);
  unary("gelu", gelu, gelu_, real(-4, 4), Accuracy::normwise);  // 1 + erf cancels
  unary("gelu tanh", gelu_tanh, gelu_tanh_, real(-4, 4), Accuracy::normwise);
  unary("sigmoid", sigmoid, sigmoid_, real(-6, 6), Accuracy::pointwise, 0.25);  // y (1 - y)
  unary("silu", silu, silu_, real(-6, 6));
  unary("tanh", tanh, tanh_, real(-3, 3), Accuracy::normwise, 1);  // 1 - y^2
  unary("softplus", softplus, softplus_, real(-6, 6), Accuracy::normwise);
  unary("sin", sin, sin_, real(-6, 6), Accuracy::normwise);
  unary("cos", cos, cos_, real(-6, 6), Accuracy::normwise);

  // These three also take integers.
  const auto with_integers = [](const char* name, Fn fn, InPlace in_place, const Arg& arg,
                                Accuracy accuracy) {
    Row(name, [fn](const Args& x) { return fn(x[0]); })
        .args({arg})
        .shapes(kShapes)
        .accuracy(accuracy)
        .golden()
        .integers()
        .in_place([in_place](Tensor& x, const Args&) { in_place(x); })
        .perf({{1 << 22}});
  };
  with_integers("neg", neg, neg_, real(), Accuracy::exact);
  with_integers("abs", abs, abs_, real(-2, 2, {0}), Accuracy::exact);
  with_integers("square", square, square_, real(), Accuracy::rounded);
}

FIRN_OP_ROWS(unary_with_parameters) {
  const auto add = [](const char* name, OpFn op, std::function<void(Tensor&, const Args&)> in_place,
                      const Arg& arg, Accuracy accuracy) {
    Row(name, std::move(op))
        .args({arg})
        .shapes(kShapes)
        .accuracy(accuracy)
        .golden()
        .in_place(std::move(in_place));
  };
  add(
      "leaky_relu", [](const Args& x) { return leaky_relu(x[0]); },
      [](Tensor& x, const Args&) { leaky_relu_(x); }, real(-2, 2, {0}), Accuracy::pointwise);
  add(
      "leaky_relu slope 0.2", [](const Args& x) { return leaky_relu(x[0], 0.2); },
      [](Tensor& x, const Args&) { leaky_relu_(x, 0.2); }, real(-2, 2, {0}), Accuracy::pointwise);
  add(
      "elu", [](const Args& x) { return elu(x[0]); }, [](Tensor& x, const Args&) { elu_(x); },
      real(-3, 3, {0}), Accuracy::normwise);
  add(
      "elu alpha 0.7", [](const Args& x) { return elu(x[0], 0.7); },
      [](Tensor& x, const Args&) { elu_(x, 0.7); }, real(-3, 3, {0}), Accuracy::normwise);
  add(
      "clamp -0.5 to 0.75", [](const Args& x) { return clamp(x[0], -0.5, 0.75); },
      [](Tensor& x, const Args&) { clamp_(x, -0.5, 0.75); }, real(-2, 2, {-0.5, 0.75}),
      Accuracy::exact);
}

// At the kink itself: the one-sided value that ops.h promises.
FIRN_OP_ROWS(unary_at_kinks) {
  const auto at_kink = [](const char* name, OpFn op) {
    Row(name, std::move(op))
        .args({whole()})
        .shapes({{{4, 5}}, {{65}}})
        .accuracy(Accuracy::normwise)
        .kinks()
        .golden();
  };
  at_kink("relu at zero", [](const Args& x) { return relu(x[0]); });
  at_kink("abs at zero", [](const Args& x) { return abs(x[0]); });
  at_kink("leaky_relu at zero", [](const Args& x) { return leaky_relu(x[0]); });
  at_kink("elu at zero", [](const Args& x) { return elu(x[0]); });
}

}  // namespace
}  // namespace firn::testing
