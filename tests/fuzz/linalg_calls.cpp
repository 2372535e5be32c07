// Linear algebra: matrices of every shape, singular ones and ones that are not finite.
#include <cmath>

#include "fuzz/draw.h"

namespace fuzz {

using namespace firn;

namespace {

using Results = std::vector<Tensor>;

/// Mostly [..., m, n], and small: a large matrix takes long.
Tensor matrices(Draw& d, std::int64_t m, std::int64_t n) {
  if (d.chance(6)) {
    const Tensor t = d.small();
    if (t.rank() < 2 || (t.size(-1) <= 64 && t.size(-2) <= 64)) return t;
  }
  Shape shape = d.small_shape(0, d.chance(90) ? 2 : 6);
  shape.push_back(m);
  shape.push_back(n);
  const Tensor t = d.of(shape, d.chance(96) ? d.one_of({f32, f64}) : d.dtype("dtype"));
  if (!is_floating(t.dtype()) || t.rank() < 2 || !d.chance(80)) return t;
  // Whole numbers, so that some are singular, or what is drawn where that is finite.
  const Tensor finite = clamp(nan_to_num(t, 0, 9, -9), -9, 9);
  return d.chance(30) ? round(finite) : finite;
}

Results factors(Draw& d) {
  const std::int64_t m = d.below(7), n = d.chance(50) ? m : d.below(7);
  const Tensor x = matrices(d, m, n);
  switch (d.below(6)) {
    case 0: {
      d.say(" cholesky");
      return {linalg::cholesky(d.chance(80) && x.rank() >= 2 && is_floating(x.dtype())
                                   ? matmul(x, transpose(x, -2, -1))
                                   : x)};
    }
    case 1: {
      d.say(" qr");
      const auto [q, r] = linalg::qr(x);
      return {q, r};
    }
    case 2: {
      d.say(" svd");
      const auto [u, s, vt] = linalg::svd(x);
      return {u, s, vt};
    }
    case 3: {
      d.say(" eigh");
      const auto [w, v] = linalg::eigh(x);
      return {w, v};
    }
    case 4: {
      d.say(" matrix_norm");
      const Axes axes = d.chance(70) ? Axes{-2, -1} : d.axes(x);
      if (d.chance(30)) return {linalg::matrix_norm(x, linalg::MatrixNorm::nuclear, axes)};
      const double norm =
          d.chance(90) ? d.one_of({1.0, -1.0, 2.0, -2.0, HUGE_VAL}) : d.real("norm");
      return {linalg::matrix_norm(x, norm, axes, d.flag("keepdims"))};
    }
    default:
      d.say(" svdvals");
      return {linalg::svdvals(x), linalg::eigvalsh(x)};
  }
}

Results solutions(Draw& d) {
  const std::int64_t n = d.below(7);
  const Tensor a = matrices(d, n, n);
  Tensor b = d.of({n, d.below(4)}, a.dtype());
  if (d.chance(30)) b = d.of({n}, a.dtype());
  if (d.chance(20)) b = matrices(d, n, d.below(4));
  switch (d.below(7)) {
    case 0:
      d.say(" inverse");
      return {linalg::inverse(a)};
    case 1: {
      d.say(" det");
      const auto [sign, log] = linalg::slogdet(a);
      return {linalg::det(a), sign, log};
    }
    case 2: {
      d.say(" matrix_power");
      return {linalg::matrix_power(a, d.number("n", -5, 9))};
    }
    case 3: {
      d.say(" solve_triangular");
      const bool upper = d.flag("upper"), left = d.flag("left");
      return {linalg::solve_triangular(
          a, b, {.upper = upper, .left = left, .unitriangular = d.flag("unit")})};
    }
    case 4:
      d.say(" lstsq");
      return {linalg::lstsq(d.chance(50) ? a : matrices(d, n, d.below(7)), b)};
    default:
      d.say(" solve");
      return {linalg::solve(a, b, d.chance(70))};
  }
}

}  // namespace

std::vector<Call> linalg_calls() { return {{"factors", factors}, {"solutions", solutions}}; }

}  // namespace fuzz
