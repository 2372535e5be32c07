#include "ops/elementwise/symbolic.h"

#include <cmath>
#include <utility>

#include "firn/ops/elementwise.h"
#include "firn/ops/ops.h"

// A namespace of its own: argument-dependent lookup finds the functions of symbols here, and no
// others of these names.
namespace firn::ops::symbolic {
namespace {

/// A tensor or a number, as the V of a formula. Its operations are operations of firn.
struct Symbol {
  Tensor tensor;  ///< undefined: a number
  double number = 0;

  Symbol() = default;
  explicit Symbol(double n) : number(n) {}
  explicit Symbol(float n) : number(n) {}
  explicit Symbol(int n) : number(n) {}
  explicit Symbol(Tensor t) : tensor(std::move(t)) {}

  bool is_number() const { return !tensor.defined(); }
  /// Returns it as a tensor with the dtype and device of `other`, which is one.
  Tensor beside(const Symbol& other) const {
    return is_number() ? full({}, number, other.tensor.dtype(), other.tensor.device()) : tensor;
  }
};

/// The outcome of a comparison; `like` is one of the tensors that were compared.
struct Condition {
  Tensor holds;  ///< undefined: the outcome for two numbers
  Tensor like;
  bool value = false;
};

// ---- Arithmetic ----

Symbol operator-(const Symbol& a) {
  return a.is_number() ? Symbol(-a.number) : Symbol(neg(a.tensor));
}
Symbol operator+(const Symbol& a, const Symbol& b) {
  if (a.is_number() && b.is_number()) return Symbol(a.number + b.number);
  if (b.is_number()) return Symbol(add(a.tensor, b.number));
  return Symbol(a.is_number() ? add(b.tensor, a.number) : add(a.tensor, b.tensor));
}
Symbol operator-(const Symbol& a, const Symbol& b) {
  if (a.is_number() && b.is_number()) return Symbol(a.number - b.number);
  if (b.is_number()) return Symbol(sub(a.tensor, b.number));
  return Symbol(a.is_number() ? a.number - b.tensor : sub(a.tensor, b.tensor));
}
Symbol operator*(const Symbol& a, const Symbol& b) {
  if (a.is_number() && b.is_number()) return Symbol(a.number * b.number);
  if (b.is_number()) return Symbol(mul(a.tensor, b.number));
  return Symbol(a.is_number() ? mul(b.tensor, a.number) : mul(a.tensor, b.tensor));
}
Symbol operator/(const Symbol& a, const Symbol& b) {
  if (a.is_number() && b.is_number()) return Symbol(a.number / b.number);
  if (b.is_number()) return Symbol(div(a.tensor, b.number));
  return Symbol(a.is_number() ? a.number / b.tensor : div(a.tensor, b.tensor));
}

// ---- Choices ----

#define FIRN_COMPARE(sign, function, turned)                                     \
  [[maybe_unused]] Condition operator sign(const Symbol& a, const Symbol& b) {   \
    if (a.is_number() && b.is_number()) return {{}, {}, a.number sign b.number}; \
    if (b.is_number()) return {function(a.tensor, b.number), a.tensor};          \
    if (a.is_number()) return {turned(b.tensor, a.number), b.tensor};            \
    return {function(a.tensor, b.tensor), a.tensor};                             \
  }
FIRN_COMPARE(==, eq, eq)
FIRN_COMPARE(!=, ne, ne)
FIRN_COMPARE(<, lt, gt)
FIRN_COMPARE(<=, le, ge)
FIRN_COMPARE(>, gt, lt)
FIRN_COMPARE(>=, ge, le)
#undef FIRN_COMPARE

Symbol where(const Condition& c, const Symbol& a, const Symbol& b) {
  if (!c.holds.defined()) return c.value ? a : b;
  const Symbol like(c.like);
  return Symbol(firn::where(c.holds, a.beside(like), b.beside(like)));
}

// ---- Functions ----

#define FIRN_OF_ONE(name, of_number)                                                              \
  [[maybe_unused]] Symbol name(const Symbol& x) {                                                 \
    return x.is_number() ? Symbol(static_cast<double>(of_number)) : Symbol(firn::name(x.tensor)); \
  }
FIRN_OF_ONE(exp, std::exp(x.number))
FIRN_OF_ONE(expm1, std::expm1(x.number))
FIRN_OF_ONE(log, std::log(x.number))
FIRN_OF_ONE(log1p, std::log1p(x.number))
FIRN_OF_ONE(sqrt, std::sqrt(x.number))
FIRN_OF_ONE(rsqrt, 1 / std::sqrt(x.number))
FIRN_OF_ONE(tanh, std::tanh(x.number))
FIRN_OF_ONE(sin, std::sin(x.number))
FIRN_OF_ONE(cos, std::cos(x.number))
FIRN_OF_ONE(sinh, std::sinh(x.number))
FIRN_OF_ONE(cosh, std::cosh(x.number))
FIRN_OF_ONE(erf, std::erf(x.number))
FIRN_OF_ONE(erfc, std::erfc(x.number))
FIRN_OF_ONE(log2, std::log2(x.number))
FIRN_OF_ONE(exp2, std::exp2(x.number))
FIRN_OF_ONE(abs, std::fabs(x.number))
#undef FIRN_OF_ONE
Symbol rint(const Symbol& x) {
  return x.is_number() ? Symbol(std::rint(x.number)) : Symbol(firn::round(x.tensor));
}
/// The derivatives of these functions are safer than those of their formulas.
Symbol logistic(const Symbol& x) { return Symbol(firn::sigmoid(x.tensor)); }

#define FIRN_OF_TWO(name)                                                             \
  [[maybe_unused]] Symbol name(const Symbol& a, const Symbol& b) {                    \
    if (a.is_number() && b.is_number()) return Symbol(std::name(a.number, b.number)); \
    return Symbol(firn::name(a.beside(b), b.beside(a)));                              \
  }
FIRN_OF_TWO(fmod)
FIRN_OF_TWO(atan2)
FIRN_OF_TWO(hypot)
#undef FIRN_OF_TWO
Symbol pow(const Symbol& a, const Symbol& b) {
  if (a.is_number() && b.is_number()) return Symbol(std::pow(a.number, b.number));
  if (b.is_number()) return Symbol(firn::pow(a.tensor, b.number));
  return Symbol(firn::pow(a.beside(b), b.tensor));
}

math::Normal<Symbol> standard_normal(const Symbol& x) {
  return {Symbol(0.5) * erfc(Symbol(-0.70710678118654752440) * x),
          Symbol(0.39894228040143267794) * exp(Symbol(-0.5) * (x * x))};
}

/// Returns the tensor of a gradient; one that does not depend on its operands is a number.
Tensor tensor_of(const Symbol& s, const Tensor& dy) {
  return s.is_number() ? full(dy.shape(), s.number, dy.dtype(), dy.device()) : s.tensor;
}

template <class Op>
Tensor unary(const Tensor& dy, const Tensor& saved, math::Args args) {
  if constexpr (math::kHasGradient<Op> && !Op::flat) {
    return tensor_of(Op::df(Symbol(dy), Symbol(saved), args), dy);
  } else {
    return zeros_like(dy);
  }
}
template <class Op>
Tensor binary(int i, const Tensor& dy, const Tensor& a, const Tensor& b, math::Args args) {
  if constexpr (math::kHasGradient<Op>) {
    const Symbol s(dy), x(a), y(b);
    return tensor_of(i == 0 ? Op::dfa(s, x, y, args) : Op::dfb(s, x, y, args), dy);
  } else {
    return zeros_like(dy);
  }
}
template <class Op>
Tensor ternary(int i, const Tensor& dy, const Tensor& a, const Tensor& b, const Tensor& c,
               math::Args args) {
  const Symbol s(dy), x(a), y(b), z(c);
  return tensor_of(i == 0   ? Op::template df<0>(s, x, y, z, args)
                   : i == 1 ? Op::template df<1>(s, x, y, z, args)
                            : Op::template df<2>(s, x, y, z, args),
                   dy);
}

}  // namespace
}  // namespace firn::ops::symbolic

