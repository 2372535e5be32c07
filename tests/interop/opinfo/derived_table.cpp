// Joins, divisions, sums and differences, and operations that are said in firn by another name.
#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

const Tensor& x(A a) { return a.tensor("input"); }
const Tensor& other(A a) { return a.tensor("other"); }

template <Tensor (*f)(std::span<const Tensor>)>
Results joined(A a) {
  return {f(a.tensors("tensors"))};
}

/// PyTorch's hsplit, vsplit and dsplit divide along an axis of their own.
Results divided(A a, const char* name, std::int64_t axis) {
  if (a.is<std::int64_t>(name)) return tensor_split(x(a), a.integer(name), axis);
  return tensor_split(x(a), a.list(name), axis);
}

Results sharded_anywhere(A a) {
  const char* const name = "indices_or_sections";
  const std::int64_t axis = a.integer("dim", 0);
  if (!a.is<Tensor>(name)) return divided(a, name, axis);
  const auto numbers = a.tensor(name).to_vector<std::int64_t>();
  if (a.tensor(name).rank() == 0) return tensor_split(x(a), numbers.at(0), axis);
  return tensor_split(x(a), numbers, axis);
}

Results differences(A a) {
  const std::int64_t axis = a.integer("dim", -1);
  if (a.integer("n", 1) == 0) return {x(a)};  // PyTorch then joins nothing
  std::vector<Tensor> parts;
  if (a.has("prepend")) parts.push_back(a.tensor("prepend"));
  parts.push_back(x(a));
  if (a.has("append")) parts.push_back(a.tensor("append"));
  return {diff(parts.size() > 1 ? cat(parts, axis) : x(a), a.integer("n", 1), axis)};
}

Axes axes_of(A a) {
  Axes out;
  for (const std::int64_t v : a.list("dim")) out.push_back(v);
  return out;
}

Results integral(A a) {
  const Tensor& y = a.tensor("y");
  const std::int64_t axis = a.integer("dim", -1);
  if (!a.has("x")) return {trapezoid(y, a.number("dx", 1), axis)};
  return {trapezoid(y, a.tensor("x"), axis)};
}

Results close(A a) {
  return {isclose(x(a), other(a),
                  {.rtol = a.number("rtol", 1e-5),
                   .atol = a.number("atol", 1e-8),
                   .equal_nan = a.flag("equal_nan", false)})};
}

Results diagonals(A a, const char* offset, const char* first, const char* second, bool last) {
  return {diagonal(x(a), a.integer(offset, 0), a.integer(first, last ? -2 : 0),
                   a.integer(second, last ? -1 : 1))};
}

Results turned(A a) { return {x(a).rank() < 2 ? x(a) : transpose(x(a), 0, 1)}; }

Results subtracted_from(A a) {
  const double alpha = a.number("alpha", 1);
  if (a.is<Tensor>("other")) return {sub(other(a), alpha == 1 ? x(a) : mul(x(a), alpha))};
  return {a.number("other") - mul(x(a), alpha)};
}

Dims dims(A a, const char* name) {
  Dims out;
  for (const std::int64_t v : a.list(name)) out.push_back(v);
  return out;
}

}  // namespace

