// Gradients of linear algebra against central differences in f64. Results are made independent of
// the signs of vectors.
#include <cmath>

#include "support/catch.h"
#include "support/ops/op_check.h"

namespace firn::testing {
namespace {

void check(const char* name, OpFn op, std::vector<std::vector<Shape>> shapes) {
  OpRow row;
  row.name = name;
  row.op = std::move(op);
  row.args = std::vector<Arg>(shapes[0].size(), real());
  row.shapes = std::move(shapes);
  INFO(name);
  check_gradient(row);
}

Tensor transposed(const Tensor& x) { return transpose(x, -2, -1); }
Tensor positive(const Tensor& x) {
  return matmul(x, transposed(x)) + eye(x.size(-1), x.dtype(), x.device());
}
Tensor away_from_singular(const Tensor& x) {
  return x + 5 * eye(x.size(-1), x.dtype(), x.device());
}
Tensor both(const Tensor& a, const Tensor& b) { return cat({flatten(a), flatten(b)}); }

const std::vector<std::vector<Shape>> kSquare = {
    {{3, 3}}, {{1, 1}}, {{2, 4, 4}}, {{0, 0}}, {{0, 2, 2}}};

TEST_CASE("linalg: gradients of factors equal central differences", "[host]") {
  check(
      "cholesky", [](const Args& x) { return linalg::cholesky(positive(x[0])); }, kSquare);
  check("qr",
        [](const Args& x) {
          const auto [q, r] = linalg::qr(x[0]);
          return both(q, r);
        },
        {{{3, 3}}, {{5, 2}}, {{2, 5}}, {{2, 4, 3}}, {{2, 2, 3}}, {{1, 1}}, {{3, 0}}, {{0, 3}}});
  check("q of qr", [](const Args& x) { return linalg::qr(x[0]).q; }, {{{4, 3}}, {{2, 4}}});
  check("r of qr", [](const Args& x) { return linalg::qr(x[0]).r; }, {{{4, 3}}, {{2, 4}}});
  check("singular values", [](const Args& x) { return linalg::svdvals(x[0]); },
        {{{3, 3}}, {{4, 2}}, {{2, 2, 4}}, {{1, 1}}, {{0, 2}}});
  check("svd",
        [](const Args& x) {
          const auto [u, s, vt] = linalg::svd(x[0]);
          return matmul(u * unsqueeze(exp(-s), -2), vt);
        },
        {{{3, 3}}, {{5, 2}}, {{2, 5}}, {{2, 3, 2}}, {{1, 1}}, {{2, 0}}});
  check("spaces of svd",
        [](const Args& x) {
          const auto [u, s, vt] = linalg::svd(x[0]);
          return both(matmul(u, transposed(u)), matmul(transposed(vt), vt));
        },
        {{{4, 2}}, {{2, 4}}});
  const auto symmetric = [](const Tensor& x) { return x + transposed(x); };
  check(
      "eigenvalues", [&](const Args& x) { return linalg::eigvalsh(symmetric(x[0])); }, kSquare);
  check(
      "eigh",
      [&](const Args& x) {
        const auto [w, v] = linalg::eigh(symmetric(x[0]));
        return matmul(v * unsqueeze(exp(0.3 * w), -2), transposed(v));
      },
      kSquare);
}

TEST_CASE("linalg: gradients of solutions equal central differences", "[host]") {
  check(
      "inverse", [](const Args& x) { return linalg::inverse(away_from_singular(x[0])); }, kSquare);
  check(
      "det", [](const Args& x) { return linalg::det(x[0]); }, kSquare);
  check(
      "slogdet", [](const Args& x) { return linalg::slogdet(away_from_singular(x[0])).logabsdet; },
      kSquare);
  const auto solve = [](const Args& x) { return linalg::solve(away_from_singular(x[0]), x[1]); };
  check("solve", solve,
        {{{3, 3}, {3, 2}},
         {{2, 3, 3}, {2, 3, 1}},
         {{3, 3}, {2, 3, 2}},
         {{2, 1, 2, 2}, {3, 2, 2}},
         {{0, 0}, {0, 2}},
         {{2, 2}, {2, 0}}});
  check("solve of a vector", solve, {{{3, 3}, {3}}, {{2, 3, 3}, {2, 3}}, {{2, 3, 3}, {3}}});
  check("solve from the right",
        [](const Args& x) { return linalg::solve(away_from_singular(x[0]), x[1], false); },
        {{{3, 3}, {2, 3}}, {{3, 3}, {2, 1, 3}}});
  for (const bool upper : {false, true})
    for (const bool left : {false, true})
      for (const bool unit : {false, true})
        check("solve_triangular",
              [=](const Args& x) {
                return linalg::solve_triangular(
                    away_from_singular(x[0]), x[1],
                    {.upper = upper, .left = left, .unitriangular = unit});
              },
              {{{3, 3}, {3, 3}}, {{2, 2, 2}, {2, 2}}});
  check("lstsq", [](const Args& x) { return linalg::lstsq(x[0], x[1]); },
        {{{5, 3}, {5, 2}}, {{2, 4}, {2, 1}}, {{2, 4, 2}, {4}}, {{3, 3}, {3}}});
  check("matrix_power", [](const Args& x) { return linalg::matrix_power(x[0], 5); }, {{{3, 3}}});
  check("negative matrix_power",
        [](const Args& x) { return linalg::matrix_power(away_from_singular(x[0]), -2); },
        {{{3, 3}}});
}

TEST_CASE("linalg: gradients of norms equal central differences", "[host]") {
  const std::vector<std::vector<Shape>> shapes = {{{3, 4}}, {{2, 4, 3}}, {{1, 1}}};
  for (const double p : {1.0, -1.0, 2.0, -2.0, HUGE_VAL, -HUGE_VAL})
    check(
        "matrix_norm", [p](const Args& x) { return linalg::matrix_norm(x[0], p); }, shapes);
  for (const auto p : {linalg::MatrixNorm::frobenius, linalg::MatrixNorm::nuclear})
    check("matrix_norm",
          [p](const Args& x) {
            return linalg::matrix_norm(x[0], p, {2, 0}, true);
          },
          {{{3, 2, 4}}});
}

TEST_CASE("linalg: gradients where factors are degenerate", "[host]") {
  // Of singular matrices the determinant has its cofactors.
  const Tensor singular = tensor<double>({1, 2, 2, 4}, {2, 2}).set_requires_grad();
  linalg::det(singular).backward();
  expect_close("cofactors", values_of(singular.grad()), {4, -2, -2, 1}, 1e-13);
  const Tensor nothing = zeros({2, 3, 3}, f64).set_requires_grad();
  sum(linalg::det(nothing)).backward();
  CHECK(largest(values_of(nothing.grad())) == 0);
  // Values alone have a gradient if they are equal.
  const Tensor equal = eye(3, f64).set_requires_grad();
  sum(linalg::svdvals(equal)).backward();
  expect_close("of svdvals", values_of(equal.grad()), values_of(eye(3)), 1e-14);
  equal.set_grad({});
  sum(linalg::eigvalsh(equal) * tensor<double>({1, 1, 1})).backward();
  expect_close("of eigvalsh", values_of(equal.grad()), values_of(eye(3)), 1e-14);
  // Their vectors have none: what is not 0 is divided by 0.
  equal.set_grad({});
  sum(linalg::eigh(equal).vectors * rand({3, 3}, f64)).backward();
  CHECK_FALSE(std::isfinite(sum(equal.grad()).item()));
  // The nuclear norm of zeros.
  const Tensor zero = zeros({3, 2}, f64).set_requires_grad();
  linalg::matrix_norm(zero, linalg::MatrixNorm::nuclear).backward();
  CHECK(std::isfinite(sum(zero.grad()).item()));
  const Tensor flat = zeros({2, 2}, f64).set_requires_grad();
  linalg::slogdet(flat).logabsdet.backward();
  CHECK_FALSE(std::isfinite(sum(flat.grad()).item()));
}

}  // namespace
}  // namespace firn::testing
