// Rules of elementwise operations: one row a formula of kernels/math/unary.h and binary.h.
#include <array>

#include "io/onnx/rules.h"

namespace firn::io::onnx {
namespace {

std::string logistic(Emit& e, const std::string& x) { return e("Sigmoid", {x}); }
std::string a(Emit& e) { return e.constant(e.number("a")); }
float as_float(double v) { return static_cast<float>(v); }

/// A comparison: bool, whatever the operands.
void compare(Emit& e, const char* type) { e.done(e(type, {e.in(0), e.in(1)}), boolean); }

constexpr double kInvSqrt2 = 0.70710678118654752440;

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
    Rule{"clamp", Width::both,
         [](Emit& e) {
           e.done(e("Clip", {e.in(), a(e), e.constant(e.number("b"))}));
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
    Rule{"pow", Width::wide,
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
    // ---- Comparisons and choice ----
    Rule{"eq", Width::whole, [](Emit& e) { compare(e, "Equal"); }},
    Rule{"ne", Width::whole,
         [](Emit& e) {
           e.done(e("Not", {e("Equal", {e.in(0), e.in(1)})}), boolean);
         }},
    Rule{"lt", Width::whole, [](Emit& e) { compare(e, "Less"); }},
    Rule{"le", Width::whole, [](Emit& e) { compare(e, "LessOrEqual"); }},
    Rule{"gt", Width::whole, [](Emit& e) { compare(e, "Greater"); }},
    Rule{"ge", Width::whole, [](Emit& e) { compare(e, "GreaterOrEqual"); }},
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
