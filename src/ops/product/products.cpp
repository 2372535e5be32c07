// Products of vectors, matrices and batches of them, made of matmul(), linear() and mul(). They
// have no kernels of their own.
#include "firn/ops/products.h"

#include <algorithm>

#include "ops/product/contraction.h"
#include "ops/product/dense.h"

namespace firn {

using namespace ops;

namespace {

/// Letters of a second operand begin here.
constexpr int kSecond = kMaxRank;

void require_rank_of(const char* op, const Tensor& t, int rank, const char* hint) {
  require_defined(op, t);
  FIRN_CHECK(t.rank() == rank, op, hint, "{} has {} axes, not {}", describe(t), t.rank(), rank);
}

/// tensordot() over axes in [0, rank).
Tensor dotted(const Tensor& a, const Tensor& b, const Axes& axes_a, const Axes& axes_b) {
  const char* const op = "tensordot";
  Lettered left{a, {}}, right{b, {}};
  Dims result;
  require_rank(op, a.rank() + b.rank() - 2 * axes_a.size(), a, b);
  for (int i = 0; i < a.rank(); ++i) {
    left.letters.push_back(i);
    if (!axes_a.contains(i)) result.push_back(i);
  }
  for (int i = 0; i < b.rank(); ++i) {
    right.letters.push_back(kSecond + i);
    if (!axes_b.contains(i)) result.push_back(kSecond + i);
  }
  for (int i = 0; i < axes_a.size(); ++i) {
    const std::int64_t m = a.size(axes_a[i]), n = b.size(axes_b[i]);
    FIRN_CHECK(m == n || m == 1 || n == 1, op, "sizes must be equal or 1",
               "axis {} of a {} and axis {} of b {}", axes_a[i], describe(a), axes_b[i],
               describe(b));
    right.letters[axes_b[i]] = axes_a[i];
  }
  return arranged(contract(without_ones(left), without_ones(right), set_of(result), result),
                  result);
}

/// beta c + alpha a b.
Tensor added(const char* op, const Tensor& c, const Tensor& a, const Tensor& b,
             const AddmmOptions& options) try {
  require_defined(op, c);
  Shape shape = a.shape();
  shape.back() = b.size(-1);
  FIRN_CHECK(a.size(-1) == b.size(-2), op, "transpose one of them",
             "inner sizes differ: a {}, b {}", describe(a), describe(b));
  FIRN_CHECK(broadcasts_to(c.shape(), shape), op, "c broadcasts to the product", "c {} to shape {}",
             describe(c), shape);
  require_factors(op, a, c);
  Tensor y = matmul(a, b);
  if (options.alpha != 1) y = mul(y, options.alpha);
  if (options.beta == 0) return y;
  const Tensor scaled = options.beta == 1 ? c : mul(c, options.beta);
  return add(autocast_on() ? cast(scaled, y.dtype()) : scaled, y);
}
FIRN_AS_OP(op)

/// Throws unless the shapes are [batch, m, k] and [batch, k, n].
void require_batches(const char* op, const Tensor& a, const Tensor& b) {
  require_floating(op, a);
  require_factors(op, a, b);
  for (const Tensor* t : {&a, &b}) require_rank_of(op, *t, 3, "matmul() takes any number of axes");
  FIRN_CHECK(a.size(0) == b.size(0), op, "matmul() broadcasts the batch",
             "batches differ: a {}, b {}", describe(a), describe(b));
  FIRN_CHECK(a.size(2) == b.size(1), op, "transpose one of them", "inner sizes differ: a {}, b {}",
             describe(a), describe(b));
}

}  // namespace

Tensor tensordot(const Tensor& a, const Tensor& b, std::int64_t n_axes) {
  require_floating("tensordot", a);
  require_factors("tensordot", a, b);
  FIRN_CHECK(n_axes >= 0 && n_axes <= std::min(a.rank(), b.rank()), "tensordot",
             "at most the axes that both have", "{} axes of {} and {}", n_axes, describe(a),
             describe(b));
  Axes last, first;
  for (int i = 0; i < n_axes; ++i) {
    last.push_back(a.rank() - n_axes + i);
    first.push_back(i);
  }
  return dotted(a, b, last, first);
}

Tensor tensordot(const Tensor& a, const Tensor& b, const Axes& axes_a, const Axes& axes_b) {
  require_floating("tensordot", a);
  require_factors("tensordot", a, b);
  FIRN_CHECK(axes_a.size() == axes_b.size(), "tensordot", "name as many axes of each",
             "axes {} of {} and {} of {}", axes_a, describe(a), axes_b, describe(b));
  Axes of_a = axes_a, of_b = axes_b;
  if (!axes_a.empty()) {  // both throw on a repeated axis
    normalize_axes("tensordot", axes_a, a.rank());
    normalize_axes("tensordot", axes_b, b.rank());
  }
  for (auto& axis : of_a) axis = normalize_axis("tensordot", axis, a.rank());
  for (auto& axis : of_b) axis = normalize_axis("tensordot", axis, b.rank());
  return dotted(a, b, of_a, of_b);
}

Tensor outer(const Tensor& a, const Tensor& b) try {
  require_rank_of("outer", a, 1, "flatten it, or call tensordot(a, b, 0)");
  require_rank_of("outer", b, 1, "flatten it, or call tensordot(a, b, 0)");
  require_computed("outer", a);
  return mul(unsqueeze(a, 1), b);
}
FIRN_AS_OP("outer")

Tensor dot(const Tensor& a, const Tensor& b) try {
  require_rank_of("dot", a, 1, "vecdot() takes any number of axes");
  require_rank_of("dot", b, 1, "vecdot() takes any number of axes");
  FIRN_CHECK(a.numel() == b.numel(), "dot", "both have one size", "{} and {}", describe(a),
             describe(b));
  return matmul(a, b);
}
FIRN_AS_OP("dot")

Tensor vecdot(const Tensor& a, const Tensor& b, std::int64_t axis) {
  require_floating("vecdot", a);
  require_factors("vecdot", a, b);
  const int rank = broadcast_shapes("vecdot", a.shape(), b.shape()).size();
  const int along = normalize_axis("vecdot", axis, rank);
  const auto lettered = [rank](const Tensor& t) {
    Lettered out{t, {}};
    for (int i = rank - t.rank(); i < rank; ++i) out.letters.push_back(i);
    return without_ones(out);
  };
  Dims result;
  for (int i = 0; i < rank; ++i)
    if (i != along) result.push_back(i);
  return arranged(contract(lettered(a), lettered(b), set_of(result), result), result);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  require_batches("bmm", a, b);
  return matmul(a, b);
}

Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options) {
  require_floating("addmm", a);
  require_factors("addmm", a, b);
  for (const Tensor* t : {&a, &b}) require_rank_of("addmm", *t, 2, "baddbmm() takes batches");
  return added("addmm", c, a, b, options);
}

Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options) {
  require_batches("baddbmm", a, b);
  return added("baddbmm", c, a, b, options);
}

Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias) try {
  require_floating("bilinear", x1);
  require_factors("bilinear", x1, x2);
  require_factors("bilinear", x1, weight);
  require_rank_of("bilinear", weight, 3, "[out, in1, in2]");
  const std::int64_t out = weight.size(0), n = weight.size(1), m = weight.size(2);
  Shape leading = x1.shape(), other = x2.shape();
  const bool fits = !leading.empty() && !other.empty() && leading.back() == n && other.back() == m;
  if (fits) leading.pop_back(), other.pop_back();
  FIRN_CHECK(fits && leading == other, "bilinear",
             "x1 [..., in1] and x2 [..., in2] with equal leading axes, weight [out, in1, in2]",
             "x1 {}, x2 {}, weight {}", describe(x1), describe(x2), describe(weight));
  const std::int64_t rows = leading.product();
  const Tensor pairs = mul(unsqueeze(as_matrix(x1), 2), unsqueeze(as_matrix(x2), 1));
  const Tensor y = linear(reshape(pairs, {rows, n * m}), reshape(weight, {out, n * m}), bias);
  leading.push_back(out);
  return leading == y.shape() ? y : reshape(y, leading);
}
FIRN_AS_OP("bilinear")

}  // namespace firn
