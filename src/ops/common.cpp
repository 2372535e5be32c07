#include "ops/common.h"

#include "kernels/reduce.h"

namespace firn::ops {

void require_same(const char* op, const Tensor& a, const Tensor& b) {
  require_defined(op, a);
  require_defined(op, b);
  FIRN_CHECK(a.dtype() == b.dtype(), op,
             fmt::format("cast the first, .to(firn::{}), or the second, .to(firn::{}), or compute "
                         "under Autocast",
                         b.dtype(), a.dtype()),
             "dtypes differ: {} and {}", describe(a), describe(b));
  FIRN_CHECK(a.device() == b.device(), op, "move one of them: x.to(device)",
             "devices differ: {} and {}", describe(a), describe(b));
}

void require_factors(const char* op, const Tensor& a, const Tensor& b) {
  require_defined(op, b);
  const bool castable_pair = autocast_on() && castable(a.dtype()) && castable(b.dtype());
  if (!castable_pair || a.device() != b.device()) require_same(op, a, b);
}

void require_floating(const char* op, const Tensor& t) {
  require_defined(op, t);
  FIRN_CHECK(is_floating(t.dtype()), op, "cast it: x.to(firn::f32)",
             "needs a floating dtype, got {}", describe(t));
}

void require_index(const char* op, const Tensor& t, bool allow_u8) {
  require_defined(op, t);
  FIRN_CHECK(t.dtype() == i64 || t.dtype() == i32 || (allow_u8 && t.dtype() == u8), op,
             "cast it: x.to(firn::i64)", "an index is i64 or i32{}, got {}",
             allow_u8 ? " or u8" : "", describe(t));
}

void accumulate_broadcast(Backward& b, int i, const Tensor& contribution) {
  const Shape& shape = b.input_shape(i);
  if (contribution.shape() == shape) {
    b.accumulate(i, contribution);
    return;
  }
  const auto [grad, beta] = b.sink(i);
  // The sink with leading axes of size 1: the axes to sum over are those where only it has size 1.
  View out = grad.mutable_view();
  while (out.shape.size() < contribution.rank()) {
    out.shape.insert(0, 1);
    out.strides.insert(0, 0);
  }
  kernels::reduce(kernels::ReduceOp::sum, contribution.view(), out, 1.0, beta, b.stream());
}

}  // namespace firn::ops
