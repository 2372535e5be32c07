// Factors and solutions of linear algebra: products of factors, views, empty and ill-conditioned
// matrices, threads, and what is refused.
#include <cmath>

#include "support/catch.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

Tensor transposed(const Tensor& x) { return transpose(x, -2, -1); }
Tensor random(const Shape& shape, DType t, std::uint64_t seed = 5) {
  Generator g(seed);
  return randn(shape, {.dtype = t, .generator = &g});
}
Tensor identity(const Shape& leading, std::int64_t n, DType t) {
  Shape shape = leading;
  shape.push_back(n);
  shape.push_back(n);
  return expand(eye(n, t), shape);
}

/// a and b agree to some ulp of the largest element of either, times the size of the matrices.
void same(const char* what, const Tensor& a, const Tensor& b, double factor = 1) {
  REQUIRE(a.shape() == b.shape());
  REQUIRE(a.dtype() == b.dtype());
  const auto x = values_of(a), y = values_of(b);
  const double n = a.rank() > 0 ? static_cast<double>(a.size(-1) + 8) : 8;
  expect_close(what, x, y, factor * 4 * n * epsilon_of(a.dtype()) * std::max(largest(y), 1e-30));
}

const std::vector<Shape> kShapes = {{3, 3},       {5, 2},    {2, 5},   {1, 1},   {2, 4, 3},
                                    {2, 3, 2, 4}, {40, 33},  {33, 40}, {64, 64}, {0, 3},
                                    {3, 0},       {0, 2, 2}, {2, 0, 0}};

TEST_CASE("linalg: factors multiply to the matrix", "[host]") {
  for (const DType t : {f32, f64})
    for (const Shape& shape : kShapes) {
      INFO(to_string(shape) << " " << to_string(t));
      const Tensor x = random(shape, t);
      const std::int64_t k = std::min(x.size(-2), x.size(-1));
      Shape leading = shape;
      leading.pop_back(), leading.pop_back();
      const auto [q, r] = linalg::qr(x);
      same("q r", matmul(q, r), x);
      same("qᵀ q", matmul(transposed(q), q), identity(leading, k, t));
      same("r", triu(r), r, 0);
      const auto [u, s, vt] = linalg::svd(x);
      same("u s vt", matmul(u * unsqueeze(s, -2), vt), x, 4);
      same("uᵀ u", matmul(transposed(u), u), identity(leading, k, t), 4);
      same("vt v", matmul(vt, transposed(vt)), identity(leading, k, t), 4);
      same("s", sort(s, -1, {.descending = true}).values, s, 0);
      CHECK(all(s >= 0).item() == 1);
      if (x.size(-1) != x.size(-2)) continue;
      const Tensor symmetric = x + transposed(x),
                   positive = matmul(x, transposed(x)) + identity(leading, k, t);
      const auto [w, v] = linalg::eigh(symmetric);
      same("v w vᵀ", matmul(v * unsqueeze(w, -2), transposed(v)), symmetric, 4);
      same("vᵀ v", matmul(transposed(v), v), identity(leading, k, t), 4);
      same("w", sort(w).values, w, 0);
      const Tensor l = linalg::cholesky(positive);
      same("l lᵀ", matmul(l, transposed(l)), positive);
      same("l", tril(l), l, 0);
      // The upper triangle is not read.
      same("lower",
           linalg::cholesky(where(gt(triu(ones(positive.shape(), t), 1), 0), NAN, positive)), l, 0);
      same("lower",
           linalg::eigvalsh(where(gt(triu(ones(positive.shape(), t), 1), 0), NAN, symmetric)), w,
           0);
    }
}

