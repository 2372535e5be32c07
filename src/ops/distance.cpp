// Similarities and distances, made of reductions.
#include "firn/ops/distance.h"

#include <cmath>

#include "ops/common.h"
#include "ops/small_number.h"

namespace firn {

using namespace ops;

namespace {

/// Two floating operands that broadcast, in the dtype in which they are computed.
struct Pair {
  Tensor a, b;
  DType result;
};

Pair as_pair(const char* op, const Tensor& a, const Tensor& b) {
  require_floating(op, a);
  require_floating(op, b);
  require_same(op, a, b);
  broadcast_shapes(op, a.shape(), b.shape());  // throws
  FIRN_CHECK(a.rank() > 0 && b.rank() > 0, op, "vectors have an axis", "{} and {}", describe(a),
             describe(b));
  const DType wide = compute_dtype(a.dtype());
  return {cast(a, wide), cast(b, wide), a.dtype()};
}

}  // namespace

Tensor cosine_similarity(const Tensor& a, const Tensor& b, std::int64_t axis, double eps) {
  constexpr const char* kOp = "cosine_similarity";
  auto [x, y, dtype] = as_pair(kOp, a, b);
  FIRN_CHECK(std::isfinite(eps) && eps >= 0, kOp, "1e-8 is usual",
             "eps = {} is not a finite number of 0 or more", eps);
  ops::require_seen(kOp, "eps", eps, dtype);
  const Shape shape = broadcast_shapes(kOp, x.shape(), y.shape());
  const int at = normalize_axis(kOp, axis, shape.size()) - shape.size();
  // Along the axis both must be whole before lengths are taken; elsewhere they broadcast later.
  const auto whole = [&](const Tensor& t) {
    if (-at > t.rank()) return expand(t, shape);
    Shape own = t.shape();
    own[at] = shape[at];
    return expand(t, own);
  };
  x = whole(x);
  y = whole(y);
  // The length is clamped, its gradient is not.
  const auto length = [&](const Tensor& t) {
    const Tensor n = norm(t, at, true), now = n.detach();
    return n + (maximum(now, eps) - now);
  };
  return cast(sum(x / length(x) * (y / length(y)), at), dtype);
}

Tensor normalize(const Tensor& x, std::int64_t axis, double eps) {
  constexpr const char* kOp = "normalize";
  require_floating(kOp, x);
  FIRN_CHECK(std::isfinite(eps) && eps >= 0, kOp, "1e-12 is usual",
             "eps = {} is not a finite number of 0 or more", eps);
  ops::require_seen(kOp, "eps", eps, x.dtype());
  const int a = normalize_axis(kOp, axis, x.rank());
  const Tensor wide = cast(x, compute_dtype(x.dtype()));
  return cast(wide / clamp(norm(wide, a, true), eps, INFINITY), x.dtype());
}

Tensor pairwise_distance(const Tensor& a, const Tensor& b, const DistanceOptions& options) try {
  constexpr const char* kOp = "pairwise_distance";
  const auto [x, y, dtype] = as_pair(kOp, a, b);
  const auto& [p, eps, keepdims] = options;
  FIRN_CHECK(p != 0 && !std::isnan(p), kOp, "2 is the Euclidean distance", "p is {}", p);
  ops::require_seen(kOp, "eps", eps, dtype);
  const Tensor d = x - y + eps;
  const auto distance = [&, p = p, keepdims = keepdims]() -> Tensor {
    if (p == 2) return norm(d, -1, keepdims);
    if (p == 1) return sum(abs(d), -1, keepdims);
    if (std::isinf(p)) return p > 0 ? max(abs(d), -1, keepdims) : min(abs(d), -1, keepdims);
    return pow(sum(pow(abs(d), p), -1, keepdims), 1 / p);
  };
  return cast(distance(), dtype);
}
FIRN_AS_OP("pairwise_distance")

}  // namespace firn
