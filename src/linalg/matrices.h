// Checks of batches of matrices, their views for kernels, and results that consist of several
// tensors.
#pragma once

#include <array>
#include <utility>

#include "firn/ops/linalg.h"
#include "kernels/copy.h"
#include "kernels/linalg.h"
#include "ops/common.h"

namespace firn::linalg {

using namespace ops;

/// Throws unless the kernels can compute with the matrices of x.
inline void require_matrices(const char* op, const Tensor& x) {
  require_defined(op, x);
  FIRN_CHECK(x.dtype() == f32 || x.dtype() == f64, op, "cast it: x.to(firn::f32)",
             "linear algebra has f32 and f64, got {}", describe(x));
  FIRN_CHECK(x.device().is_cpu(), op, "move it: x.to(firn::Device::cpu())",
             "linear algebra is on the CPU, got {}", describe(x));
  FIRN_CHECK(x.rank() >= 2, op, "a matrix has two axes", "{} has no matrices", describe(x));
}
inline void require_square(const char* op, const Tensor& x) {
  require_matrices(op, x);
  FIRN_CHECK(x.size(-1) == x.size(-2), op, "a square matrix is wanted", "{} is not square",
             describe(x));
}

/// Returns the axes of x without the last `taken`.
inline Shape leading_of(const Tensor& x, int taken = 2) {
  Shape out = x.shape();
  for (int i = 0; i < taken; ++i) out.pop_back();
  return out;
}
inline Shape joined(Shape leading, const Shape& more) {
  for (const std::int64_t n : more) leading.push_back(n);
  return leading;
}

/// Returns x in row-major order. Not recorded.
inline Tensor dense(const Tensor& x) {
  if (x.is_contiguous()) return x;
  const Tensor out = empty(x.shape(), x.dtype(), x.device());
  kernels::copy(x.view(), out.mutable_view(), stream_of(x));
  return out;
}
/// Returns a row-major x as [batch, rows, columns], or as [batch] if `taken` is 0.
inline Tensor as_batch(const Tensor& x, int taken = 2) {
  const Shape leading = leading_of(x, taken);
  Shape shape{leading.product()};
  for (int i = leading.size(); i < x.rank(); ++i) shape.push_back(x.size(i));
  return x.as_strided(shape, contiguous_strides(shape));
}
inline Tensor transposed_matrix(const Tensor& x) { return transpose(x, -2, -1); }

/// Results of one operation that share one autograd node: they are side by side in the last axis of
/// one tensor [..., total].
class Parts {
 public:
  Parts(Shape leading, std::array<Shape, 3> shapes) : leading_(leading), shapes_(shapes) {}

  Shape whole() const { return joined(leading_, {start(3)}); }
  /// Returns part i of the whole, a view. It is recorded if recording is on.
  Tensor part(const Tensor& whole, std::size_t i) const {
    return reshape(slice(whole, -1, start(i), start(i + 1)), joined(leading_, shapes_[i]));
  }
  /// Returns part i for a kernel, [batch, ...]. Not recorded.
  Tensor batch(const Tensor& whole, std::size_t i) const {
    Shape shape = joined({leading_.product()}, shapes_[i]);
    Strides strides = contiguous_strides(shape);
    strides[0] = start(3);
    return whole.as_strided(shape, strides, start(i));
  }

 private:
  std::int64_t start(std::size_t i) const {
    std::int64_t out = 0;
    for (std::size_t k = 0; k < i; ++k) out += shapes_[k].product();
    return out;
  }
  Shape leading_;
  std::array<Shape, 3> shapes_;
};

/// Returns the solution x of a x = b, not recorded; a is [..., n, n] and b [..., n, k] with one
/// batch.
Tensor solved(const char* op, const Tensor& a, const Tensor& b, bool transposed, bool checked);
Tensor solved(const char* op, const Tensor& a, const Tensor& b,
              const kernels::TriangularArgs& args);

/// Returns bool [n, n], true on the diagonal.
inline Tensor on_diagonal(std::int64_t n, Device device) {
  return eq(unsqueeze(arange(n, i64, device), 1), arange(n, i64, device));
}
/// Returns x / y, but 0 wherever x is 0, so that equal values do not turn a gradient of 0 into NaN.
inline Tensor over(const Tensor& x, const Tensor& y) { return where(eq(x, 0.0), 0.0, div(x, y)); }

}  // namespace firn::linalg