TEST_CASE("linalg: solutions solve", "[host]") {
  for (const DType t : {f32, f64})
    for (const Shape& shape : {Shape{3, 3}, Shape{1, 1}, Shape{2, 3, 4, 4}, Shape{50, 50},
                               Shape{0, 0}, Shape{2, 0, 0}, Shape{0, 3, 3}}) {
      INFO(to_string(shape) << " " << to_string(t));
      Shape leading = shape, right = shape;
      leading.pop_back(), leading.pop_back();
      right.back() = 2;
      const std::int64_t n = shape.back();
      const Tensor a = random(shape, t) + static_cast<double>(n + 2) * identity(leading, n, t),
                   b = random(right, t, 6);
      same("a x", matmul(a, linalg::solve(a, b)), b);
      same("x a", matmul(linalg::solve(a, transposed(b), false), a), transposed(b));
      same("a inverse", matmul(a, linalg::inverse(a)), identity(leading, n, t));
      const Tensor vector = select(b, -1, 0);
      same("a vector", linalg::solve(a, vector), select(linalg::solve(a, b), -1, 0), 1);
      for (const bool upper : {false, true})
        for (const bool unit : {false, true}) {
          Tensor triangle = upper ? triu(a) : tril(a);
          const auto options = [&](bool left) {
            return linalg::TriangularOptions{.upper = upper, .left = left, .unitriangular = unit};
          };
          if (unit) triangle = (upper ? triu(a, 1) : tril(a, -1)) * 0.1 + identity(leading, n, t);
          const Tensor read = unit ? a * 0.1 : a;  // the other triangle is not read
          same("triangle x", matmul(triangle, linalg::solve_triangular(read, b, options(true))), b,
               4);
          same("x triangle",
               matmul(linalg::solve_triangular(read, transposed(b), options(false)), triangle),
               transposed(b), 4);
        }
      const auto [sign, log] = linalg::slogdet(a);
      same("det", sign * exp(log), linalg::det(a), 8 + static_cast<double>(n));
      same("lstsq", linalg::lstsq(a, b), linalg::solve(a, b), 4);
      same("power", linalg::matrix_power(a, 3), matmul(a, matmul(a, a)));
      same("power 0", linalg::matrix_power(a, 0), clone(identity(leading, n, t)), 0);
    }
}

TEST_CASE("linalg: written out", "[host]") {
  const Tensor a = tensor<double>({4, 2, 2, 3}, {2, 2});
  expect_close("cholesky", values_of(linalg::cholesky(a)), {2, 0, 1, std::sqrt(2.0)}, 1e-15);
  expect_close("det", values_of(linalg::det(a)), {8}, 1e-14);
  expect_close("inverse", values_of(linalg::inverse(a)), {0.375, -0.25, -0.25, 0.5}, 1e-15);
  CHECK(linalg::slogdet(-1 * eye(3, f64)).sign.item() == -1);
  CHECK(linalg::slogdet(-1 * eye(3, f64)).logabsdet.item() == 0);
  CHECK(linalg::det(zeros({0, 0}, f64)).item() == 1);
  CHECK(values_of(linalg::slogdet(zeros({2, 0, 0}, f64)).sign) == std::vector<double>{1, 1});
  const Tensor m = tensor<double>({1, -2, 3, -4, 5, -6}, {2, 3});
  CHECK(linalg::matrix_norm(m).item() == Approx(std::sqrt(91.0)));
  CHECK(linalg::matrix_norm(m, 1).item() == 9);
  CHECK(linalg::matrix_norm(m, -1).item() == 5);
  CHECK(linalg::matrix_norm(m, HUGE_VAL).item() == 15);
  CHECK(linalg::matrix_norm(m, -HUGE_VAL).item() == 6);
  const Tensor diagonal = diag(tensor<double>({3, -5, 1}));
  CHECK(linalg::matrix_norm(diagonal, 2).item() == Approx(5));
  CHECK(linalg::matrix_norm(diagonal, -2).item() == Approx(1));
  CHECK(linalg::matrix_norm(diagonal, linalg::MatrixNorm::nuclear).item() == Approx(9));
  CHECK(linalg::matrix_norm(zeros({2, 3, 4}), 1, {0, 2}).shape() == Shape{3});
  CHECK(linalg::matrix_norm(zeros({2, 3, 4}), 1, {0, 2}, true).shape() == Shape{1, 3, 1});
  // More rows than unknowns: a line through points. Fewer: the shortest solution.
  const Tensor x = tensor<double>({1, 0, 1, 1, 1, 2}, {3, 2});
  expect_close("line", values_of(linalg::lstsq(x, tensor<double>({1, 2, 4}))), {5.0 / 6, 1.5},
               1e-14);
  expect_close("shortest",
               values_of(linalg::lstsq(tensor<double>({1, 1}, {1, 2}), tensor<double>({3}))),
               {1.5, 1.5}, 1e-14);
  expect_close("power", values_of(linalg::matrix_power(tensor<double>({1, 1, 1, 0}, {2, 2}), 30)),
               {1346269, 832040, 832040, 514229}, 0);
}

