// Linear algebra. Those named composed.* have their samples in compositions.py: they do not depend
// on the signs of vectors.
#include "interop/opinfo/table.h"

namespace firn::interop {
namespace {

using A = const Arguments&;
using Results = std::vector<Tensor>;

const Tensor& x(A a) { return a.tensor("input"); }
Tensor transposed(const Tensor& t) { return transpose(t, -2, -1); }

template <Tensor (*f)(const Tensor&)>
Results of_one(A a) {
  return {f(x(a))};
}

Tensor chosen_triangle(A a) { return a.text("UPLO", "L") == "U" ? transposed(x(a)) : x(a); }

Results factored(A a) {
  if (a.text("mode", "reduced") != "reduced") throw Refused("argument 'mode' is not reduced");
  const auto [q, r] = linalg::qr(x(a));
  return {q, r};
}

Results normed(A a) {
  Axes axes;
  for (const std::int64_t v : a.list("dim")) axes.push_back(v);
  if (axes.empty()) axes = {-2, -1};
  const bool keeps = a.flag("keepdim", false);
  if (a.has("ord") && !a.is<std::string>("ord"))
    return {linalg::matrix_norm(x(a), a.number("ord"), axes, keeps)};
  const auto norm =
      a.text("ord", "fro") == "nuc" ? linalg::MatrixNorm::nuclear : linalg::MatrixNorm::frobenius;
  return {linalg::matrix_norm(x(a), norm, axes, keeps)};
}

}  // namespace

std::vector<Entry> linalg_entries() {
  return {
      {"linalg.cholesky", "input upper", Sums::yes,
       [](A a) -> Results {
         if (!a.flag("upper", false)) return {linalg::cholesky(x(a))};
         return {transposed(linalg::cholesky(transposed(x(a))))};
       }},
      {"linalg.qr", "input mode", Sums::yes, factored},
      {"linalg.svdvals", "input", Sums::yes, of_one<linalg::svdvals>},
      {"linalg.eigvalsh", "input UPLO", Sums::yes,
       [](A a) -> Results { return {linalg::eigvalsh(chosen_triangle(a))}; }},
      {"composed.svd", "input", Sums::yes,
       [](A a) -> Results {
         const auto [u, s, vt] = linalg::svd(x(a));
         return {matmul(u, transposed(u)), s, matmul(transposed(vt), vt),
                 matmul(u * unsqueeze(exp(-s), -2), vt)};
       }},
      {"composed.eigh", "input", Sums::yes,
       [](A a) -> Results {
         const auto [w, v] = linalg::eigh(x(a) + transposed(x(a)));
         return {w, matmul(v * unsqueeze(sin(w), -2), transposed(v))};
       }},
      {"linalg.det", "input", Sums::yes, of_one<linalg::det>},
      {"linalg.slogdet", "input", Sums::yes,
       [](A a) -> Results {
         const auto [sign, log] = linalg::slogdet(x(a));
         return {sign, log};
       }},
      {"linalg.inv", "input", Sums::yes, of_one<linalg::inverse>},
      {"linalg.solve", "input other left", Sums::yes,
       [](A a) -> Results {
         return {linalg::solve(x(a), a.tensor("other"), a.flag("left", true))};
       }},
      {"linalg.solve_triangular", "input other upper left unitriangular", Sums::yes,
       [](A a) -> Results {
         return {linalg::solve_triangular(x(a), a.tensor("other"),
                                          {.upper = a.flag("upper", false),
                                           .left = a.flag("left", true),
                                           .unitriangular = a.flag("unitriangular", false)})};
       }},
      {"composed.lstsq", "input other", Sums::yes,
       [](A a) -> Results { return {linalg::lstsq(x(a), a.tensor("other"))}; }},
      {"linalg.matrix_norm", "input ord dim keepdim dtype!", Sums::yes, normed},
      {"linalg.matrix_power", "input n", Sums::yes,
       [](A a) -> Results { return {linalg::matrix_power(x(a), a.integer("n"))}; }},
  };
}

}  // namespace firn::interop
