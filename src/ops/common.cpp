#include "ops/common.h"

#include <cmath>
#include <typeinfo>

#include "kernels/reduce.h"

namespace firn::ops {

namespace {
const char* name_in_code(DType t) { return t == boolean ? "boolean" : to_string(t); }
}  // namespace

void require_same(const char* op, const Tensor& a, const Tensor& b, bool casts) {
  require_defined(op, a);
  require_defined(op, b);
  // Autocast leaves f64 and integers as they are; if it is on already, it did not help.
  const bool autocast_helps = casts && !autocast_on() && castable(a.dtype()) && castable(b.dtype());
  // Rounding numbers to integers is seldom meant.
  const bool one_floats = is_floating(a.dtype()) != is_floating(b.dtype());
  FIRN_CHECK(a.dtype() == b.dtype() || !one_floats, op,
             fmt::format("cast the {}, .to(firn::{})", is_floating(a.dtype()) ? "second" : "first",
                         name_in_code(is_floating(a.dtype()) ? a.dtype() : b.dtype())),
             "dtypes differ: {} and {}", describe(a), describe(b));
  FIRN_CHECK(a.dtype() == b.dtype(), op,
             fmt::format("cast the first, .to(firn::{}), or the second, .to(firn::{}){}",
                         name_in_code(b.dtype()), name_in_code(a.dtype()),
                         autocast_helps ? ", or compute under Autocast" : ""),
             "dtypes differ: {} and {}", describe(a), describe(b));
  FIRN_CHECK(a.device() == b.device(), op, "move one of them: x.to(device)",
             "devices differ: {} and {}", describe(a), describe(b));
}

void require_factors(const char* op, const Tensor& a, const Tensor& b) {
  require_defined(op, b);
  const bool castable_pair = autocast_on() && castable(a.dtype()) && castable(b.dtype());
  if (!castable_pair || a.device() != b.device()) require_same(op, a, b);
}

void require_holds(const char* op, DType dtype, double number) {
  if (is_floating(dtype) || is_float8(dtype)) {
    const double most = max_of(dtype);
    // From half an ulp above the largest finite value on, numbers round to infinity.
    const bool held = (!std::isfinite(number) && (dtype != f8_e4m3 || std::isnan(number))) ||
                      std::abs(number) <= most ||
                      (dtype != f64 && std::abs(number) < most * (1 + epsilon_of(dtype) / 2));
    FIRN_CHECK(held, op,
               dtype == f8_e4m3 && !std::isfinite(number)
                   ? "f8_e4m3 has no infinity: take f8_e5m2, or a number up to 448"
               : number < 0 ? "take a wider dtype, or -INFINITY for a mask before softmax"
                            : "take a wider dtype, or INFINITY if it stands for no limit",
               "{} is {} as {}", number, dtype == f8_e4m3 ? "NaN" : "infinite", dtype);
    return;
  }
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const auto [least, most] = visit(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T> && sizeof(T) < 8) {
      using Range = std::numeric_limits<T>;
      return std::pair<double, double>(Range::min(), Range::max());
    } else {
      return std::pair(-kExact, kExact);
    }
  });
  FIRN_CHECK(number == std::floor(number) && number >= least && number <= most, op,
             dtype == i64 && std::abs(number) > kExact
                 ? "beyond 2^53 give it as a tensor: firn::tensor({std::int64_t{...}})"
                 : "name a dtype that holds it, such as firn::f32",
             "{} does not fit {}", number, dtype);
}

void require_computed(const char* op, const Tensor& x) {
  require_defined(op, x);
  kernels::detail::require_computed(op, x.view());
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

bool broadcasts_to(const Shape& from, const Shape& to) noexcept {
  bool fits = from.size() <= to.size();
  for (int i = 1; fits && i <= from.size(); ++i) {
    const std::int64_t n = from[from.size() - i];
    fits = n == 1 || n == to[to.size() - i];
  }
  return fits;
}

void fail_as(const char* op, const Error& error) {
  if (error.op() == op || typeid(error) != typeid(Error)) throw;
  throw Error(op, error.message(), error.hint());
}

void accumulate_broadcast(Backward& b, int i, const Tensor& contribution) {
  const Shape& shape = b.input_shape(i);
  if (contribution.shape() == shape) {
    b.accumulate(i, contribution);
    return;
  }
  const auto [grad, beta] = b.sink(i);
  // The sink with leading axes of size 1. Sum over the axes along which only the sink has size 1.
  View out = grad.mutable_view();
  while (out.shape.size() < contribution.rank()) {
    out.shape.insert(0, 1);
    out.strides.insert(0, 0);
  }
  kernels::reduce(kernels::ReduceOp::sum, contribution.view(), out, 1.0, beta, b.stream());
}

}  // namespace firn::ops