TEST_CASE("linalg: views and broadcasting", "[host]") {
  const Tensor a = random({4, 3, 3}, f64) + 4 * eye(3, f64), b = random({4, 3, 2}, f64);
  for (const Layout layout : {Layout::transposed, Layout::stepped, Layout::offset}) {
    INFO(to_string(layout));
    const Tensor view = make(values_of(a), a.shape(), f64, layout),
                 right = make(values_of(b), b.shape(), f64, layout);
    same("solve", linalg::solve(view, right), linalg::solve(a, b), 0);
    same("det", linalg::det(view), linalg::det(a), 0);
    same("svd", linalg::svdvals(view), linalg::svdvals(a), 0);
    same("qr", linalg::qr(view).r, linalg::qr(a).r, 0);
    same("eigh", linalg::eigvalsh(view), linalg::eigvalsh(a), 0);
    same("triangular", linalg::solve_triangular(view, right), linalg::solve_triangular(a, b), 0);
  }
  const Tensor one = a[0], repeated = expand(one, {4, 3, 3});
  same("one matrix", linalg::solve(one, b), linalg::solve(repeated, b), 0);
  same("one side", linalg::solve(a, b[0]), linalg::solve(a, expand(b[0], {4, 3, 2})), 0);
  CHECK(linalg::solve(a, random({3}, f64)).shape() == Shape{4, 3});
  CHECK(linalg::solve(one, random({5, 3}, f64), false).shape() == Shape{5, 3});
  same("by matrices", linalg::svdvals(a)[2], linalg::svdvals(a[2]), 0);
}

TEST_CASE("linalg: ill-conditioned and extreme matrices", "[host]") {
  // Hilbert's matrix of order 8 has the condition 1.5e10 and this determinant.
  const Tensor i = arange(8, f64), hilbert = 1 / (unsqueeze(i, 1) + i + 1.0);
  CHECK(linalg::det(hilbert).item() == Approx(2.7370500e-33).epsilon(1e-5));
  const Tensor x = linalg::solve(hilbert, ones({8}, f64));
  CHECK(largest(values_of(matmul(hilbert, x) - 1)) < 1e-6);
  const auto s = values_of(linalg::svdvals(hilbert));
  CHECK(s[0] / s[7] == Approx(1.5257e10).epsilon(1e-3));
  // Determinants beyond the range have a logarithm.
  const Tensor large = 1e200 * eye(4, f64);
  CHECK(std::isinf(linalg::det(large).item()));
  CHECK(linalg::slogdet(large).logabsdet.item() == Approx(4 * 200 * std::log(10.0)));
  const Tensor small = 1e-30 * random({6, 6}, f32);
  same("small", linalg::svdvals(small) * 1e20, linalg::svdvals(small * 1e20), 8);
  const Tensor flat = matmul(random({6, 1}, f64), random({1, 5}, f64));
  CHECK(values_of(linalg::svdvals(flat))[1] < 1e-14);
  // NaN and infinities spread where there is an answer.
  const Tensor spoilt = tensor<double>({NAN, 1, 2, 3}, {2, 2});
  CHECK(std::isnan(linalg::det(spoilt).item()));
  CHECK(std::isnan(linalg::slogdet(spoilt).logabsdet.item()));
  CHECK(std::isnan(sum(linalg::solve(spoilt, ones({2}, f64))).item()));
  CHECK(std::isnan(sum(linalg::qr(spoilt).r).item()));
  const Tensor leaf = tensor<double>({NAN, 1, 2, 3}, {2, 2}).set_requires_grad();
  linalg::det(leaf).backward();
  CHECK(std::isnan(sum(leaf.grad()).item()));
  // Of a singular matrix.
  const Tensor singular = tensor<double>({1, 2, 2, 4}, {2, 2});
  CHECK(linalg::det(singular).item() == 0);
  CHECK(linalg::slogdet(singular).sign.item() == 0);
  CHECK(linalg::slogdet(singular).logabsdet.item() == -HUGE_VAL);
}

