// Adafactor: a factored second moment, computed by reductions over rows and columns.
#include "firn/optim/rules/adafactor.h"

#include <cmath>

#include "base/check.h"
#include "optim/rules/algebra.h"
#include "optim/rules/rule.h"

namespace firn::optim {
namespace {

using namespace algebra;

constexpr const char* kAdafactor = "Adafactor";

/// Returns `shape` with size 1 at the axis, which is counted from the end.
Shape without(Shape shape, std::int64_t axis) {
  shape[axis] = 1;
  return shape;
}

/// to = from + intake (target - from). Overwrites target.
void average(const Tensor& from, const Tensor& target, const Tensor& intake, const Tensor& to) {
  binary(BinaryOp::sub, target, from, target);
  binary(BinaryOp::mul, target, intake, target);
  binary(BinaryOp::add, from, target, to);
}

/// Returns the root of the mean square of x: [1].
Tensor root_mean_square(const Tensor& x) {
  const Tensor out = sum_of_squares(line(x), {1}, 1 / static_cast<double>(x.numel()));
  unary(UnaryOp::sqrt, out);
  return out;
}

void at_least(double low, const Tensor& x) { binary(BinaryOp::maximum, x, number(low, x), x); }

class AdafactorRule final : public NonElementwiseRule {
 public:
  explicit AdafactorRule(const AdafactorOptions& o) : options_(o) {}

  std::vector<State> states(const NamedTensor& parameter, const std::string&) const override {
    const Shape& shape = parameter.tensor.shape();
    if (shape.size() < 2) return {{"variance", shape}};
    return {{"row_variance", without(shape, -1)}, {"column_variance", without(shape, -2)}};
  }

  std::string options() const override {
    const AdafactorOptions& o = options_;
    return fmt::format("beta2_decay {}, eps1 {}, eps2 {}, clip {}, weight_decay {}", o.beta2_decay,
                       o.eps1 ? fmt::format("{}", *o.eps1) : "unset", o.eps2, o.clip,
                       o.weight_decay);
  }

  std::vector<RuleNumber> numbers() const override {
    const double eps1 = options_.eps1.value_or(1);
    return {{"eps1", eps1},          {"the square of eps1", eps1 * eps1},
            {"eps2", options_.eps2}, {"beta2_decay", options_.beta2_decay},
            {"clip", options_.clip}, {"weight_decay", options_.weight_decay}};
  }

  void compute(const NonElementwiseStep& s) const override {
    const AdafactorOptions& o = options_;
    const double eps1 = o.eps1.value_or(s.weight.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23);
    const Tensor step = root_mean_square(s.weight);
    at_least(o.eps2, step);
    const Tensor relative = binary(BinaryOp::pow, s.t, number(-0.5, s.t));
    binary(BinaryOp::minimum, relative, s.lr, relative);
    binary(BinaryOp::mul, step, relative, step);

    const Tensor update = variance(s, eps1);
    at_least(eps1 * eps1, update);
    unary(UnaryOp::rsqrt, update);
    binary(BinaryOp::mul, update, s.gradient, update);
    const Tensor size = root_mean_square(update);
    axpby(1 / o.clip, size, 0, size);
    at_least(1, size);
    binary(BinaryOp::div, step, size, step);

    const Tensor shrink = number(1, s.lr);
    axpby(-o.weight_decay, s.lr, 1, shrink);
    binary(BinaryOp::mul, s.weight, shrink, s.weight);
    binary(BinaryOp::mul, update, step, update);
    binary(BinaryOp::sub, s.weight, update, s.next_weight);
  }

 private:
  /// Returns the estimate of g^2 from the new states, in the gradient's memory order.
  Tensor variance(const NonElementwiseStep& s, double eps1) const {
    const Tensor& g = s.gradient;
    const Tensor intake = binary(BinaryOp::pow, s.t, number(options_.beta2_decay, s.t));
    const Tensor v = empty({g.numel()}, g.dtype(), g.device()).as_strided(g.shape(), g.strides());
    if (g.rank() < 2) {
      binary(BinaryOp::mul, g, g, v);
      average(s.states[0], v, intake, s.next_states[0]);
      copy(s.next_states[0], v);
      return v;
    }
    const Tensor &rows = s.next_states[0], &columns = s.next_states[1];
    const auto one_of = [](std::int64_t n) { return 1 / static_cast<double>(n); };
    average(s.states[0], sum_of_squares(g, rows.shape(), one_of(g.size(-1))), intake, rows);
    average(s.states[1], sum_of_squares(g, columns.shape(), one_of(g.size(-2))), intake, columns);
    const Tensor mean = sum(rows, without(rows.shape(), -2), one_of(g.size(-2)));
    at_least(eps1, mean);
    binary(BinaryOp::mul, binary(BinaryOp::div, rows, mean), columns, v);
    return v;
  }

  const AdafactorOptions options_;
};

void check(const AdafactorOptions& o) {
  FIRN_CHECK(o.beta2_decay <= 0 && o.beta2_decay > -HUGE_VAL, kAdafactor, "-0.8 is usual",
             "beta2_decay is {}, not 0 or less", o.beta2_decay);
  // Zero gradients make 0 / max(0, eps1).
  const double eps1 = o.eps1.value_or(1);
  require_positive(kAdafactor, "eps1", eps1, "leave it unset");
  FIRN_CHECK(eps1 * eps1 > 0, kAdafactor, "leave it unset", "eps1 is {}, and its square 0", eps1);
  require_decay(kAdafactor, "eps2", o.eps2, "1e-3 is usual");
  require_option(kAdafactor, "clip", o.clip, 1, "1 is usual");
}

}  // namespace

template <>
struct RuleOf<AdafactorOptions> {
  static constexpr const char* kName = kAdafactor;
  static void take(GroupOptions&, AdafactorOptions&) {}
  static GroupSetup setup(const AdafactorOptions& o) {
    check(o);
    GroupSetup out{.parameters = {}, .rule = math::Replace{}};
    out.whole = std::make_shared<const AdafactorRule>(o);
    return out;
  }
};

template class OptimizerOf<AdafactorOptions>;

}  // namespace firn::optim
