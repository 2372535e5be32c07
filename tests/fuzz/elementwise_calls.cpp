// Elementwise operations and reductions, every one in the lists of kernels/math.
#include "fuzz/draw.h"
#include "kernels/math/binary.h"
#include "kernels/math/unary.h"

namespace fuzz {

using namespace firn;

namespace {

/// A shape that broadcasts with `shape`, mostly.
Shape broadcasting(Draw& d, const Shape& shape) {
  Shape other = shape;
  for (auto& n : other)
    if (d.chance(25)) n = 1;
  while (!other.empty() && d.chance(20)) other.erase(0);
  return other;
}
Tensor partner(Draw& d, const Tensor& t) {
  return d.chance(10) ? d.any()
                      : d.of(broadcasting(d, is_small(t) ? t.shape() : Shape{1}), t.dtype());
}

using Unary = Tensor (*)(const Tensor&);
using UnaryInPlace = Tensor& (*)(Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using BinaryInPlace = Tensor& (*)(Tensor&, const Tensor&);
using WithNumber = Tensor (*)(const Tensor&, double);
using WithNumberInPlace = Tensor& (*)(Tensor&, double);

template <Unary fn>
std::vector<Tensor> unary(Draw& d) {
  return {fn(d.any())};
}
template <UnaryInPlace fn>
std::vector<Tensor> unary_in_place(Draw& d) {
  Tensor x = d.any();
  const bool inside = d.chance(50);
  if (inside && is_floating(x.dtype()) && is_small(x)) x = mul(x, 1.0);
  return {fn(x)};
}
template <Binary fn>
std::vector<Tensor> binary(Draw& d) {
  const Tensor a = d.any(), b = partner(d, a);
  return {d.chance(50) ? fn(a, b) : fn(b, a)};
}
template <BinaryInPlace fn>
std::vector<Tensor> binary_in_place(Draw& d) {
  Tensor a = d.any();
  const Tensor b = partner(d, a);
  if (d.chance(50) && is_floating(a.dtype()) && is_small(a)) a = mul(a, 1.0);
  return {fn(a, b)};
}
template <WithNumber fn>
std::vector<Tensor> with_number(Draw& d) {
  const Tensor x = d.any();
  return {fn(x, d.chance(30) ? static_cast<double>(d.number("n", -3, 3)) : d.real("v"))};
}
template <WithNumberInPlace fn>
std::vector<Tensor> with_number_in_place(Draw& d) {
  Tensor x = d.any();
  return {fn(x, d.chance(30) ? static_cast<double>(d.number("n", -3, 3)) : d.real("v"))};
}

using Reduction = Tensor (*)(const Tensor&, const Axes&, bool);
template <Reduction fn>
std::vector<Tensor> reduction(Draw& d) {
  const Tensor x = d.small();
  const Axes axes = d.axes(x);
  return {fn(x, axes, d.flag("keepdims"))};
}

std::vector<Tensor> clamped(Draw& d) {
  Tensor x = d.any();
  const double low = d.real("low"), high = d.real("high");
  if (d.chance(50)) return {clamp(x, low, high)};
  return {clamp_(x, low, high)};
}

std::vector<Tensor> between(Draw& d) {
  const Tensor x = d.any(), low = partner(d, x), high = partner(d, x);
  const auto side = d.number("bounds", 0, 3);
  return {clamp(x, side == 1 ? Tensor() : low, side == 2 ? Tensor() : high)};
}

using WithTwo = Tensor (*)(const Tensor&, double, double);
using WithTwoInPlace = Tensor& (*)(Tensor&, double, double);
template <WithTwo fn, WithTwoInPlace in_place>
std::vector<Tensor> with_two(Draw& d) {
  Tensor x = d.any();
  const double p = d.real("p"), q = d.real("q");
  if (d.chance(50)) return {fn(x, p, q)};
  return {in_place(x, p, q)};
}

std::vector<Tensor> filled(Draw& d) {
  Tensor x = d.any();
  const Tensor mask = d.of(broadcasting(d, is_small(x) ? x.shape() : Shape{1}), boolean);
  const double value = d.chance(30) ? static_cast<double>(d.number("n", 0, 1)) : d.real("v");
  if (d.chance(50)) return {masked_fill(x, mask, value)};
  return {masked_fill_(x, mask, value)};
}

std::vector<Tensor> interpolated(Draw& d) {
  const Tensor a = d.any(), b = partner(d, a);
  if (d.chance(50)) return {lerp(a, b, d.real("weight"))};
  return {lerp(a, b, partner(d, a))};
}

std::vector<Tensor> numbers(Draw& d) {
  Tensor x = d.any();
  const double nan = d.real("nan");
  if (d.chance(50)) return {nan_to_num(x, nan)};
  return {nan_to_num_(x, nan, d.real("posinf"))};
}

std::vector<Tensor> complement(Draw& d) {
  Tensor x = d.any();
  if (d.chance(50)) return {bitwise_not(x)};
  return {bitwise_not_(x)};
}

std::vector<Tensor> chosen(Draw& d) {
  const Tensor a = d.any(), b = partner(d, a);
  const Tensor c = d.of(broadcasting(d, is_small(a) ? a.shape() : Shape{1}), boolean);
  return {where(c, a, b)};
}

}  // namespace

std::vector<Call> elementwise_calls() {
  std::vector<Call> calls = {
      {"clamp", clamped},
      {"where", chosen},
      {"clamp between", between},
      {"hardtanh", with_two<hardtanh, hardtanh_>},
      {"threshold", with_two<threshold, threshold_>},
      {"masked_fill", filled},
      {"lerp", interpolated},
      {"addcmul",
       [](Draw& d) -> std::vector<Tensor> {
         const Tensor x = d.any(), a = partner(d, x), b = partner(d, x);
         const double value =
             d.chance(30) ? static_cast<double>(d.number("n", -3, 3)) : d.real("v");
         return {addcmul(x, a, b, value)};
       }},
      {"nan_to_num", numbers},
      {"bitwise_not", complement},
      {"prelu", binary<prelu>},
      {"sum", reduction<sum>},
      {"mean", reduction<mean>},
      {"max", reduction<max>},
      {"min", reduction<min>},
      {"norm", reduction<norm>},
      {"var",
       [](Draw& d) -> std::vector<Tensor> {
         const Tensor x = d.small();
         const Axes axes = d.axes(x);
         const std::int64_t correction = d.number("correction", -1, 2);
         return {var(x, axes, correction, d.flag("keepdims"))};
       }},
      {"prod", reduction<prod>},
      {"any", reduction<any>},
      {"all", reduction<all>},
      {"logsumexp", reduction<logsumexp>},
      {"std",
       [](Draw& d) -> std::vector<Tensor> {
         const Tensor x = d.small();
         const Axes axes = d.axes(x);
         const std::int64_t correction = d.number("correction", -1, 2);
         return {firn::std(x, axes, correction, d.flag("keepdims"))};
       }},
      {"argmin",
       [](Draw& d) -> std::vector<Tensor> {
         const Tensor x = d.small();
         const std::int64_t axis = d.axis(x);
         return {argmin(x, axis, d.flag("keepdims"))};
       }},
      {"argmax",
       [](Draw& d) -> std::vector<Tensor> {
         const Tensor x = d.small();
         const std::int64_t axis = d.axis(x);
         return {argmax(x, axis, d.flag("keepdims"))};
       }},
      {"number - x",
       [](Draw& d) -> std::vector<Tensor> {
         const Tensor x = d.any();
         return {d.real("v") - x};
       }},
      {"number / x",
       [](Draw& d) -> std::vector<Tensor> {
         const Tensor x = d.any();
         return {d.real("v") / x};
       }},
  };
// clang-format off
#define FIRN_PLAIN(name, Op)                                   \
  calls.push_back({#name, unary<static_cast<Unary>(name)>});   \
  calls.push_back({#name "_", unary_in_place<static_cast<UnaryInPlace>(name##_)>});
#define FIRN_ONE(name, Op, p)                                             \
  calls.push_back({#name, with_number<static_cast<WithNumber>(name)>});   \
  calls.push_back({#name "_", with_number_in_place<static_cast<WithNumberInPlace>(name##_)>});
#define FIRN_QUESTION(name, Op) calls.push_back({#name, unary<static_cast<Unary>(name)>});
#define FIRN_NONE(...)
  FIRN_UNARY_OPS(FIRN_PLAIN, FIRN_ONE, FIRN_NONE, FIRN_QUESTION, FIRN_NONE)
#define FIRN_BINARY(name, Op) calls.push_back({#name, binary<static_cast<Binary>(name)>});
#define FIRN_WITH_NUMBER(name, Op)                                                         \
  FIRN_BINARY(name, Op)                                                                    \
  calls.push_back({#name " number", with_number<static_cast<WithNumber>(name)>});
  FIRN_BINARY_OPS(FIRN_BINARY, FIRN_WITH_NUMBER, FIRN_NONE)
#define FIRN_ARITHMETIC(name)                                                              \
  calls.push_back({#name "_", binary_in_place<static_cast<BinaryInPlace>(name##_)>});      \
  calls.push_back({#name " number", with_number<static_cast<WithNumber>(name)>});          \
  calls.push_back({#name "_ number", with_number_in_place<static_cast<WithNumberInPlace>(name##_)>});
  FIRN_ARITHMETIC(add)
  FIRN_ARITHMETIC(sub)
  FIRN_ARITHMETIC(mul)
  FIRN_ARITHMETIC(div)
  calls.push_back({"pow number", with_number<static_cast<WithNumber>(pow)>});
#undef FIRN_PLAIN
#undef FIRN_ONE
#undef FIRN_NONE
#undef FIRN_QUESTION
#undef FIRN_BINARY
#undef FIRN_WITH_NUMBER
#undef FIRN_ARITHMETIC
  // clang-format on
  return calls;
}

}  // namespace fuzz
