// Linear algebra of matrices, in namespace firn::linalg: factors, solutions, determinants, norms.
//
// A matrix is the last two axes of a tensor of f32 or f64, and the axes before them are a batch.
// Other dtypes throw Error, under autocast too, which casts nothing here. Matrices of a batch run
// on several threads, each on one, so the bits do not depend on the number of threads. Only the CPU
// has these functions: a tensor of another device throws Error; move it by .to(Device::cpu()).
//
// A matrix without an answer (singular, not positive definite, not finite) throws Error with its
// number in the batch; each function says when. Gradients are those of PyTorch, also where they do
// not exist: they have infinities or NaN if singular values or eigenvalues are equal and the
// gradient of their vectors is not 0.
#pragma once

#include <concepts>
#include <cstdint>

#include "firn/ops/ops.h"
#include "firn/tensor.h"

namespace firn::linalg {

/// The lower triangular L with L Lᵀ = x, for symmetric positive definite x [..., n, n], of which
/// the lower triangle is read. Throws Error if a matrix is not positive definite. Gradient: Murray
/// 2016, symmetric.
Tensor cholesky(const Tensor& x);

/// Results of qr().
struct QR {
  Tensor q;  ///< [..., m, k] with orthonormal columns
  Tensor r;  ///< [..., k, n], upper triangular
};
/// q and r with q r = x, for x [..., m, n] and k = min(m, n): PyTorch's mode "reduced". Signs are
/// LAPACK's, so the diagonal of r may be negative. The gradient needs linearly independent first k
/// columns (Walter & Lehmann 2010; Roberts & Roberts 2020 if n > m).
QR qr(const Tensor& x);

/// Results of svd().
struct SVD {
  Tensor u;   ///< [..., m, k] with orthonormal columns
  Tensor s;   ///< [..., k], 0 or more, in descending order
  Tensor vt;  ///< [..., k, n] with orthonormal rows
};
/// u, s and vt with u diag(s) vt = x, for x [..., m, n] and k = min(m, n): PyTorch's svd with
/// full_matrices=False. Signs of pairs of vectors are arbitrary: only results that do not depend on
/// them have a gradient that means something. f32 is computed in f64. Throws Error if an element is
/// not finite. Gradient: Giles 2008; Seeger et al. 2017.
SVD svd(const Tensor& x);
/// The singular values alone, [..., k]; their gradient exists if they are equal, too. Subnormal
/// numbers of the dtype count as 0, in x and in the result.
Tensor svdvals(const Tensor& x);

/// Results of eigh().
struct Eigh {
  Tensor values;   ///< [..., n] in ascending order
  Tensor vectors;  ///< [..., n, n], orthonormal columns
};
/// Eigenvalues and eigenvectors of symmetric x [..., n, n], of which the lower triangle is read:
/// vectors diag(values) vectorsᵀ = x. Signs are arbitrary, as in svd(). Throws Error if an element
/// is not finite. Gradient: Giles 2008.
Eigh eigh(const Tensor& x);
/// The eigenvalues alone, [..., n].
Tensor eigvalsh(const Tensor& x);

/// The determinant of x [..., n, n]: [...]. The gradient is the matrix of cofactors by singular
/// values (Stewart 1998), which singular matrices have too.
Tensor det(const Tensor& x);
/// Results of slogdet().
struct Slogdet {
  Tensor sign;       ///< -1, 0 or 1; no gradient
  Tensor logabsdet;  ///< log |det x|; -inf if x is singular, and its gradient is then not finite
};
/// Sign and logarithm of the determinant, [...] each: for determinants beyond the dtype's range.
Slogdet slogdet(const Tensor& x);

/// The inverse of x [..., n, n]; PyTorch's inv. Throws Error if a pivot is 0. solve() is more exact
/// than a product with it. Gradient: Giles 2008.
Tensor inverse(const Tensor& x);
/// The x with a x = b, for a [..., n, n] and b [..., n, k]; or with x a = b, for b [..., k, n], if
/// `left` is false. Batches broadcast. b is a vector [..., n] if it has one axis, or the shape of a
/// without its last; then so is x. Throws Error if a pivot of a is 0. Gradient: Giles 2008.
Tensor solve(const Tensor& a, const Tensor& b, bool left = true);

struct TriangularOptions {
  bool upper = false;          ///< true: the upper triangle of a is read; false: the lower one
  bool left = true;            ///< true: a x = b; false: x a = b
  bool unitriangular = false;  ///< the diagonal of a is not read, and counts as ones
};
/// solve() for a triangular a. b has no vectors, as in PyTorch. Throws Error if a has a 0 on its
/// diagonal, where PyTorch divides by it.
Tensor solve_triangular(const Tensor& a, const Tensor& b, const TriangularOptions& options = {});
/// The x [..., n, k] that makes the norm of a x - b least, for a [..., m, n] and b [..., m, k], by
/// qr(). If m < n, the x of least norm among those with a x = b. Batches broadcast; b may be a
/// vector as in solve(). a must have full rank: Error if r has a 0 on its diagonal, and large
/// errors near that.
Tensor lstsq(const Tensor& a, const Tensor& b);

/// Norms that have no number.
enum class MatrixNorm {
  frobenius,  ///< the root of the sum of squares
  nuclear,    ///< the sum of the singular values
};
/// A norm of the matrices of two `axes`, which are removed, or kept with size 1.
Tensor matrix_norm(const Tensor& x, MatrixNorm norm = MatrixNorm::frobenius,
                   const Axes& axes = {-2, -1}, bool keepdims = false);
/// The norm with this number: 2 is the largest singular value, 1 the largest column sum of absolute
/// values, INFINITY the largest row sum. Their negatives are the smallest. Throws Error if there is
/// nothing to compare in matrices without elements. Norms without singular values take any device
/// and floating dtype.
Tensor matrix_norm(const Tensor& x, double norm, const Axes& axes = {-2, -1},
                   bool keepdims = false);
Tensor matrix_norm(const Tensor&,  // matrix_norm(x, norm, {-2, -1}, keepdims)
                   double, const Axes&, detail::ANumber auto) = delete;
Tensor matrix_norm(const Tensor&,  // matrix_norm(x, norm, {-2, -1}, keepdims)
                   std::same_as<bool> auto) = delete;

/// x [..., n, n] times itself, n times in all: inverse() first if n is negative; eye() for 0. It
/// takes at most 2 log2(n) products.
Tensor matrix_power(const Tensor& x, std::int64_t n);

}  // namespace firn::linalg
