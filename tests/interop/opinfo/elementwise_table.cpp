// The operations of firn/ops/elementwise.h as PyTorch's.
#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

const Tensor& x(A a) { return a.tensor("input"); }
Tensor other(A a) { return a.tensor("other"); }

template <Tensor (*f)(const Tensor&)>
Results unary(A a) {
  return {f(x(a))};
}
template <Tensor (*f)(const Tensor&, const Tensor&)>
Results binary(A a) {
  return {f(x(a), other(a))};
}

Results rounded(A a) {
  if (a.number("decimals", 0) != 0) throw Refused("argument 'decimals' is not 0");
  return {round(x(a))};
}

std::optional<double> given(A a, const char* name) {
  return a.has(name) ? std::optional<double>(a.number(name)) : std::nullopt;
}

Results interpolated(A a) {
  if (a.is<Tensor>("weight")) return {lerp(x(a), a.tensor("end"), a.tensor("weight"))};
  return {lerp(x(a), a.tensor("end"), a.number("weight"))};
}

Results filled(A a) {
  if (!a.is<Tensor>("value")) return {masked_fill(x(a), a.tensor("mask"), a.number("value"))};
  return {masked_fill(x(a), a.tensor("mask"), a.tensor("value"))};
}

}  // namespace

std::vector<Entry> elementwise_entries() {
  return {
      {"log1p", "input", Sums::no, unary<log1p>},
      {"expm1", "input", Sums::no, unary<expm1>},
      {"log2", "input", Sums::no, unary<log2>},
      {"exp2", "input", Sums::no, unary<exp2>},
      {"tan", "input", Sums::no, unary<tan>},
      {"asin", "input", Sums::no, unary<asin>},
      {"acos", "input", Sums::no, unary<acos>},
      {"atan", "input", Sums::no, unary<atan>},
      {"sinh", "input", Sums::no, unary<sinh>},
      {"cosh", "input", Sums::no, unary<cosh>},
      {"asinh", "input", Sums::no, unary<asinh>},
      {"acosh", "input", Sums::no, unary<acosh>},
      {"atanh", "input", Sums::no, unary<atanh>},
      {"log10", "input", Sums::no, unary<log10>},
      {"nn.functional.relu6", "input inplace?", Sums::no, unary<relu6>},
      {"nn.functional.tanhshrink", "input", Sums::no, unary<tanhshrink>},
      {"nn.functional.hardshrink", "input lambd", Sums::no,
       [](A a) -> Results { return {hardshrink(x(a), a.number("lambd", 0.5))}; }},
      {"nn.functional.softshrink", "input lambd", Sums::no,
       [](A a) -> Results { return {softshrink(x(a), a.number("lambd", 0.5))}; }},
      {"nn.functional.glu", "input dim", Sums::no,
       [](A a) -> Results { return {glu(x(a), a.integer("dim", -1))}; }},
      {"nn.functional.normalize", "input p dim eps", Sums::yes,
       [](A a) -> Results {
         if (a.number("p", 2) != 2) throw Refused("argument 'ord' is not 2");
         return {normalize(x(a), a.integer("dim", 1), a.number("eps", 1e-12))};
       }},
      {"erf", "input", Sums::no, unary<erf>},
      {"erfc", "input", Sums::no, unary<erfc>},
      {"nan_to_num", "input nan posinf neginf", Sums::no,
       [](A a) -> Results {
         return {nan_to_num(x(a), a.number("nan", 0), given(a, "posinf"), given(a, "neginf"))};
       }},
      {"floor", "input", Sums::no, unary<floor>},
      {"ceil", "input", Sums::no, unary<ceil>},
      {"round", "input decimals", Sums::no, rounded},
      {"round/decimals_0", "input decimals", Sums::no, rounded},
      {"trunc", "input", Sums::no, unary<trunc>},
      {"sign", "input", Sums::no, unary<sign>},
      {"isnan", "input", Sums::no, unary<isnan>},
      {"isinf", "input", Sums::no, unary<isinf>},
      {"isfinite", "input", Sums::no, unary<isfinite>},
      {"logical_not", "input", Sums::no, unary<logical_not>},
      {"bitwise_not", "input", Sums::no, unary<bitwise_not>},
      {"nn.functional.hardtanh", "input min_val max_val inplace?", Sums::no,
       [](A a) -> Results {
         return {hardtanh(x(a), a.number("min_val", -1), a.number("max_val", 1))};
       }},
      {"nn.functional.hardswish", "input inplace?", Sums::no, unary<hardswish>},
      {"nn.functional.hardsigmoid", "input inplace?", Sums::no, unary<hardsigmoid>},
      {"nn.functional.softsign", "input", Sums::no, unary<softsign>},
      {"nn.functional.mish", "input inplace?", Sums::no, unary<mish>},
      {"nn.functional.celu", "input alpha inplace?", Sums::no,
       [](A a) -> Results { return {celu(x(a), a.number("alpha", 1))}; }},
      {"nn.functional.selu", "input inplace?", Sums::no, unary<selu>},
      {"nn.functional.logsigmoid", "input", Sums::no, unary<logsigmoid>},
      {"nn.functional.threshold", "input threshold value inplace?", Sums::no,
       [](A a) -> Results { return {threshold(x(a), a.number("threshold"), a.number("value"))}; }},
      {"nn.functional.prelu", "input weight", Sums::no,
       [](A a) -> Results { return {prelu(x(a), a.tensor("weight"))}; }},
      {"atan2", "input other", Sums::no, binary<atan2>},
      {"hypot", "input other", Sums::no, binary<hypot>},
      {"logaddexp", "input other", Sums::no, binary<logaddexp>},
      {"fmod", "input other", Sums::no, binary<fmod>},
      {"remainder", "input other", Sums::no, binary<remainder>},
      {"logical_and", "input other", Sums::no, binary<logical_and>},
      {"logical_or", "input other", Sums::no, binary<logical_or>},
      {"logical_xor", "input other", Sums::no, binary<logical_xor>},
      {"bitwise_and", "input other", Sums::no, binary<bitwise_and>},
      {"bitwise_or", "input other", Sums::no, binary<bitwise_or>},
      {"bitwise_xor", "input other", Sums::no, binary<bitwise_xor>},
      {"lerp", "input end weight", Sums::no, interpolated},
      {"addcmul", "input a b value", Sums::no,
       [](A a) -> Results {
         return {addcmul(x(a), a.tensor("a"), a.tensor("b"), a.number("value", 1))};
       }},
      {"masked_fill", "input mask value", Sums::no, filled},
  };
}

}  // namespace firn::interop
