// Rules of elementwise operations: one row for each formula of kernels/math/unary.h, activation.h,
// binary.h and ternary.h.
#include <array>

#include "onnx/rules.h"

namespace firn::io::onnx {
namespace {

std::string logistic(Emit& e, const std::string& x) { return e("Sigmoid", {x}); }
std::string a(Emit& e) { return e.constant(e.number("a")); }
std::string b(Emit& e) { return e.constant(e.number("b")); }
float as_float(double v) { return static_cast<float>(v); }

/// Writes a comparison, whose result is bool for all operands.
void compare(Emit& e, const char* type) { e.done(e(type, {e.in(0), e.in(1)}), boolean); }

/// Writes a rounding step; integers do not change.
void step(Emit& e, const char* type) { e.done(is_floating(e.dtype) ? e(type, {e.in()}) : e.in()); }

/// Returns x != 0.
std::string truth(Emit& e, std::size_t i) {
  return e("Not", {e("Equal", {e.in(i), e.constant(0)})});
}
void logical(Emit& e, const char* type) { e.done(e(type, {truth(e, 0), truth(e, 1)}), boolean); }

/// Returns whether x is NaN; an integer is never NaN or infinite.
std::string is_nan(Emit& e, const std::string& x) {
  return is_floating(e.dtype) ? e("IsNaN", {x}) : e("Not", {e("Equal", {x, x})});
}
std::string is_inf(Emit& e, const std::string& x) {
  return is_floating(e.dtype) ? e("IsInf", {x}) : e("Not", {e("Equal", {x, x})});
}

std::string remainder(Emit& e) { return e("Mod", {e.in(0), e.in(1)}, {{"fmod", std::int64_t{1}}}); }

constexpr double kInvSqrt2 = 0.70710678118654752440;
constexpr double kLn2 = 0.69314718055994530942;
constexpr double kPi = 3.14159265358979323846;

const std::array kRules = {
    // ---- One operand ----
    Rule{"neg", Width::whole, [](Emit& e) { e.done(e("Neg", {e.in()})); }},
    Rule{"abs", Width::whole, [](Emit& e) { e.done(e("Abs", {e.in()})); }},
    Rule{"exp", Width::same, [](Emit& e) { e.done(e("Exp", {e.in()})); }},
    Rule{"log", Width::same, [](Emit& e) { e.done(e("Log", {e.in()})); }},
    Rule{"sqrt", Width::same, [](Emit& e) { e.done(e("Sqrt", {e.in()})); }},
    Rule{"rsqrt", Width::wide, [](Emit& e) { e.done(e("Reciprocal", {e("Sqrt", {e.in()})})); }},
    Rule{"square", Width::both,
         [](Emit& e) {
           const std::string x = e.in();
           e.done(e("Mul", {x, x}));
         }},
    Rule{"reciprocal", Width::same, [](Emit& e) { e.done(e("Reciprocal", {e.in()})); }},
    Rule{"relu", Width::same, [](Emit& e) { e.done(e("Relu", {e.in()})); }},
    Rule{"leaky_relu", Width::same,
         [](Emit& e) {
           e.done(e("LeakyRelu", {e.in()}, {{"alpha", as_float(e.number("a"))}}));
         }},
    Rule{"elu", Width::same,
         [](Emit& e) {
           e.done(e("Elu", {e.in()}, {{"alpha", as_float(e.number("a"))}}));
         }},
    Rule{"gelu", Width::wide,
         [](Emit& e) {
           // x (1 + erf(x / sqrt 2)) / 2
           const std::string x = e.in();
           const std::string erf = e("Erf", {e("Mul", {x, e.constant(kInvSqrt2)})});
           const std::string half = e("Mul", {x, e.constant(0.5)});
           e.done(e("Mul", {half, e("Add", {erf, e.constant(1)})}));
         }},
    Rule{"gelu_tanh", Width::wide, [](Emit& e) { e.done(gelu_tanh(e, e.in())); }},
    Rule{"sigmoid", Width::same, [](Emit& e) { e.done(logistic(e, e.in())); }},
    Rule{"silu", Width::wide,
         [](Emit& e) {
           const std::string x = e.in();
           e.done(e("Mul", {x, logistic(e, x)}));
         }},
    Rule{"tanh", Width::same, [](Emit& e) { e.done(e("Tanh", {e.in()})); }},
    Rule{"softplus", Width::same, [](Emit& e) { e.done(e("Softplus", {e.in()})); }},
    Rule{"sin", Width::same, [](Emit& e) { e.done(e("Sin", {e.in()})); }},
    Rule{"cos", Width::same, [](Emit& e) { e.done(e("Cos", {e.in()})); }},
    Rule{"tan", Width::wide, [](Emit& e) { e.done(e("Tan", {e.in()})); }},
    Rule{"asin", Width::wide, [](Emit& e) { e.done(e("Asin", {e.in()})); }},
    Rule{"acos", Width::wide, [](Emit& e) { e.done(e("Acos", {e.in()})); }},
    Rule{"atan", Width::wide, [](Emit& e) { e.done(e("Atan", {e.in()})); }},
    Rule{"sinh", Width::wide, [](Emit& e) { e.done(e("Sinh", {e.in()})); }},
    Rule{"cosh", Width::wide, [](Emit& e) { e.done(e("Cosh", {e.in()})); }},
    Rule{"asinh", Width::wide, [](Emit& e) { e.done(e("Asinh", {e.in()})); }},
    Rule{"acosh", Width::wide, [](Emit& e) { e.done(e("Acosh", {e.in()})); }},
    Rule{"atanh", Width::wide, [](Emit& e) { e.done(e("Atanh", {e.in()})); }},
    Rule{"log10", Width::wide,
         [](Emit& e) {
           e.done(e("Div", {e("Log", {e.in()}), e.constant(2.30258509299404568402)}));
         }},
    Rule{"hardshrink", Width::same,
         [](Emit& e) {
           const std::string x = e.in();
           const std::string inside = e("LessOrEqual", {e("Abs", {x}), a(e)});
           e.done(e("Where", {inside, e.constant(0), x}));
         }},
    Rule{"softshrink", Width::same,
         [](Emit& e) {
           const std::string x = e.in(), far = e("Sub", {e("Abs", {x}), a(e)});
           e.done(e("Mul", {e("Sign", {x}), e("Relu", {far})}));
         }},
    Rule{"clamp", Width::both,
         [](Emit& e) {
           e.done(e("Clip", {e.in(), a(e), b(e)}));
         }},
    Rule{"log1p", Width::wide,
         [](Emit& e) {
           e.done(e("Log", {e("Add", {e.in(), e.constant(1)})}));
         }},
    Rule{"expm1", Width::wide,
         [](Emit& e) {
           e.done(e("Sub", {e("Exp", {e.in()}), e.constant(1)}));
         }},
    Rule{"log2", Width::wide,
         [](Emit& e) {
           e.done(e("Div", {e("Log", {e.in()}), e.constant(kLn2)}));
         }},
    Rule{"exp2", Width::wide,
         [](Emit& e) {
           e.done(e("Pow", {e.constant(2), e.in()}));
         }},
    Rule{"erf", Width::wide, [](Emit& e) { e.done(e("Erf", {e.in()})); }},
    Rule{"erfc", Width::wide,
         [](Emit& e) {
           e.done(e("Sub", {e.constant(1), e("Erf", {e.in()})}));
         }},
    Rule{"nan_to_num", Width::wide,
         [](Emit& e) {
           const std::string x = e.in();
           const std::string infinite =
               e("Where", {e("Greater", {x, e.constant(0)}), b(e), e.constant(e.number("c"))});
           const std::string finite = e("Where", {is_nan(e, x), a(e), x});
           e.done(e("Where", {is_inf(e, x), infinite, finite}));
         }},
    // ---- Rounding and tests ----
    Rule{"floor", Width::same, [](Emit& e) { step(e, "Floor"); }},
    Rule{"ceil", Width::same, [](Emit& e) { step(e, "Ceil"); }},
    Rule{"round", Width::same, [](Emit& e) { step(e, "Round"); }},
    Rule{"trunc", Width::same,
         [](Emit& e) {
           if (!is_floating(e.dtype)) return e.done(e.in());
           const std::string x = e.in();
           e.done(e("Mul", {e("Sign", {x}), e("Floor", {e("Abs", {x})})}));
         }},
    Rule{"sign", Width::whole, [](Emit& e) { e.done(e("Sign", {e.in()})); }},
    Rule{"isnan", Width::both, [](Emit& e) { e.done(is_nan(e, e.in()), boolean); }},
    Rule{"isinf", Width::both, [](Emit& e) { e.done(is_inf(e, e.in()), boolean); }},
    Rule{"isfinite", Width::both,
         [](Emit& e) {
           const std::string x = e.in();
           e.done(e("Not", {e("Or", {is_nan(e, x), is_inf(e, x)})}), boolean);
         }},
    Rule{"logical_not", Width::whole,
         [](Emit& e) {
           e.done(e("Equal", {e.in(), e.constant(0)}), boolean);
         }},
    // ---- Further activations ----
    Rule{"hardtanh", Width::same,
         [](Emit& e) {
           e.done(e("Clip", {e.in(), a(e), b(e)}));
         }},
    Rule{"hardswish", Width::wide, [](Emit& e) { e.done(e("HardSwish", {e.in()})); }},
    Rule{"hardsigmoid", Width::wide,
         [](Emit& e) {
           e.done(e("HardSigmoid", {e.in()}, {{"alpha", 1.f / 6}, {"beta", 0.5f}}));
         }},
    Rule{"softsign", Width::wide, [](Emit& e) { e.done(e("Softsign", {e.in()})); }},
    Rule{"mish", Width::wide,
         [](Emit& e) {
           const std::string x = e.in();
           e.done(e("Mul", {x, e("Tanh", {e("Softplus", {x})})}));
         }},
    Rule{"celu", Width::wide,
         [](Emit& e) {
           const std::string alpha = a(e);
           e.done(e("Mul", {alpha, e("Elu", {e("Div", {e.in(), alpha})})}));
         }},
    Rule{"selu", Width::same, [](Emit& e) { e.done(e("Selu", {e.in()})); }},
    Rule{"logsigmoid", Width::wide,
         [](Emit& e) {
           e.done(e("Neg", {e("Softplus", {e("Neg", {e.in()})})}));
         }},
    Rule{"threshold", Width::same,
         [](Emit& e) {
           const std::string x = e.in();
           e.done(e("Where", {e("LessOrEqual", {x, a(e)}), b(e), x}));
         }},
    // ---- A tensor and a number ----
    Rule{"add_number", Width::both,
         [](Emit& e) {
           e.done(e("Add", {e.in(), a(e)}));
         }},
    Rule{"mul_number", Width::both,
         [](Emit& e) {
           e.done(e("Mul", {e.in(), a(e)}));
         }},
    Rule{"div_number", Width::wide,
         [](Emit& e) {
           e.done(e("Div", {e.in(), a(e)}));
         }},
    Rule{"pow_number", Width::wide,
         [](Emit& e) {
           e.done(e("Pow", {e.in(), a(e)}));
         }},
    Rule{"number_sub", Width::both,
         [](Emit& e) {
           e.done(e("Sub", {a(e), e.in()}));
         }},
    Rule{"number_div", Width::wide,
         [](Emit& e) {
           e.done(e("Div", {a(e), e.in()}));
         }},
    // ---- Two operands ----
    Rule{"add", Width::whole,
         [](Emit& e) {
           e.done(e("Add", {e.in(0), e.in(1)}));
         }},
    Rule{"sub", Width::whole,
         [](Emit& e) {
           e.done(e("Sub", {e.in(0), e.in(1)}));
         }},
    Rule{"mul", Width::whole,
         [](Emit& e) {
           e.done(e("Mul", {e.in(0), e.in(1)}));
         }},
    Rule{"div", Width::same,
         [](Emit& e) {
           e.done(e("Div", {e.in(0), e.in(1)}));
         }},
    Rule{"pow", Width::both,
         [](Emit& e) {
           e.done(e("Pow", {e.in(0), e.in(1)}));
         }},
    Rule{"minimum", Width::whole,
         [](Emit& e) {
           e.done(e("Min", {e.in(0), e.in(1)}));
         }},
    Rule{"maximum", Width::whole,
         [](Emit& e) {
           e.done(e("Max", {e.in(0), e.in(1)}));
         }},
    Rule{"swiglu", Width::wide,
         [](Emit& e) {
           const std::string x = e.in(0);
           e.done(e("Mul", {e("Mul", {x, logistic(e, x)}), e.in(1)}));
         }},
    Rule{"atan2", Width::wide,
         [](Emit& e) {
           // atan(y/x), half a turn further if x < 0; y/x is NaN at the origin.
           const std::string y = e.in(0), x = e.in(1), zero = e.constant(0);
           const std::string turn =
               e("Where", {e("Less", {y, zero}), e.constant(-kPi), e.constant(kPi)});
           const std::string further = e("Where", {e("Less", {x, zero}), turn, zero});
           const std::string angle = e("Add", {e("Atan", {e("Div", {y, x})}), further});
           const std::string origin = e("And", {e("Equal", {x, zero}), e("Equal", {y, zero})});
           e.done(e("Where", {origin, zero, angle}));
         }},
    Rule{"hypot", Width::wide,
         [](Emit& e) {
           const std::string x = e.in(0), y = e.in(1);
           e.done(e("Sqrt", {e("Add", {e("Mul", {x, x}), e("Mul", {y, y})})}));
         }},
    Rule{"fmod", Width::whole, [](Emit& e) { e.done(remainder(e)); }},
    Rule{"remainder", Width::whole,
         [](Emit& e) {
           // A remainder whose sign differs from the divisor's is moved by one divisor.
           const std::string m = remainder(e), zero = e.constant(0);
           const std::string differ = e("Xor", {e("Less", {m, zero}), e("Less", {e.in(1), zero})});
           const std::string moves = e("And", {differ, e("Not", {e("Equal", {m, zero})})});
           e.done(e("Where", {moves, e("Add", {m, e.in(1)}), m}));
         }},
    Rule{"logaddexp", Width::wide,
         [](Emit& e) {
           const std::string x = e.in(0), y = e.in(1);
           const std::string apart = e("Neg", {e("Abs", {e("Sub", {x, y})})});
           e.done(e("Add", {e("Max", {x, y}), e("Softplus", {apart})}));
         }},
    Rule{"prelu", Width::same,
         [](Emit& e) {
           e.done(e("PRelu", {e.in(0), e.in(1)}));
         }},
    // ---- Three operands ----
    Rule{"lerp", Width::wide,
         [](Emit& e) {
           const std::string x = e.in(0);
           e.done(e("Add", {x, e("Mul", {e.in(2), e("Sub", {e.in(1), x})})}));
         }},
    Rule{"addcmul", Width::both,
         [](Emit& e) {
           const std::string product = e("Mul", {e("Mul", {a(e), e.in(1)}), e.in(2)});
           e.done(e("Add", {e.in(0), product}));
         }},
    Rule{"clamp_between", Width::whole,
         [](Emit& e) {
           e.done(e("Min", {e("Max", {e.in(0), e.in(1)}), e.in(2)}));
         }},
    // ---- Comparisons, logic and choice ----
    Rule{"logical_and", Width::whole, [](Emit& e) { logical(e, "And"); }},
    Rule{"logical_or", Width::whole, [](Emit& e) { logical(e, "Or"); }},
    Rule{"logical_xor", Width::whole, [](Emit& e) { logical(e, "Xor"); }},
    Rule{"eq", Width::whole, [](Emit& e) { compare(e, "Equal"); }},
    Rule{"ne", Width::whole,
         [](Emit& e) {
           e.done(e("Not", {e("Equal", {e.in(0), e.in(1)})}), boolean);
         }},
    Rule{"lt", Width::whole, [](Emit& e) { compare(e, "Less"); }},
    Rule{"le", Width::whole, [](Emit& e) { compare(e, "LessOrEqual"); }},
    Rule{"gt", Width::whole, [](Emit& e) { compare(e, "Greater"); }},
    Rule{"ge", Width::whole, [](Emit& e) { compare(e, "GreaterOrEqual"); }},
    Rule{"isclose", Width::wide,
         [](Emit& e) {
           const std::string x = e.in(0), y = e.in(1), apart = e("Sub", {x, y});
           const std::string bound = e("Add", {e("Abs", {e("Mul", {y, a(e)})}), b(e)});
           const std::string near = e("And", {e("LessOrEqual", {e("Abs", {apart}), bound}),
                                              e("Not", {e("IsInf", {apart})})});
           const std::string close = e("Or", {e("Equal", {x, y}), near});
           const std::string nan = e("And", {e("IsNaN", {x}), e("IsNaN", {y})});
           e.done(e.number("c") == 0 ? close : e("Or", {close, nan}), boolean);
         }},
    Rule{"where", Width::whole,
         [](Emit& e) { e.done(e("Where", {e.tensor("condition"), e.in(0), e.in(1)})); }},
    Rule{"cast", Width::same, [](Emit& e) { e.done(e.in()); }},
};

}  // namespace

std::string gelu_tanh(Emit& e, const std::string& x) {
  // x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)), as in kernels/math/unary.h.
  const std::string square = e("Mul", {x, x});
  const std::string cubic = e("Add", {e("Mul", {square, e.constant(0.044715)}), e.constant(1)});
  const std::string inner = e("Mul", {e("Mul", {x, e.constant(1.59576912160573071176)}), cubic});
  return e("Mul", {x, logistic(e, inner)});
}

std::span<const Rule> elementwise_rules() { return kRules; }

}  // namespace firn::io::onnx
