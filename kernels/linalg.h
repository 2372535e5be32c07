// Contract of the kernels of linear algebra: factors of matrices, and solutions by them. Only the
// CPU has them. Every operand is a batch [batch, rows, columns] (or [batch, n]) of f32 or f64. Each
// matrix is in row-major order without gaps, at any distance from the next one. Results share no
// memory with operands.
//
// One thread computes one matrix, so the bits do not depend on the number of threads. Factors of a
// matrix are made on the heap: std::bad_alloc becomes OutOfMemory. For matrices without an answer,
// Error names `op` and the lowest such matrix of the batch.
#pragma once

#include "kernels/dispatch.h"

namespace firn::kernels {

struct TriangularArgs {
  bool upper = false;       ///< reads the upper triangle of a, else the lower one
  bool transposed = false;  ///< solves with its transpose
  bool unit = false;        ///< its diagonal is not read, and counts as ones
  bool checked = false;     ///< a 0 on the diagonal throws; else there is a division by 0
};

namespace cpu {

/// Computes the lower triangular l with l lᵀ = x and zeros above, for x [batch, n, n]. It reads the
/// lower triangle of x. Throws unless x is positive definite.
void cholesky(const char* op, const ConstView& x, const View& l, Stream stream);
/// Computes q [batch, m, k] with orthonormal columns and the upper triangular r [batch, k, n] with
/// q r = x. x is [batch, m, n], and k = min(m, n). It uses Householder's reflections with LAPACK's
/// signs.
void qr(const ConstView& x, const View& q, const View& r, Stream stream);
/// Computes u [batch, m, k], s [batch, k], in descending order, and vt [batch, k, n] with u diag(s)
/// vt = x. If an element is not finite, it throws if `checked`; else that matrix's results are NaN.
void svd(const char* op, const ConstView& x, const View& u, const View& s, const View& vt,
         bool checked, Stream stream);
/// Computes w [batch, n], in ascending order, and v [batch, n, n] with v diag(w) vᵀ = x, for a
/// symmetric x. It reads the lower triangle of x. Throws if an element there is not finite.
void eigh(const char* op, const ConstView& x, const View& w, const View& v, Stream stream);
/// Computes the determinant of x [batch, n, n], its sign (-1, 0 or 1) and the logarithm of its
/// size, [batch] each, by LU factors.
void determinant(const ConstView& x, const View& value, const View& sign, const View& log,
                 Stream stream);
/// Computes x [batch, n, k] with a x = b, for a [batch, n, n], by LU factors with partial pivoting.
/// With `transposed`, aᵀ x = b. For a pivot of 0 it throws if `checked`; else there is a division
/// by 0.
void solve(const char* op, const ConstView& a, const ConstView& b, const View& x, bool transposed,
           bool checked, Stream stream);
/// Solves a x = b, or aᵀ x = b, for a triangular a.
void solve_triangular(const char* op, const ConstView& a, const ConstView& b, const View& x,
                      const TriangularArgs& args, Stream stream);

}  // namespace cpu

FIRN_KERNEL_CPU(cholesky)
FIRN_KERNEL_CPU(qr)
FIRN_KERNEL_CPU(svd)
FIRN_KERNEL_CPU(eigh)
FIRN_KERNEL_CPU(determinant)
FIRN_KERNEL_CPU(solve)
FIRN_KERNEL_CPU(solve_triangular)

}  // namespace firn::kernels
