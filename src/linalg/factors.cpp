// Factorizations of matrices (Cholesky, QR, singular values, eigenvalues), and norms from them.
// Forward is a CPU kernel, and backward is composed of operations.
#include <cmath>

#include "firn/ops/autocast.h"
#include "firn/ops/rearrange.h"
#include "linalg/matrices.h"

namespace firn::linalg {

// ---- Cholesky ----

Tensor cholesky(const Tensor& x) {
  require_square("cholesky", x);
  const Tensor y = empty(x.shape(), x.dtype(), x.device());
  kernels::cholesky("cholesky", as_batch(dense(x)).view(), as_batch(y).mutable_view(),
                    stream_of(x));
  return record("cholesky", y, {&x}, {Saved::output()}, [](Backward& b) {
    // dx = L^-T s L^-1, where s is the symmetric half of the lower triangle of Lᵀ dL (Murray 2016).
    const Tensor& l = b.saved(0);
    const Tensor lower = tril(matmul(transposed_matrix(l), b.grad()));
    const Tensor half = 0.5 * (lower + transposed_matrix(tril(lower, -1)));
    const kernels::TriangularArgs args{.transposed = true};
    const Tensor left = solved("cholesky", l, half, args);
    b.accumulate(0, transposed_matrix(solved("cholesky", l, transposed_matrix(left), args)));
  });
}

// ---- QR ----

namespace {

/// Returns the gradient of x = q r if r is square (Walter & Lehmann 2010): (dq + q m) r^-T. Here m
/// is the symmetric matrix with the upper triangle of dr rᵀ - qᵀ dq.
Tensor tall_gradient(const Tensor& q, const Tensor& r, const Tensor& dq, const Tensor& dr) {
  const Tensor upper = triu(matmul(dr, transposed_matrix(r)) - matmul(transposed_matrix(q), dq));
  const Tensor whole = upper + transposed_matrix(triu(upper, 1));
  const Tensor left = dq + matmul(q, whole);
  return transposed_matrix(solved("qr", r, transposed_matrix(left), {.upper = true}));
}

}  // namespace

QR qr(const Tensor& x) {
  require_matrices("qr", x);
  const std::int64_t m = x.size(-2), n = x.size(-1), k = std::min(m, n);
  const Parts parts(leading_of(x), {Shape{m, k}, Shape{k, n}, Shape{0}});
  const Tensor both = empty(parts.whole(), x.dtype(), x.device());
  kernels::qr(as_batch(dense(x)).view(), parts.batch(both, 0).mutable_view(),
              parts.batch(both, 1).mutable_view(), stream_of(x));
  record("qr", both, {&x}, {Saved::output()}, [parts, k, n](Backward& b) {
    const Tensor q = parts.part(b.saved(0), 0), r = parts.part(b.saved(0), 1);
    const Tensor dq = parts.part(b.grad(), 0), dr = parts.part(b.grad(), 1);
    if (n <= k) return b.accumulate(0, tall_gradient(q, r, dq, dr));
    // x = [a c] with a = q u and c = q v, so q also has the gradient of c = q v.
    const Tensor v = slice(r, -1, k, n), dv = slice(dr, -1, k, n);
    const Tensor more = dq + matmul(matmul(q, v), transposed_matrix(dv));
    b.accumulate(
        0,
        cat({tall_gradient(q, slice(r, -1, 0, k), more, slice(dr, -1, 0, k)), matmul(q, dv)}, -1));
  });
  return {parts.part(both, 0), parts.part(both, 1)};
}

// ---- Singular values ----

namespace {

/// Returns the gradient of x = u diag(s) vt (Giles 2008; reduced matrices as in PyTorch).
Tensor svd_gradient(const Tensor& u, const Tensor& s, const Tensor& vt, const Tensor& du,
                    const Tensor& ds, const Tensor& dvt) {
  const std::int64_t k = s.size(-1);
  const Tensor ut = transposed_matrix(u), v = transposed_matrix(vt);
  const Tensor row = unsqueeze(s, -2), column = unsqueeze(s, -1);
  const auto skew = [](const Tensor& t) { return t - transposed_matrix(t); };
  const Tensor gaps = (row - column) * (row + column);
  const Tensor turns =
      skew(matmul(ut, du)) * row + column * skew(matmul(vt, transposed_matrix(dvt)));
  const Tensor inner = where(on_diagonal(k, s.device()), unsqueeze(ds, -2), over(turns, gaps));
  Tensor dx = matmul(matmul(u, inner), vt);
  if (u.size(-2) > k) {
    const Tensor rest = over(du, row);
    dx = dx + matmul(rest - matmul(u, matmul(ut, rest)), vt);
  }
  if (vt.size(-1) > k) {
    const Tensor rest = over(dvt, column);
    dx = dx + matmul(u, rest - matmul(matmul(rest, v), vt));
  }
  return dx;
}

}  // namespace

SVD svd(const Tensor& x) {
  require_matrices("svd", x);
  const std::int64_t m = x.size(-2), n = x.size(-1), k = std::min(m, n);
  const Parts parts(leading_of(x), {Shape{m, k}, Shape{k}, Shape{k, n}});
  const Tensor all = empty(parts.whole(), x.dtype(), x.device());
  kernels::svd("svd", as_batch(dense(x)).view(), parts.batch(all, 0).mutable_view(),
               parts.batch(all, 1).mutable_view(), parts.batch(all, 2).mutable_view(), true,
               stream_of(x));
  record("svd", all, {&x}, {Saved::output()}, [parts](Backward& b) {
    const auto of = [&](std::size_t i) { return parts.part(b.saved(0), i); };
    const auto d = [&](std::size_t i) { return parts.part(b.grad(), i); };
    b.accumulate(0, svd_gradient(of(0), of(1), of(2), d(0), d(1), d(2)));
  });
  return {parts.part(all, 0), parts.part(all, 1), parts.part(all, 2)};
}

Tensor svdvals(const Tensor& x) { return svd(x).s; }

// ---- Eigenvalues ----

Eigh eigh(const Tensor& x) {
  require_square("eigh", x);
  const std::int64_t n = x.size(-1);
  const Parts parts(leading_of(x), {Shape{n}, Shape{n, n}, Shape{0}});
  const Tensor both = empty(parts.whole(), x.dtype(), x.device());
  kernels::eigh("eigh", as_batch(dense(x)).view(), parts.batch(both, 0).mutable_view(),
                parts.batch(both, 1).mutable_view(), stream_of(x));
  record("eigh", both, {&x}, {Saved::output()}, [parts, n](Backward& b) {
    const Tensor w = parts.part(b.saved(0), 0), v = parts.part(b.saved(0), 1);
    const Tensor dw = parts.part(b.grad(), 0), dv = parts.part(b.grad(), 1);
    const Tensor gaps = unsqueeze(w, -2) - unsqueeze(w, -1), vt = transposed_matrix(v);
    const Tensor inner =
        where(on_diagonal(n, w.device()), unsqueeze(dw, -2), over(matmul(vt, dv), gaps));
    b.accumulate(0, matmul(matmul(v, inner), vt));
  });
  return {parts.part(both, 0), parts.part(both, 1)};
}

Tensor eigvalsh(const Tensor& x) { return eigh(x).values; }

// ---- Norms ----

namespace {

/// Returns x with its matrices in the last two axes.
Tensor matrices_last(const Tensor& x, const Axes& axes) {
  require_floating("matrix_norm", x);
  FIRN_CHECK(axes.size() == 2, "matrix_norm", "name two axes", "axes {} of {}", axes, describe(x));
  normalize_axes("matrix_norm", axes, x.rank());  // throws on a repeated axis
  return movedim(x, axes, {-2, -1});
}

Tensor kept(const Tensor& y, const Tensor& x, const Axes& axes, bool keepdims) {
  if (!keepdims) return y;
  Shape shape = x.shape();
  for (const std::int64_t a : axes) shape[normalize_axis("matrix_norm", a, x.rank())] = 1;
  return reshape(y, shape);
}

}  // namespace

Tensor matrix_norm(const Tensor& x, MatrixNorm norm, const Axes& axes, bool keepdims) {
  require_named("matrix_norm", "MatrixNorm", norm, MatrixNorm::nuclear);
  const Tensor last = matrices_last(x, axes);
  const Tensor y =
      norm == MatrixNorm::frobenius ? firn::norm(last, {-2, -1}) : sum(svdvals(last), -1);
  return kept(y, x, axes, keepdims);
}

Tensor matrix_norm(const Tensor& x, double norm, const Axes& axes, bool keepdims) {
  const Tensor last = matrices_last(x, axes);
  const double size = std::abs(norm);
  FIRN_CHECK(size == 1 || size == 2 || std::isinf(size), "matrix_norm",
             "1, 2, INFINITY, their negatives, or a MatrixNorm", "norm {}", norm);
  const std::int64_t compared = size == 2   ? std::min(last.size(-2), last.size(-1))
                                : size == 1 ? last.size(-1)
                                            : last.size(-2);
  FIRN_CHECK(compared > 0, "matrix_norm", "the Frobenius norm and the nuclear norm of it are 0",
             "norm {} of {} over axes {} has nothing to compare", norm, describe(x), axes);
  const Tensor each = size == 2 ? svdvals(last) : sum(abs(last), size == 1 ? -2 : -1);
  return kept(norm > 0 ? max(each, -1) : min(each, -1), x, axes, keepdims);
}

}  // namespace firn::linalg