namespace firn {

Tensor ops::unary_gradient(math::UnaryOp op, const Tensor& dy, const Tensor& saved,
                           math::Args args) {
  switch (op) {
#define FIRN_CASE(name, Op, ...) \
  case math::UnaryOp::name:      \
    return symbolic::unary<math::Op>(dy, saved, args);
    FIRN_EACH_UNARY(FIRN_CASE)
#undef FIRN_CASE
  }
  return {};
}

Tensor ops::binary_gradient(math::BinaryOp op, int i, const Tensor& dy, const Tensor& a,
                            const Tensor& b, math::Args args) {
  switch (op) {
#define FIRN_CASE(name, Op)  \
  case math::BinaryOp::name: \
    return symbolic::binary<math::Op>(i, dy, a, b, args);
    FIRN_EACH_BINARY(FIRN_CASE)
#undef FIRN_CASE
  }
  return {};
}

Tensor ops::ternary_gradient(math::TernaryOp op, int i, const Tensor& dy, const Tensor& a,
                             const Tensor& b, const Tensor& c, math::Args args) {
  switch (op) {
#define FIRN_CASE(name, Op)   \
  case math::TernaryOp::name: \
    return symbolic::ternary<math::Op>(i, dy, a, b, c, args);
    FIRN_TERNARY_OPS(FIRN_CASE)
#undef FIRN_CASE
  }
  return {};
}

}  // namespace firn
