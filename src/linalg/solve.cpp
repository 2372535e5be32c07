// Solves linear equations, and computes inverses and determinants.
#include <algorithm>

#include "firn/ops/autocast.h"
#include "firn/ops/rearrange.h"
#include "firn/ops/reduce.h"
#include "linalg/matrices.h"

namespace firn::linalg {

// ---- Functions that backward functions use, too ----

Tensor solved(const char* op, const Tensor& a, const Tensor& b, bool transposed, bool checked) {
  const Tensor x = empty(b.shape(), b.dtype(), b.device());
  kernels::solve(op, as_batch(dense(a)).view(), as_batch(dense(b)).view(),
                 as_batch(x).mutable_view(), transposed, checked, stream_of(x));
  return x;
}

Tensor solved(const char* op, const Tensor& a, const Tensor& b,
              const kernels::TriangularArgs& args) {
  const Tensor x = empty(b.shape(), b.dtype(), b.device());
  kernels::solve_triangular(op, as_batch(dense(a)).view(), as_batch(dense(b)).view(),
                            as_batch(x).mutable_view(), args, stream_of(x));
  return x;
}

namespace {

/// Returns true if b is a vector with respect to a: see solve().
bool is_vector(const Tensor& a, const Tensor& b) {
  return b.rank() == 1 || b.shape() == leading_of(a, 1);
}

/// Returns a and b with one batch; both must have equal numbers of rows.
std::pair<Tensor, Tensor> one_batch(const char* op, const Tensor& a, const Tensor& b) {
  require_matrices(op, b);
  require_same(op, a, b, false);
  FIRN_CHECK(a.size(-2) == b.size(-2), op, "both have as many rows", "rows differ: a {}, b {}",
             describe(a), describe(b));
  const Shape batch = broadcast_shapes(op, leading_of(a), leading_of(b));
  return {expand(a, joined(batch, {a.size(-2), a.size(-1)})),
          expand(b, joined(batch, {b.size(-2), b.size(-1)}))};
}

/// Solves x a = b, which is aᵀ xᵀ = bᵀ.
template <class Solve>
Tensor from_right(const Tensor& a, const Tensor& b, const Solve& solve) {
  return transposed_matrix(solve(transposed_matrix(a), transposed_matrix(b)));
}

Tensor identity_like(const Tensor& x) {
  return expand(eye(x.size(-1), x.dtype(), x.device()), x.shape());
}

Tensor triangular(const char* op, const Tensor& a, const Tensor& b, bool upper, bool unit) {
  const kernels::TriangularArgs args{.upper = upper, .unit = unit, .checked = true};
  const auto [left, right] = one_batch(op, a, b);
  return record(op, solved(op, left, right, args), {&left, &right},
                {Saved::input(0), Saved::output()}, [upper, unit](Backward& back) {
                  // db = a^-T dx, and da = -db xᵀ in the triangle that was read.
                  const Tensor db = solved("solve_triangular", back.saved(0), back.grad(),
                                           {.upper = upper, .transposed = true, .unit = unit});
                  if (back.needs(0)) {
                    const Tensor da = neg(matmul(db, transposed_matrix(back.saved(1))));
                    back.accumulate(0, upper ? triu(da, unit ? 1 : 0) : tril(da, unit ? -1 : 0));
                  }
                  if (back.needs(1)) back.accumulate(1, db);
                });
}

}  // namespace

// ---- Solutions ----

Tensor solve(const Tensor& a, const Tensor& b, bool left) {
  require_square("solve", a);
  require_defined("solve", b);
  if (is_vector(a, b)) {
    FIRN_CHECK(left, "solve", "unsqueeze it", "the vector b {} stands on the right of a {} only",
               describe(b), describe(a));
    return squeeze(solve(a, unsqueeze(b, -1)), -1);
  }
  if (!left) {
    FIRN_CHECK(b.rank() >= 2 && b.size(-1) == a.size(-1), "solve",
               "the columns of b are those of a", "a {}, b {}", describe(a), describe(b));
    return from_right(a, b, [](const Tensor& at, const Tensor& bt) { return solve(at, bt); });
  }
  const auto [factor, right] = one_batch("solve", a, b);
  return record("solve", solved("solve", factor, right, false, true), {&factor, &right},
                {Saved::input(0), Saved::output()}, [](Backward& back) {
                  // db = a^-T dx, da = -db xᵀ (Giles 2008).
                  const Tensor db = solved("solve", back.saved(0), back.grad(), true, false);
                  if (back.needs(0))
                    back.accumulate(0, neg(matmul(db, transposed_matrix(back.saved(1)))));
                  if (back.needs(1)) back.accumulate(1, db);
                });
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, const TriangularOptions& options) {
  const char* const op = "solve_triangular";
  require_square(op, a);
  require_matrices(op, b);
  if (options.left) return triangular(op, a, b, options.upper, options.unitriangular);
  FIRN_CHECK(b.size(-1) == a.size(-1), op, "the columns of b are those of a", "a {}, b {}",
             describe(a), describe(b));
  return from_right(a, b, [&](const Tensor& at, const Tensor& bt) {
    return triangular(op, at, bt, !options.upper, options.unitriangular);
  });
}

Tensor inverse(const Tensor& x) {
  require_square("inverse", x);
  return record("inverse", solved("inverse", x, identity_like(x), false, true), {&x},
                {Saved::output()}, [](Backward& b) {
                  const Tensor t = transposed_matrix(b.saved(0));
                  b.accumulate(0, neg(matmul(matmul(t, b.grad()), t)));
                });
}

Tensor lstsq(const Tensor& a, const Tensor& b) {
  require_matrices("lstsq", a);
  require_defined("lstsq", b);
  if (is_vector(a, b)) return squeeze(lstsq(a, unsqueeze(b, -1)), -1);
  const NoAutocast as_it_is;
  const auto [left, right] = one_batch("lstsq", a, b);
  if (a.size(-2) >= a.size(-1)) {
    const QR f = qr(left);
    return triangular("lstsq", f.r, matmul(transposed_matrix(f.q), right), true, false);
  }
  const QR f = qr(transposed_matrix(left));
  return matmul(f.q, triangular("lstsq", transposed_matrix(f.r), right, false, false));
}

Tensor matrix_power(const Tensor& x, std::int64_t n) {
  require_floating("matrix_power", x);
  FIRN_CHECK(x.rank() >= 2 && x.size(-1) == x.size(-2), "matrix_power", "a square matrix is wanted",
             "{} is not square", describe(x));
  if (n == 0) return clone(identity_like(x));
  const NoAutocast as_it_is;
  Tensor square = n < 0 ? inverse(x) : x, y;
  for (std::uint64_t left = n < 0 ? -static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
       ;) {
    if ((left & 1) != 0) y = y.defined() ? matmul(y, square) : square;
    left >>= 1;
    if (left == 0) break;
    square = matmul(square, square);
  }
  return y.impl() == x.impl() ? clone(x) : y;
}

// ---- Determinants ----

namespace {

/// Returns the determinant, its sign and the logarithm of its absolute value. Not recorded.
std::array<Tensor, 3> determinants(const Tensor& x) {
  const Shape shape = leading_of(x);
  std::array<Tensor, 3> out;
  for (std::size_t i = 0; i < 3; ++i)  // without rows, it is 1
    out[i] = x.size(-1) > 0 ? empty(shape, x.dtype(), x.device())
                            : full(shape, i < 2 ? 1 : 0, x.dtype(), x.device());
  kernels::determinant(as_batch(dense(x)).view(), as_batch(out[0], 0).mutable_view(),
                       as_batch(out[1], 0).mutable_view(), as_batch(out[2], 0).mutable_view(),
                       stream_of(x));
  return out;
}

/// Returns the matrix of cofactors of x = u diag(s) vt: det(u) det(vt) u diag(products of the
/// others) vt.
Tensor cofactors(const Tensor& x) {
  const std::int64_t n = x.size(-1);
  const Parts parts(leading_of(x), {Shape{n, n}, Shape{n}, Shape{n, n}});
  const Tensor all = empty(parts.whole(), x.dtype(), x.device());
  kernels::svd("det", as_batch(dense(x)).view(), parts.batch(all, 0).mutable_view(),
               parts.batch(all, 1).mutable_view(), parts.batch(all, 2).mutable_view(), false,
               stream_of(x));
  const Tensor u = parts.part(all, 0), s = parts.part(all, 1), vt = parts.part(all, 2);
  const Tensor others = prod(where(on_diagonal(n, s.device()), 1.0, unsqueeze(s, -2)), -1);
  const Tensor sign = determinants(u)[1] * determinants(vt)[1];
  return matmul(u * unsqueeze(others * unsqueeze(sign, -1), -2), vt);
}

}  // namespace

Tensor det(const Tensor& x) {
  require_square("det", x);
  return record("det", determinants(x)[0], {&x}, {Saved::input(0)}, [](Backward& b) {
    b.accumulate(0, cofactors(b.saved(0)) * unsqueeze(unsqueeze(b.grad(), -1), -1));
  });
}

Slogdet slogdet(const Tensor& x) {
  require_square("slogdet", x);
  const auto [value, sign, log] = determinants(x);
  autograd::unrecorded("slogdet", sign, {&x});
  return {sign, record("slogdet", log, {&x}, {Saved::input(0)}, [](Backward& b) {
            const Tensor& a = b.saved(0);
            b.accumulate(0, solved("slogdet", a, identity_like(a), true, false) *
                                unsqueeze(unsqueeze(b.grad(), -1), -1));
          })};
}

}  // namespace firn::linalg
