// Joins and divides tensors by a sequence of other operations.
#include <algorithm>

#include "base/checked.h"
#include "firn/ops/index.h"
#include "firn/ops/rearrange.h"
#include "ops/common.h"

namespace firn {

using namespace ops;

namespace {

/// Joins the parts along `axis`, each as `seen` shows it.
template <class Fn>
Tensor joined(const char* op, std::span<const Tensor> parts, std::int64_t axis, Fn&& seen) try {
  std::vector<Tensor> out;
  for (const Tensor& part : parts) {
    require_defined(op, part);
    out.push_back(seen(part));
  }
  return cat(out, axis);
}
FIRN_AS_OP(op)

Tensor as_row(const Tensor& t) {
  const Tensor list = t.rank() == 0 ? unsqueeze(t, 0) : t;
  return list.rank() == 1 ? unsqueeze(list, 0) : list;
}

}  // namespace

Tensor hstack(std::initializer_list<Tensor> parts) { return hstack(span_of(parts)); }
Tensor vstack(std::initializer_list<Tensor> parts) { return vstack(span_of(parts)); }
Tensor dstack(std::initializer_list<Tensor> parts) { return dstack(span_of(parts)); }
Tensor column_stack(std::initializer_list<Tensor> parts) { return column_stack(span_of(parts)); }

Tensor hstack(std::span<const Tensor> parts) {
  const bool lists = !parts.empty() && parts[0].defined() && parts[0].rank() <= 1;
  return joined("hstack", parts, lists ? 0 : 1,
                [](const Tensor& t) { return t.rank() == 0 ? unsqueeze(t, 0) : t; });
}

Tensor vstack(std::span<const Tensor> parts) { return joined("vstack", parts, 0, as_row); }

Tensor dstack(std::span<const Tensor> parts) {
  return joined("dstack", parts, 2, [](const Tensor& t) {
    const Tensor matrix = as_row(t);
    return matrix.rank() == 2 ? unsqueeze(matrix, 2) : matrix;
  });
}

Tensor column_stack(std::span<const Tensor> parts) {
  return joined("column_stack", parts, 1, [](const Tensor& t) {
    return t.rank() <= 1 ? reshape(t, {t.numel(), 1}) : t;
  });
}

std::vector<Tensor> unbind(const Tensor& x, std::int64_t axis) {
  require_defined("unbind", x);
  const int a = normalize_axis("unbind", axis, x.rank());
  std::vector<Tensor> out;
  for (std::int64_t i = 0; i < x.size(a); ++i) out.push_back(select(x, a, i));
  return out;
}

std::vector<Tensor> tensor_split(const Tensor& x, std::int64_t pieces, std::int64_t axis) {
  constexpr const char* kOp = "tensor_split";
  require_defined(kOp, x);
  const int a = normalize_axis(kOp, axis, x.rank());
  constexpr std::int64_t kMost = 1 << 24;
  FIRN_CHECK(pieces > 0 && pieces <= kMost, kOp, "1 to 2^24 pieces", "pieces = {}", pieces);
  const std::int64_t n = x.size(a);
  std::vector<Tensor> out;
  for (std::int64_t i = 0, start = 0; i < pieces; ++i) {
    const std::int64_t size = n / pieces + (i < n % pieces ? 1 : 0);
    out.push_back(slice(x, a, start, start + size));
    start += size;
  }
  return out;
}

std::vector<Tensor> tensor_split(const Tensor& x, std::span<const std::int64_t> positions,
                                 std::int64_t axis) {
  constexpr const char* kOp = "tensor_split";
  require_defined(kOp, x);
  const int a = normalize_axis(kOp, axis, x.rank());
  std::vector<Tensor> out;
  std::int64_t start = 0;
  for (const std::int64_t position : positions) {
    out.push_back(slice(x, a, start, position));
    start = position;
  }
  out.push_back(slice(x, a, start, x.size(a)));
  return out;
}

Tensor unflatten(const Tensor& x, std::int64_t axis, const Shape& sizes) {
  constexpr const char* kOp = "unflatten";
  require_defined(kOp, x);
  const int a = normalize_axis(kOp, axis, x.rank());
  FIRN_CHECK(!sizes.empty(), kOp, "give the sizes of the new axes",
             "axis {} of {} has no new sizes", a, describe(x));
  require_rank(kOp, x.rank() - 1 + sizes.size(), x);
  const std::int64_t n = x.size(a);
  std::int64_t known = 1;  // the product of the sizes, no more than n + 1
  int unknown = -1;
  bool none = false;
  for (int i = 0; i < sizes.size(); ++i) {
    FIRN_CHECK(sizes[i] >= 0 || (sizes[i] == -1 && unknown < 0), kOp, "one size may be -1",
               "sizes {}", sizes);
    if (sizes[i] < 0) unknown = i;
    none = none || sizes[i] == 0;
    if (sizes[i] > 0) known = known > n / sizes[i] ? n + 1 : known * sizes[i];
  }
  if (none) known = 0;
  FIRN_CHECK(unknown < 0 ? known == n : known > 0 && n % known == 0, kOp,
             "their product is the size of the axis", "axis {} of {} does not divide into {}", a,
             describe(x), sizes);
  Shape own = sizes;
  if (unknown >= 0) own[unknown] = n / known;
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != a) shape.push_back(x.size(i));
    for (int k = 0; i == a && k < own.size(); ++k) shape.push_back(own[k]);
  }
  return reshape(x, shape);
}

Tensor diag_embed(const Tensor& x, std::int64_t offset, std::int64_t first,
                  std::int64_t second) try {
  constexpr const char* kOp = "diag_embed";
  require_defined(kOp, x);
  FIRN_CHECK(x.rank() >= 1, kOp, "unsqueeze it", "{} has no axis for the diagonal", describe(x));
  require_rank(kOp, x.rank() + 1, x);
  const int a = normalize_axis(kOp, first, x.rank() + 1);
  const int b = normalize_axis(kOp, second, x.rank() + 1);
  FIRN_CHECK(a != b, kOp, "a matrix has two axes", "both axes are {} for {}", a, describe(x));
  FIRN_CHECK(offset > -kMostPositions && offset < kMostPositions, kOp, "a matrix that fits memory",
             "offset = {}", offset);
  const std::int64_t size = x.size(-1) + (offset < 0 ? -offset : offset);
  Shape shape;
  for (int i = 0, k = 0; i <= x.rank(); ++i) shape.push_back(i == a || i == b ? size : x.size(k++));
  checked_elements(kOp, shape);
  return diagonal_scatter(expand(zeros({}, x.dtype(), x.device()), shape), x, offset, a, b);
}
FIRN_AS_OP("diag_embed")

}  // namespace firn
