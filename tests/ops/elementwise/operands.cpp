// Rows: elementwise operations of two and three operands with broadcasting, and with numbers
// (firn/ops/elementwise.h).
#include "support/ops/op_row.h"

namespace firn::testing {
namespace {

// Equal shapes first; then a missing axis, sizes of 1 on either side or on both, scalars, none.
const std::vector<std::vector<Shape>> kPairs = {
    {{}, {}},  {{0}, {0}},    {{3, 5}, {3, 5}},      {{63}, {63}},     {{65}, {65}},
    {{3}, {}}, {{3, 4}, {4}}, {{4}, {3, 4}},         {{3, 1}, {1, 4}}, {{0, 3}, {1, 3}},
    {{}, {3}}, {{1}, {7}},    {{2, 1, 3}, {1, 4, 1}}};
const std::vector<std::vector<Shape>> kTriples = {
    {{}, {}, {}},       {{0}, {0}, {0}},        {{3, 5}, {3, 5}, {3, 5}}, {{65}, {65}, {65}},
    {{3, 5}, {5}, {}},  {{}, {3, 5}, {5}},      {{3, 1}, {4}, {2, 3, 4}}, {{7}, {1}, {}},
    {{5, 2}, {1}, {2}}, {{2, 3, 4}, {}, {3, 1}}};

using Fn = Tensor (*)(const Tensor&, const Tensor&);

void binary(const char* name, Fn fn, const Arg& a, const Arg& b, Accuracy accuracy,
            double scale = 0) {
  Row(name, [fn](const Args& x) { return fn(x[0], x[1]); })
      .args({a, b})
      .shapes(kPairs)
      .accuracy(accuracy)
      .cancels(scale, 0)
      .golden()
      .perf({{1 << 22}, {1 << 22}});
}

FIRN_OP_ROWS(two_operands) {
  const Arg away = real(-3, 3, {0, 0.1, -0.1, 0.2, -0.2, 0.3, -0.3});
  binary("atan2", atan2, real(), away, Accuracy::normwise);
  binary("hypot", hypot, real(), away, Accuracy::pointwise);
  binary("logaddexp", logaddexp, real(-4, 4), real(-4, 4), Accuracy::normwise, 4);
  // Remainders are exact, but jump: no central differences.
  for (const auto& [name, fn] :
       {std::pair<const char*, Fn>{"fmod", fmod}, {"remainder", remainder}})
    Row(name, [f = fn](const Args& x) { return f(x[0], x[1]); })
        .args({real(-6, 6), away})
        .shapes(kPairs)
        .accuracy(Accuracy::rounded)
        .kinks()
        .golden()
        .perf({{1 << 22}, {1 << 22}});

  const auto logical = [](const char* name, Fn fn) {
    Row(name, [fn](const Args& x) { return fn(x[0], x[1]); })
        .args({whole_constant(), whole_constant()})
        .shapes(kPairs)
        .accuracy(Accuracy::exact)
        .golden()
        .integers()
        .own_dtype();
  };
  logical("logical_and", logical_and);
  logical("logical_or", logical_or);
  logical("logical_xor", logical_xor);
}

FIRN_OP_ROWS(prelus) {
  Row("prelu", [](const Args& x) { return prelu(x[0], x[1]); })
      .args({real(-2, 2, {0}), real()})
      .shapes({{{2, 3}, {3}}, {{5, 2, 7}, {2}}, {{2, 3, 2, 2}, {3}}, {{0, 4}, {4}}})
      .accuracy(Accuracy::rounded)
      .golden();
  Row("prelu with one slope", [](const Args& x) { return prelu(x[0], x[1]); })
      .args({real(-2, 2, {0}), real()})
      .shapes({{{2, 3}, {1}}, {{}, {1}}, {{65}, {}}, {{2, 1, 2}, {1}}})
      .accuracy(Accuracy::rounded)
      .golden();
}

FIRN_OP_ROWS(with_a_number) {
  const auto add_row = [](const char* name, OpFn op, const Arg& arg, Accuracy accuracy) {
    Row(name, std::move(op))
        .args({arg})
        .shapes({{{}}, {{0}}, {{3, 5}}, {{65}}})
        .accuracy(accuracy)
        .kinks()
        .golden();
  };
  add_row(
      "fmod number", [](const Args& x) { return fmod(x[0], -1.5); }, real(-6, 6), Accuracy::exact);
  add_row(
      "remainder number", [](const Args& x) { return remainder(x[0], -1.5); }, real(-6, 6),
      Accuracy::rounded);
  Row("lerp number", [](const Args& x) { return lerp(x[0], x[0] * x[0], 0.3); })
      .args({real()})
      .shapes({{{}}, {{0}}, {{3, 5}}, {{65}}})
      .accuracy(Accuracy::normwise)
      .cancels(4, 4)
      .roundings(2)
      .golden();
}

FIRN_OP_ROWS(three_operands) {
  Row("lerp", [](const Args& x) { return lerp(x[0], x[1], x[2]); })
      .args({real(), real(), real(-1, 2)})
      .shapes(kTriples)
      .accuracy(Accuracy::normwise)
      .cancels(8, 4)
      .golden()
      .perf({{1 << 22}, {1 << 22}, {1 << 22}});
  Row("addcmul", [](const Args& x) { return addcmul(x[0], x[1], x[2], 0.7); })
      .args({real(), real(), real()})
      .shapes(kTriples)
      .accuracy(Accuracy::normwise)
      .cancels(4, 2)
      .golden()
      .perf({{1 << 22}, {1 << 22}, {1 << 22}});
  Row("addcmul of whole numbers", [](const Args& x) { return addcmul(x[0], x[1], x[2], -3); })
      .args({whole(), whole(), whole()})
      .shapes(kTriples)
      .accuracy(Accuracy::normwise)
      .cancels(12, 6)
      .integers();

  const auto clamp_row = [](const char* name, OpFn op, std::vector<Arg> args,
                            std::vector<std::vector<Shape>> shapes, bool ties) {
    Row row(name, std::move(op));
    // The gradient of a repeated operand is a sum, whose terms may cancel.
    row.args(std::move(args)).shapes(std::move(shapes)).accuracy(Accuracy::exact).cancels(0, 4);
    row.integers();
    ties ? row.kinks() : row.golden();  // PyTorch shares the gradient in a tie
  };
  // The operands never meet: their grids share no point.
  const Arg first = apart(-2, 2), second = apart(-2, 2, 1.0 / 192), third = apart(-2, 2, 2.0 / 192);
  const auto both = [](const Args& x) { return clamp(x[0], x[1], x[2]); };
  clamp_row("clamp by tensors", both, {first, second, third}, kTriples, false);
  clamp_row("clamp by tensors with ties", both, {whole(), whole(), whole()}, kTriples, true);
  clamp_row(
      "clamp by a lower bound", [](const Args& x) { return clamp(x[0], x[1], Tensor()); },
      {first, second}, kPairs, false);
  clamp_row(
      "clamp by an upper bound", [](const Args& x) { return clamp(x[0], Tensor(), x[1]); },
      {first, second}, kPairs, false);
  Row("masked_fill", [](const Args& x) { return masked_fill(x[0], x[1], 1.5); })
      .args({real(), mask()})
      .shapes({{{3, 5}, {3, 5}},
               {{}, {}},
               {{0}, {0}},
               {{65}, {65}},
               {{2, 3, 4}, {3, 1}},
               {{4}, {3, 4}}})
      .accuracy(Accuracy::exact)
      .golden()
      .in_place([](Tensor& x, const Args& all) { masked_fill_(x, all[1], 1.5); });
}

}  // namespace
}  // namespace firn::testing