TEST_CASE("linalg: the number of threads changes no bit", "[host]") {
  const Tensor a = random({40, 24, 24}, f32) + 3 * eye(24), b = random({40, 24, 8}, f32);
  const auto all_of = [&] {
    const auto [u, s, vt] = linalg::svd(a);
    const auto [w, v] = linalg::eigh(a);
    return values_of(cat({flatten(u), flatten(s), flatten(vt), flatten(w), flatten(v),
                          flatten(linalg::solve(a, b)), flatten(linalg::qr(a).q), linalg::det(a),
                          flatten(linalg::cholesky(matmul(a, transposed(a))))}));
  };
  std::vector<double> one;
  for (const int count : {1, 2, 3, 7}) {
    const Threads threads(count);
    if (count == 1) one = all_of();
    expect_same("threads", all_of(), one);
  }
}

TEST_CASE("linalg: under autocast dtypes stay", "[host]") {
  const Tensor a = random({3, 3}, f32) + 4 * eye(3), b = random({3, 2}, f32),
               tall = random({5, 3}, f32);
  const Tensor plain = linalg::lstsq(tall, random({5}, f32));
  const Autocast autocast(bf16);
  CHECK(linalg::solve(a, b).dtype() == f32);
  CHECK(linalg::svdvals(a).dtype() == f32);
  CHECK(linalg::matrix_power(a, 2).dtype() == f32);
  same("lstsq", linalg::lstsq(tall, random({5}, f32)), plain, 0);
  CHECK(error_of([&] { linalg::solve(a.to(bf16), b.to(bf16)); }).find("[solve]") !=
        std::string::npos);
}

