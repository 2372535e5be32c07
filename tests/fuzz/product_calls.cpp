// einsum() with equations right and wrong, and the products beside it.
#include <algorithm>

#include "fuzz/draw.h"

namespace fuzz {

using namespace firn;

namespace {

using Results = std::vector<Tensor>;

/// Letters for the axes of t, mostly; others at times, and signs that do not belong there.
std::string letters(Draw& d, int rank) {
  const bool dots = d.chance(15);
  std::string out;
  for (int i = dots ? static_cast<int>(d.below(rank + 1)) : 0; i < rank; ++i)
    out += static_cast<char>((d.chance(90) ? 'a' : 'A') + d.below(d.chance(90) ? 4 : 26));
  if (dots)
    out.insert(static_cast<std::size_t>(d.below(static_cast<std::int64_t>(out.size()) + 1)), "...");
  if (d.chance(4)) out += d.one_of({".", ",", "-", ">", "1", " ", "\n", "...", "->", "\xff"});
  return out;
}

Results summed(Draw& d) {
  std::vector<Tensor> operands;
  std::string equation;
  const DType dtype = d.chance(95) ? d.one_of({f32, f64, f16, bf16}) : d.dtype("dtype");
  // Axes have few sizes, so that letters mostly fit.
  const std::int64_t size = d.chance(70) ? 1 + d.below(3) : 0;
  const auto count = 1 + d.below(d.chance(90) ? 3 : 12);
  for (std::int64_t k = 0; k < count; ++k) {
    Shape shape = d.small_shape(0, d.chance(90) ? 4 : 8);
    if (size > 0)
      for (auto& n : shape) n = d.chance(90) ? size : 1;
    operands.push_back(d.chance(95) ? d.of(shape, dtype) : d.small());
    equation += (k > 0 ? "," : "") + letters(d, operands.back().rank());
  }
  if (d.chance(60)) {
    equation += "->";
    for (char c = 'a'; c < 'e'; ++c)
      if (equation.find(c) != std::string::npos && d.chance(50)) equation += c;
    if (d.chance(10)) equation += letters(d, 2);
  }
  d.say(" \"" + equation + "\"");
  return {einsum(equation, operands)};
}

Results dotted(Draw& d) {
  const DType dtype = d.one_of({f32, f64, f16, bf16});
  Shape shape = d.small_shape(0, d.chance(90) ? 4 : 8);
  if (d.chance(70))
    for (auto& n : shape) n = 3;
  const Tensor a = d.of(shape, dtype), b = d.chance(90) ? d.of(shape, dtype) : d.small();
  if (d.chance(30)) return {tensordot(a, b, d.number("axes", 0, 3))};
  const auto count = d.below(std::min(4, a.rank() + 1));
  Axes left, right;
  for (std::int64_t i = 0; i < count; ++i) {
    left.push_back(d.chance(95) ? i : d.integer(-4, 4));
    right.push_back(d.chance(95) ? i : d.integer(-4, 4));
  }
  d.say(" axes " + to_string(left) + " " + to_string(right));
  return {tensordot(a, b, left, right)};
}

Results multiplied(Draw& d) {
  const DType dtype = d.one_of({f32, f64, f16, bf16});
  const std::int64_t n = d.below(6), m = d.below(6), k = d.below(6), batch = d.below(4);
  switch (d.below(7)) {
    case 0:
      d.say(" outer");
      return {outer(d.of({n}, dtype), d.of({m}, dtype))};
    case 1:
      d.say(" dot");
      return {dot(d.of({n}, dtype), d.of({n}, dtype))};
    case 2: {
      d.say(" vecdot");
      const Tensor a = d.floating(), b = d.chance(80) ? d.of(a.shape(), a.dtype()) : d.floating();
      return {vecdot(a, b, d.axis(a))};
    }
    case 3:
      d.say(" bmm");
      return {bmm(d.of({batch, n, k}, dtype), d.of({batch, k, m}, dtype))};
    case 4: {
      d.say(" addmm");
      const Tensor c = d.of(d.chance(50) ? Shape{m} : Shape{n, m}, dtype);
      const double beta = d.real("beta"), alpha = d.real("alpha");
      return {addmm(c, d.of({n, k}, dtype), d.of({k, m}, dtype), {.beta = beta, .alpha = alpha})};
    }
    case 5: {
      d.say(" baddbmm");
      const Tensor c = d.of({batch, n, m}, dtype);
      return {baddbmm(c, d.of({batch, n, k}, dtype), d.of({batch, k, m}, dtype))};
    }
    default: {
      d.say(" bilinear");
      const Tensor bias = d.maybe(d.of({k}, dtype));
      return {
          bilinear(d.of({batch, n}, dtype), d.of({batch, m}, dtype), d.of({k, n, m}, dtype), bias)};
    }
  }
}

}  // namespace

std::vector<Call> product_calls() {
  const Call einsum{"einsum", summed};
  return {einsum, einsum, {"tensordot", dotted}, {"products", multiplied}};
}

}  // namespace fuzz
