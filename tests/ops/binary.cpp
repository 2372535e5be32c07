// Rows: elementwise ops of two operands with broadcasting, their forms with a number, comparisons
// and where.
#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

// Equal shapes first; then every kind of broadcasting: a missing axis, a size of 1 on either side
// or on both, a scalar, an empty axis.
const std::vector<std::vector<Shape>> kPairs = {{{}, {}},
                                                {{0}, {0}},
                                                {{1}, {1}},
                                                {{3, 5}, {3, 5}},
                                                {{63}, {63}},
                                                {{65}, {65}},
                                                {{1025}, {1025}},
                                                {{65537, 1}, {65537, 1}},
                                                {{3, 4}, {4}},
                                                {{4}, {3, 4}},
                                                {{3, 1}, {1, 4}},
                                                {{2, 3, 4}, {3, 1}},
                                                {{}, {3}},
                                                {{5, 2}, {}},
                                                {{0, 3}, {1, 3}},
                                                {{1}, {7}},
                                                {{2, 1, 3}, {1, 4, 1}},
                                                {{1, 33}, {31, 1}},
                                                {{65537, 2}, {2}}};

using Fn = Tensor (*)(const Tensor&, const Tensor&);
using InPlace = Tensor& (*)(Tensor&, const Tensor&);

Row& common(Row& row, const Arg& a, const Arg& b, Accuracy accuracy) {
  return row.args({a, b}).shapes(kPairs).accuracy(accuracy).golden().perf({{1 << 22}, {1 << 22}});
}

FIRN_OP_ROWS(binary) {
  const auto arithmetic = [](const char* name, Fn fn, InPlace in_place, const Arg& a, const Arg& b,
                             bool integers) {
    Row row(name, [fn](const Args& x) { return fn(x[0], x[1]); });
    common(row, a, b, Accuracy::rounded);
    row.in_place([in_place](Tensor& x, const Args& all) { in_place(x, all[1]); });
    if (integers) row.integers();
  };
  arithmetic("add", add, add_, real(), real(), true);
  arithmetic("sub", sub, sub_, real(), real(), true);
  arithmetic("mul", mul, mul_, real(), real(), true);
  arithmetic("div", div, div_, real(), real(-3, 3, {0, 0.1, -0.1, 0.2, -0.2, 0.3, -0.3}), false);

  const auto other = [](const char* name, Fn fn, const Arg& a, const Arg& b, Accuracy accuracy,
                        bool integers) {
    Row row(name, [fn](const Args& x) { return fn(x[0], x[1]); });
    common(row, a, b, accuracy);
    if (integers) row.integers();
  };
  other("pow", pow, real(0.3, 2.5), real(-2, 2), Accuracy::pointwise, false);
  // PyTorch has no such function.
  Row swiglu_row("swiglu", [](const Args& x) { return swiglu(x[0], x[1]); });
  swiglu_row.args({real(-4, 4), real()}).shapes(kPairs).accuracy(Accuracy::normwise);
  // The operands never meet: their grids share no point.
  other("minimum", minimum, apart(-2, 2), apart(-2, 2, 1.0 / 128), Accuracy::exact, true);
  other("maximum", maximum, apart(-2, 2), apart(-2, 2, 1.0 / 128), Accuracy::exact, true);
}

FIRN_OP_ROWS(binary_with_number) {
  const std::vector<std::vector<Shape>> shapes = {{{}},   {{0}},  {{1}},       {{3, 5}},
                                                  {{63}}, {{65}}, {{65537, 1}}};
  const auto add_row = [&](const char* name, OpFn op, const Arg& arg, Accuracy accuracy,
                           std::function<void(Tensor&, const Args&)> in_place, bool integers) {
    Row row(name, std::move(op));
    row.args({arg}).shapes(shapes).accuracy(accuracy).golden();
    if (in_place) row.in_place(std::move(in_place));
    if (integers) row.integers();
  };
  const Arg away = real(-3, 3, {0, 0.1, -0.1, 0.2, -0.2, 0.3, -0.3});
  using Accuracy::pointwise, Accuracy::rounded;
  add_row(
      "add number", [](const Args& x) { return x[0] + 2; }, real(), rounded,
      [](Tensor& x, const Args&) { add_(x, 2); }, true);
  add_row(
      "sub number", [](const Args& x) { return x[0] - 3; }, real(), rounded,
      [](Tensor& x, const Args&) { sub_(x, 3); }, true);
  add_row(
      "mul number", [](const Args& x) { return 3 * x[0]; }, real(), rounded,
      [](Tensor& x, const Args&) { mul_(x, 3); }, true);
  add_row(
      "div number", [](const Args& x) { return x[0] / 3; }, real(), pointwise,
      [](Tensor& x, const Args&) { div_(x, 3); }, false);
  add_row(
      "number sub", [](const Args& x) { return 2 - x[0]; }, real(), rounded, nullptr, true);
  add_row(
      "number div", [](const Args& x) { return 2 / x[0]; }, away, pointwise, nullptr, false);
  add_row(
      "pow number 2.5", [](const Args& x) { return pow(x[0], 2.5); }, real(0.2, 3), pointwise,
      nullptr, false);
  Row("number pow", [](const Args& x) { return pow(1.75, x[0]); })
      .args({real()})
      .shapes(shapes)
      .accuracy(pointwise);
  add_row(
      "pow number 3", [](const Args& x) { return pow(x[0], 3); }, away, pointwise, nullptr, false);
}

// Where the operands are equal, the gradient is shared.
FIRN_OP_ROWS(ties) {
  const auto tie = [](const char* name, Fn fn) {
    Row(name, [fn](const Args& x) { return fn(x[0], x[1]); })
        .args({whole(), whole()})
        .shapes(kPairs)
        .accuracy(Accuracy::exact)
        .kinks()
        .golden();
  };
  tie("minimum with ties", minimum);
  tie("maximum with ties", maximum);
}

FIRN_OP_ROWS(comparisons) {
  const auto compare = [](const char* name, Fn fn) {
    Row(name, [fn](const Args& x) { return fn(x[0], x[1]); })
        .args({whole_constant(), whole_constant()})
        .shapes(kPairs)
        .accuracy(Accuracy::exact)
        .golden()
        .integers()
        .own_dtype();
  };
  compare("eq", eq);
  compare("ne", ne);
  compare("lt", lt);
  compare("le", le);
  compare("gt", gt);
  compare("ge", ge);
}

FIRN_OP_ROWS(where) {
  Row("where", [](const Args& x) { return where(x[0], x[1], x[2]); })
      .args({mask(), real(), real()})
      .shapes({{{3, 5}, {3, 5}, {3, 5}},
               {{}, {}, {}},
               {{0}, {0}, {0}},
               {{65}, {65}, {65}},
               {{3, 1}, {4}, {2, 3, 4}},
               {{2, 3, 4}, {}, {3, 1}},
               {{7}, {1}, {}},
               {{65537, 1}, {65537, 1}, {65537, 1}}})
      .accuracy(Accuracy::exact)
      .golden()
      .integers();
}

}  // namespace
}  // namespace firn::testing