TEST_CASE("linalg: what has no answer is refused by its number", "[host]") {
  const auto refused = [](auto&& call, const char* op, const char* what) {
    const std::string text = error_of(call);
    INFO(text);
    CHECK(text.find(op) != std::string::npos);
    CHECK(text.find(what) != std::string::npos);
  };
  const Tensor good = eye(2, f64), bad = tensor<double>({1, 2, 2, 4}, {2, 2}),
               b = ones({2, 1}, f64);
  const Tensor all = stack({good, good, bad, bad}), nan = full({2, 2}, NAN, f64);
  refused([&] { linalg::inverse(all); }, "[inverse]",
          "matrix 2 of [4, 2, 2] is singular: pivot 1 is 0");
  refused(
      [&] {
        linalg::solve(reshape(all, {2, 2, 2, 2}), b);
      },
      "[solve]", "matrix 2 of [4, 2, 2]");
  refused([&] { linalg::solve(zeros({2, 2}), ones({2})); }, "[solve]", "matrix 0 of [1, 2, 2]");
  refused([&] { linalg::solve_triangular(triu(all, 1), b, {.upper = true}); }, "[solve_triangular]",
          "element 0 of its diagonal");
  refused([&] { linalg::lstsq(zeros({3, 2}), ones({3})); }, "[lstsq]", "columns of a");
  refused(
      [&] {
        linalg::cholesky(stack({good, -1 * good}));
      },
      "[cholesky]", "matrix 1 of [2, 2, 2] is not positive definite");
  refused([&] { linalg::cholesky(stack({good, nan})); }, "[cholesky]", "matrix 1");
  refused([&] { linalg::cholesky(zeros({2, 2})); }, "[cholesky]", "matrix 0");
  refused(
      [&] {
        linalg::svd(stack({good, nan}));
      },
      "[svd]", "matrix 1 of [2, 2, 2] has elements that are not finite");
  refused([&] { linalg::eigh(full({1, 1}, HUGE_VAL)); }, "[eigh]", "matrix 0 of [1, 1, 1]");
  const Tensor x = zeros({2, 3}), v = zeros({3});
  refused([&] { linalg::cholesky(x); }, "[cholesky]", "not square");
  refused([&] { linalg::det(x); }, "[det]", "not square");
  refused([&] { linalg::slogdet(x); }, "[slogdet]", "not square");
  refused([&] { linalg::inverse(v); }, "[inverse]", "has no matrices");
  refused([&] { linalg::eigh(x); }, "[eigh]", "not square");
  refused([&] { linalg::qr(v); }, "[qr]", "has no matrices");
  refused([&] { linalg::svd(x.to(f16)); }, "[svd]", "f32 and f64");
  refused([&] { linalg::qr(x.to(i64)); }, "[qr]", "f32 and f64");
  refused([&] { linalg::qr(Tensor()); }, "[qr]", "undefined");
  refused([&] { linalg::solve(good, zeros({3, 1}, f64)); }, "[solve]", "rows differ");
  refused([&] { linalg::solve(good, b.to(f32)); }, "[solve]", "dtypes differ");
  refused([&] { linalg::solve(all, zeros({3, 2, 1}, f64)); }, "[solve]", "");
  refused([&] { linalg::solve(good, b, false); }, "[solve]", "columns of b");
  refused([&] { linalg::solve(good, zeros({2}, f64), false); }, "[solve]", "vector");
  refused([&] { linalg::solve_triangular(good, zeros({2}, f64)); }, "[solve_triangular]",
          "has no matrices");
  refused([&] { linalg::lstsq(x, zeros({3, 1})); }, "[lstsq]", "rows differ");
  refused([&] { linalg::matrix_norm(zeros({0, 2}), 2); }, "[matrix_norm]", "nothing to compare");
  refused([&] { linalg::matrix_norm(zeros({2, 0}), 1); }, "[matrix_norm]", "norm 1 of [2, 0]");
  refused([&] { linalg::matrix_norm(x, 3); }, "[matrix_norm]", "norm 3");
  refused([&] { linalg::matrix_norm(x, NAN); }, "[matrix_norm]", "norm nan");
  refused([&] { linalg::matrix_norm(x, 1, {0, -2}); }, "[matrix_norm]", "");
  refused([&] { linalg::matrix_norm(x, 1, {0}); }, "[matrix_norm]", "axes [0]");
  refused([&] { linalg::matrix_power(x, 2); }, "[matrix_power]", "not square");
  refused([&] { linalg::matrix_power(bad, -1); }, "[inverse]", "singular");
}

}  // namespace
TEST_CASE("qr of small, large and mixed elements", "[host]") {
  for (const DType t : {f32, f64}) {
    for (const double size : {t == f32 ? 1e-30 : 1e-200, 1.0, t == f32 ? 1e30 : 1e200}) {
      const Tensor unit = make(Rng(3).uniforms(4 * 3, -1, 1), {4, 3}, f64);
      const Tensor x = cast(unit * size, t);
      const linalg::QR f = linalg::qr(x);
      const std::vector<double> want = values_of(cast(x, f64) / size);
      expect_close("q r", values_of(matmul(cast(f.q, f64), cast(f.r, f64) / size)), want,
                   t == f32 ? 1e-6 : 1e-14);
    }
  }
}

}  // namespace firn::testing
