// einsum() and the products beside it. Those named composed.* have their samples in
// compositions.py.
#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

const Tensor& x(A a) { return a.tensor("input"); }

Dims dims(A a, const char* name) {
  Dims out;
  for (const std::int64_t v : a.list(name)) out.push_back(v);
  return out;
}

template <Tensor (*f)(const Tensor&, const Tensor&)>
Results of_two(A a) {
  return {f(x(a), a.tensor("other"))};
}

template <Tensor (*f)(const Tensor&, const Tensor&, const Tensor&, const AddmmOptions&)>
Results added(A a) {
  return {f(x(a), a.tensor("left"), a.tensor("right"),
            {.beta = a.number("beta", 1), .alpha = a.number("alpha", 1)})};
}

Results summed(A a) { return {einsum(a.text("equation", ""), a.tensors("operands"))}; }

}  // namespace

std::vector<Entry> product_entries() {
  return {
      {"einsum", "operands equation", Sums::yes, summed},
      {"composed.einsum", "operands equation", Sums::yes, summed},
      {"tensordot", "input other dims", Sums::yes,
       [](A a) -> Results { return {tensordot(x(a), a.tensor("other"), a.integer("dims"))}; }},
      {"composed.tensordot", "input other axes other_axes", Sums::yes,
       [](A a) -> Results {
         return {tensordot(x(a), a.tensor("other"), dims(a, "axes"), dims(a, "other_axes"))};
       }},
      {"bmm", "input other", Sums::yes, of_two<bmm>},
      {"dot", "input other", Sums::yes, of_two<dot>},
      {"vdot", "input other", Sums::yes, of_two<dot>},
      {"outer", "input other", Sums::no, of_two<outer>},
      {"linalg.vecdot", "input other dim", Sums::yes,
       [](A a) -> Results { return {vecdot(x(a), a.tensor("other"), a.integer("dim", -1))}; }},
      {"addmm", "input left right beta alpha", Sums::yes, added<addmm>},
      {"addmm/decomposed", "input left right beta alpha", Sums::yes, added<addmm>},
      {"baddbmm", "input left right beta alpha", Sums::yes, added<baddbmm>},
      {"nn.functional.bilinear", "input other weight bias", Sums::yes,
       [](A a) -> Results {
         return {bilinear(x(a), a.tensor("other"), a.tensor("weight"), a.tensor_or_none("bias"))};
       }},
  };
}

}  // namespace firn::interop