std::vector<Entry> derived_entries() {
  return {
      {"hstack", "*tensors", Sums::no, joined<hstack>},
      {"vstack", "*tensors", Sums::no, joined<vstack>},
      {"dstack", "*tensors", Sums::no, joined<dstack>},
      {"column_stack", "*tensors", Sums::no, joined<column_stack>},
      {"unbind", "input dim", Sums::no,
       [](A a) -> Results { return unbind(x(a), a.integer("dim", 0)); }},
      {"unbind_copy", "input dim", Sums::no,
       [](A a) -> Results { return unbind(x(a), a.integer("dim", 0)); }},
      {"tensor_split", "input indices_or_sections dim", Sums::no, sharded_anywhere},
      {"hsplit", "input parts", Sums::no,
       [](A a) -> Results { return divided(a, "parts", x(a).rank() == 1 ? 0 : 1); }},
      {"vsplit", "input parts", Sums::no, [](A a) -> Results { return divided(a, "parts", 0); }},
      {"dsplit", "input parts", Sums::no, [](A a) -> Results { return divided(a, "parts", 2); }},
      {"unsafe_chunk", "input chunks dim", Sums::no,
       [](A a) -> Results { return chunk(x(a), a.integer("chunks"), a.integer("dim", 0)); }},
      {"split_with_sizes_copy", "input sizes dim", Sums::no,
       [](A a) -> Results { return split(x(a), a.list("sizes"), a.integer("dim", 0)); }},
      {"unflatten", "input dim sizes", Sums::no,
       [](A a) -> Results { return {unflatten(x(a), a.integer("dim"), dims(a, "sizes"))}; }},
      {"diag_embed", "input offset dim1 dim2", Sums::no,
       [](A a) -> Results {
         return {diag_embed(x(a), a.integer("offset", 0), a.integer("dim1", -2),
                            a.integer("dim2", -1))};
       }},
      {"trace", "input", Sums::yes, [](A a) -> Results { return {trace(x(a))}; }},
      {"diff", "input n dim prepend append", Sums::no, differences},
      {"nansum", "input dim keepdim", Sums::yes,
       [](A a) -> Results { return {nansum(x(a), axes_of(a), a.flag("keepdim", false))}; }},
      {"nanmean", "input dim keepdim", Sums::yes,
       [](A a) -> Results { return {nanmean(x(a), axes_of(a), a.flag("keepdim", false))}; }},
      {"trapezoid", "y x dx dim", Sums::yes, integral},
      {"trapz", "y x dx dim", Sums::yes, integral},
      {"cov", "input correction fweights! aweights!", Sums::yes,
       [](A a) -> Results { return {cov(x(a), a.integer("correction", 1))}; }},
      {"corrcoef", "input", Sums::yes, [](A a) -> Results { return {corrcoef(x(a))}; }},
      {"kron", "input other", Sums::yes, [](A a) -> Results { return {kron(x(a), other(a))}; }},
      {"isclose", "input other rtol atol equal_nan", Sums::no, close},
      {"inner", "input other", Sums::yes,
       [](A a) -> Results {
         if (x(a).rank() == 0 || other(a).rank() == 0) return {mul(x(a), other(a))};
         return {tensordot(x(a), other(a), Axes{-1}, Axes{-1})};
       }},
      {"linalg.multi_dot", "*tensors", Sums::yes,
       [](A a) -> Results {
         Tensor y = a.tensors("tensors").at(0);
         for (std::size_t i = 1; i < a.tensors("tensors").size(); ++i)
           y = matmul(y, a.tensors("tensors")[i]);
         return {y};
       }},
      {"msort", "input", Sums::no, [](A a) -> Results { return {sort(x(a), 0).values}; }},
      {"expand_as", "input other", Sums::yes,
       [](A a) -> Results { return {expand(x(a), other(a).shape())}; }},
      {"expand_copy", "input *sizes", Sums::yes,
       [](A a) -> Results { return {expand(x(a), dims(a, "sizes"))}; }},
      {"reshape_as", "input other", Sums::no,
       [](A a) -> Results { return {reshape(x(a), other(a).shape())}; }},
      {"view_as", "input other", Sums::no,
       [](A a) -> Results { return {reshape(x(a), other(a).shape())}; }},
      {"ravel", "input", Sums::no, [](A a) -> Results { return {flatten(x(a))}; }},
      {"t", "input", Sums::no, turned},
      {"t_copy", "input", Sums::no, turned},
      {"permute_copy", "input dims", Sums::no,
       [](A a) -> Results { return {permute(x(a), dims(a, "dims"))}; }},
      {"transpose_copy", "input dim0 dim1", Sums::no,
       [](A a) -> Results { return {transpose(x(a), a.integer("dim0"), a.integer("dim1"))}; }},
      {"unsqueeze_copy", "input dim", Sums::no,
       [](A a) -> Results { return {unsqueeze(x(a), a.integer("dim"))}; }},
      {"narrow_copy", "input dim start length", Sums::no,
       [](A a) -> Results {
         return {narrow(x(a), a.integer("dim"), a.integer("start"), a.integer("length"))};
       }},
      {"diagonal_copy", "input offset dim1 dim2", Sums::no,
       [](A a) -> Results { return diagonals(a, "offset", "dim1", "dim2", false); }},
      {"linalg.diagonal", "input offset dim1 dim2", Sums::no,
       [](A a) -> Results { return diagonals(a, "offset", "dim1", "dim2", true); }},
      {"rsub", "input other alpha", Sums::no, subtracted_from},
      {"positive", "input", Sums::no, [](A a) -> Results { return {clone(x(a))}; }},
      {"nn.functional.softmin", "input dim", Sums::no,
       [](A a) -> Results { return {softmax(neg(x(a)), a.integer("dim"))}; }},
      {"nn.functional.relu6", "input", Sums::no,
       [](A a) -> Results { return {hardtanh(x(a), 0, 6)}; }},
      {"nn.functional.tanhshrink", "input", Sums::no,
       [](A a) -> Results { return {sub(x(a), tanh(x(a)))}; }},
  };
}

}  // namespace firn::interop
