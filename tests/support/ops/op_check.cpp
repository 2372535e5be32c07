#include "support/ops/op_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "firn/runtime/storage.h"
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/golden.h"

namespace firn::testing {

DType dtype_for(const Arg& arg, DType real_dtype) {
  if (arg.kind == Arg::Kind::index) return i64;
  return arg.kind == Arg::Kind::boolean ? boolean : real_dtype;
}

bool too_slow(const std::vector<Shape>& shapes, DType dtype, Layout layout) {
#ifdef FIRN_HAS_CUSIM
  constexpr std::int64_t large = 20'000;
  return default_device().is_cuda() &&
         (on_slow_device() || dtype != f32 || layout != Layout::contiguous) &&
         std::any_of(shapes.begin(), shapes.end(),
                     [](const Shape& s) { return s.product() > large; });
#else
  static_cast<void>(shapes), static_cast<void>(dtype), static_cast<void>(layout);
  return false;
#endif
}

namespace {

using Values = std::vector<double>;

Values draw(const Arg& arg, std::int64_t count, Rng& rng) {
  Values v(static_cast<std::size_t>(count));
  if (arg.kind == Arg::Kind::index) {
    for (std::size_t i = 0; i < v.size(); ++i) {
      v[i] =
          arg.has_special && i % 3 == 2 ? arg.special : static_cast<double>(rng.below(arg.classes));
    }
    return v;
  }
  if (arg.kind == Arg::Kind::boolean) {
    for (double& x : v) x = static_cast<double>(rng.below(2));
    return v;
  }
  v = rng.uniforms(count, arg.low, arg.high);
  if (arg.apart) {
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = arg.low +
             (arg.high - arg.low) * (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    for (std::size_t i = v.size(); i > 1; --i)
      std::swap(v[i - 1], v[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(i)))]);
    for (double& x : v) x = std::floor(x * 64) / 64 + arg.phase;
  }
  if (arg.whole)
    for (double& x : v) x = std::floor(x);
  constexpr double gap = 0.05;
  for (double& x : v)
    for (double kink : arg.avoid)
      if (std::fabs(x - kink) < gap) x = x < kink ? kink - gap : kink + gap;
  return v;
}

std::string name_shapes(const std::vector<Shape>& shapes) {
  std::string text;
  for (const Shape& s : shapes) text += to_string(s);
  return text;
}

// One forward and backward pass.
struct Pass {
  Tensor y;
  Values out;
  std::vector<Tensor> grads;  // undefined for operands that take none
};

struct PassOptions {
  DType dtype = f64;
  Layout layout = Layout::contiguous;
  Device device = default_device();
  int only = -1;   // the only operand that requires a gradient; -1: all differentiable ones
  int passes = 1;  // forward and backward so many times, gradients accumulate
};

Args operands_of(const OpRow& row, const std::vector<Shape>& shapes,
                 const std::vector<Values>& values, const PassOptions& o) {
  Args x;
  for (std::size_t i = 0; i < row.args.size(); ++i)
    x.push_back(make(values[i], shapes[i], dtype_for(row.args[i], o.dtype), o.layout, o.device));
  return x;
}

// What others are measured by.
constexpr PassOptions kReference{.device = Device::cpu()};

Pass run(const OpRow& row, const std::vector<Shape>& shapes, const std::vector<Values>& values,
         const Values& seed, const PassOptions& o) {
  const DeviceScope scope(o.device);
  Args x = operands_of(row, shapes, values, o);
  bool any = false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!row.args[i].differentiable || (o.only >= 0 && o.only != static_cast<int>(i))) continue;
    x[i].set_requires_grad();
    any = true;
  }
  Pass p;
  for (int k = 0; k < o.passes; ++k) {
    p.y = row.op(x);
    if (!any) break;
    FIRN_CHECK(p.y.requires_grad(), row.name.c_str(), "", "the result requires no gradient");
    backward(p.y, {.initial_gradient = make(seed, p.y.shape(), p.y.dtype(), o.layout, o.device)});
  }
  p.out = values_of(p.y);
  for (std::size_t i = 0; i < x.size(); ++i) {
    p.grads.push_back(x[i].grad());
    if (!x[i].requires_grad()) {
      CHECK_FALSE(x[i].grad().defined());
      continue;
    }
    INFO("gradient of operand " << i);
    REQUIRE(x[i].grad().defined());
    REQUIRE(to_string(x[i].grad().shape()) == to_string(shapes[i]));
    CHECK(to_string(x[i].grad().dtype()) == std::string(to_string(x[i].dtype())));
  }
  return p;
}

Tensor evaluate(const OpRow& row, const std::vector<Shape>& shapes,
                const std::vector<Values>& values, const PassOptions& o) {
  const NoGrad guard;
  const DeviceScope scope(o.device);
  return row.op(operands_of(row, shapes, values, o));
}

Values initial_gradient_for(const OpRow& row, const std::vector<Shape>& shapes,
                            const std::vector<Values>& values, Rng& rng) {
  return rng.uniforms(evaluate(row, shapes, values, kReference).numel(), -1, 1);
}

// ---- Rung 1 ----

double step_at(double x) { return 0x1p-17 * std::fmax(1.0, std::fabs(x)); }

// Compares <v, J d> with <g, d> for a small displacement d of all operands.
void compare_direction(const std::string& what, const OpRow& row, const std::vector<Shape>& shapes,
                       const std::vector<Values>& at, const std::vector<Values>& displacement,
                       const Values& v, const std::vector<Values>& grads) {
  std::vector<Values> plus = at, minus = at;
  long double analytic = 0;
  double scale = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    for (std::size_t j = 0; j < displacement[i].size(); ++j) {
      if (displacement[i][j] == 0) continue;
      plus[i][j] += displacement[i][j];
      minus[i][j] -= displacement[i][j];
      const double d = (plus[i][j] - minus[i][j]) / 2;  // what the rounding left of it
      analytic += static_cast<long double>(grads[i][j]) * d;
      scale += std::fabs(grads[i][j] * d);
    }
  }
  const Values up = values_of(evaluate(row, shapes, plus, {})),
               down = values_of(evaluate(row, shapes, minus, {}));
  long double numeric = 0;
  double magnitude = 0;
  for (std::size_t k = 0; k < v.size(); ++k) {
    numeric += static_cast<long double>(v[k]) * (up[k] - down[k]) / 2;
    magnitude += std::fabs(v[k] * up[k]);
  }
  // In units of the smallest step, so that the numbers read as derivatives.
  const double h = 0x1p-17;
  expect_close(what, {static_cast<double>(analytic) / h}, {static_cast<double>(numeric) / h},
               1e-7 * scale / h + 1e-9 + 1.2e-10 * magnitude);
}

std::vector<Values> no_displacement(const std::vector<Values>& at) {
  std::vector<Values> d;
  for (const Values& v : at) d.emplace_back(v.size(), 0.0);
  return d;
}

void check_gradient_at(const OpRow& row, const std::vector<Shape>& shapes,
                       const std::vector<Values>& at, Rng& rng) {
  const Values v = initial_gradient_for(row, shapes, at, rng);
  const Pass all = run(row, shapes, at, v, {});
  std::vector<Values> grads(at.size());
  for (std::size_t i = 0; i < at.size(); ++i)
    if (all.grads[i].defined()) grads[i] = values_of(all.grads[i]);

  const Pass twice = run(row, shapes, at, v, {.passes = 2});
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (!all.grads[i].defined()) continue;
    const std::string operand = fmt::format("operand {}", i);
    const Pass alone = run(row, shapes, at, v, {.only = static_cast<int>(i)});
    expect_same(operand + " alone and together", values_of(alone.grads[i]), grads[i]);
    Values doubled = grads[i];
    for (double& g : doubled) g *= 2;
    expect_close(operand + " over two passes", values_of(twice.grads[i]), doubled,
                 1e-14 * (largest(doubled) + std::sqrt(static_cast<double>(v.size()))));

    std::vector<Values> d = no_displacement(at);
    if (at[i].size() <= 64) {
      for (std::size_t j = 0; j < at[i].size(); ++j) {
        d[i][j] = step_at(at[i][j]);
        compare_direction(fmt::format("{}, coordinate {}", operand, j), row, shapes, at, d, v,
                          grads);
        d[i][j] = 0;
      }
    }
    for (int k = 0; k < 3; ++k) {
      for (std::size_t j = 0; j < at[i].size(); ++j)
        d[i][j] = step_at(at[i][j]) * rng.uniform(-1, 1);
      compare_direction(fmt::format("{}, direction {}", operand, k), row, shapes, at, d, v, grads);
    }
  }
  std::vector<Values> d = no_displacement(at);
  for (std::size_t i = 0; i < at.size(); ++i)
    if (all.grads[i].defined())
      for (std::size_t j = 0; j < at[i].size(); ++j)
        d[i][j] = step_at(at[i][j]) * rng.uniform(-1, 1);
  compare_direction("all operands together", row, shapes, at, d, v, grads);
}

bool small(const std::vector<Shape>& shapes) {
  return std::all_of(shapes.begin(), shapes.end(),
                     [](const Shape& s) { return s.product() <= 300; });
}

// The op with one tensor in both places: its gradient is the sum of the two.
void check_repeated(const OpRow& row, Rng& rng) {
  if (row.args.size() != 2 || !row.args[0].differentiable || !row.args[1].differentiable) return;
  if (row.args[0].apart) return;  // max(x, x) has a kink everywhere
  for (std::size_t which = 0; which < row.shapes.size(); ++which) {
    const auto& shapes = row.shapes[which];
    if (!(shapes[0] == shapes[1]) || shapes[0].product() == 0 || !small(shapes)) continue;
    INFO("the same tensor as both operands, shape " << to_string(shapes[0]));
    OpRow one = row;
    one.args = {row.args[0]};
    one.op = [op = row.op](const Args& x) { return op({x[0], x[0]}); };
    one.shapes = {{shapes[0]}};
    check_gradient_at(one, one.shapes[0], operand_values(one, 0), rng);
    return;
  }
}

// ---- Rungs 2 and 3 ----

Values magnitudes(Values v) {
  for (double& x : v) x = std::fabs(x);
  return v;
}

double tiny_of(DType t) { return t == f16 ? 0x1p-25 : 0.0; }

Values forward_bound(const OpRow& row, DType t, const Values& y, const Values& m) {
  const double u = epsilon_of(t), c = epsilon_of(f32), r = row.roundings;
  const double top = std::fmax(largest(y), row.scale);
  Values bound(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double v = std::isfinite(y[i]) ? std::fabs(y[i]) : 0;
    switch (row.accuracy) {
      case Accuracy::exact:
        bound[i] = 0;
        continue;
      // Double rounding through f32 is harmless; the 1e-3 is for the f64 reference's own.
      case Accuracy::rounded:
        bound[i] = u * v * (t == f32 ? 1 : 1.001);
        break;
      case Accuracy::pointwise:
        bound[i] = (r * u + 8 * c) * v;
        break;
      case Accuracy::normwise:
        bound[i] = (r * u + 8 * c) * top;
        break;
      case Accuracy::sum:
        bound[i] = u * v + ((r - 1) * u + (4 * std::sqrt(row.terms) + 2) * c) * m[i];
        break;
    }
    bound[i] += tiny_of(t);
  }
  return bound;
}

// g: the gradient, m: the sums of its terms' magnitudes (for `sum`), v: the seed.
Values backward_bound(const OpRow& row, DType t, const Values& g, const Values& m,
                      const Values& v) {
  const double u = epsilon_of(t), c = epsilon_of(f32);
  const double top = std::fmax(largest(g), row.slope * largest(v));
  const double rounding = 4 * u * row.roundings;
  // An exact op sums only where an operand was broadcast.
  const bool sums = row.accuracy != Accuracy::exact || g.size() < v.size();
  const double summing = sums ? (4 * std::sqrt(static_cast<double>(v.size())) + 8) * c : 0;
  Values bound(g.size());
  for (std::size_t i = 0; i < g.size(); ++i) {
    bound[i] = (rounding + summing) * (row.accuracy == Accuracy::sum ? m[i] : top) + tiny_of(t);
  }
  return bound;
}

}  // namespace

std::vector<Values> operand_values(const OpRow& row, std::size_t which) {
  Rng rng(seed_of(row.name) + which);
  std::vector<Values> values;
  for (std::size_t i = 0; i < row.args.size(); ++i)
    values.push_back(draw(row.args[i], row.shapes[which][i].product(), rng));
  return values;
}

void check_gradient(const OpRow& row) {
  Rng rng(seed_of(row.name + " directions"));
  int checked = 0;
  for (std::size_t which = 0; which < row.shapes.size(); ++which) {
    const auto& shapes = row.shapes[which];
    if (!small(shapes)) continue;
    INFO("shapes " << name_shapes(shapes));
    check_gradient_at(row, shapes, operand_values(row, which), rng);
    ++checked;
  }
  CHECK(checked > 0);
  check_repeated(row, rng);
}

void check_second_derivative(const OpRow& row) {
  Rng rng(seed_of(row.name + " second"));
  int checked = 0;
  for (std::size_t which = 0; which < row.shapes.size() && checked < 2; ++which) {
    const auto& shapes = row.shapes[which];
    if (!small(shapes)) continue;
    ++checked;
    INFO("shapes " << name_shapes(shapes));
    const std::vector<Values> at = operand_values(row, which);
    const Values v = initial_gradient_for(row, shapes, at, rng);
    const PassOptions o;
    Args x = operands_of(row, shapes, at, o);
    std::vector<Tensor> leaves;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!row.args[i].differentiable) continue;
      leaves.push_back(x[i].set_requires_grad());
      places.push_back(i);
    }
    const Tensor y = row.op(x);
    const GradOptions options{
        .initial_gradients = {make(v, y.shape(), y.dtype())}, .create_graph = true, .allow_unused = true};
    if (!row.second) {
      const std::string text = error_of([&] { grad({y}, leaves, options); });
      INFO(text);
      CHECK(text.find("has no second derivative") != std::string::npos);
      continue;
    }
    const std::vector<Tensor> first = grad({y}, leaves, options);
    const Pass pass = run(row, shapes, at, v, {});
    // The sum of the gradient times `w` is what is differentiated again.
    std::vector<Values> w;
    Tensor total = zeros({}, f64);
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      const Values want = values_of(pass.grads[places[k]]);
      w.push_back(rng.uniforms(static_cast<std::int64_t>(want.size()), -1, 1));
      if (!first[k].defined()) {
        CHECK(largest(want) == 0);
        continue;
      }
      expect_close(fmt::format("gradient {}", k), values_of(first[k].detach()), want,
                   1e-12 * (1 + largest(want)));
      total = total + sum(first[k] * make(w.back(), first[k].shape(), f64));
    }
    std::vector<Tensor> second(leaves.size());
    if (total.requires_grad()) second = grad({total}, leaves, {.allow_unused = true});
    const auto weighed = [&](const std::vector<Values>& values, double& magnitude) {
      const Pass p = run(row, shapes, values, v, {});
      long double sum = 0;
      for (std::size_t k = 0; k < leaves.size(); ++k) {
        const Values g = values_of(p.grads[places[k]]);
        for (std::size_t j = 0; j < g.size(); ++j) {
          sum += static_cast<long double>(g[j]) * w[k][j];
          magnitude += std::fabs(g[j] * w[k][j]);
        }
      }
      return sum;
    };
    std::vector<Values> plus = at, minus = at;
    long double analytic = 0;
    double scale = 0, magnitude = 0;
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      const std::size_t i = places[k];
      const Values g = second[k].defined() ? values_of(second[k]) : Values(at[i].size(), 0.0);
      for (std::size_t j = 0; j < at[i].size(); ++j) {
        const double d = 2 * step_at(at[i][j]) * rng.uniform(-1, 1);
        plus[i][j] += d;
        minus[i][j] -= d;
        analytic += static_cast<long double>(g[j]) * (plus[i][j] - minus[i][j]) / 2;
        scale += std::fabs(g[j] * d);
      }
    }
    const long double numeric = (weighed(plus, magnitude) - weighed(minus, magnitude)) / 2;
    const double h = 2 * 0x1p-17;
    expect_close("all operands together", {static_cast<double>(analytic) / h},
                 {static_cast<double>(numeric) / h}, 1e-6 * scale / h + 1e-8 + 2e-10 * magnitude);
  }
  CHECK(checked > 0);
}

void check_against_double(const OpRow& row, DType dtype, std::span<const Layout> layouts) {
  for (std::size_t which = 0; which < row.shapes.size(); ++which) {
    const auto& shapes = row.shapes[which];
    for (const Layout layout : layouts) {
      if (too_slow(shapes, dtype, layout)) continue;
      INFO("shapes " << name_shapes(shapes) << ", " << to_string(layout));
      std::vector<Values> values = operand_values(row, which);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = rounded(values[i], dtype_for(row.args[i], dtype));
        if (layout == Layout::expanded) values[i] = repeated_along_first_axis(values[i], shapes[i]);
      }
      Rng rng(seed_of(row.name + " seed"));
      Values seed = rounded(initial_gradient_for(row, shapes, values, rng), dtype);
      if (layout == Layout::expanded) {
        const Shape out = evaluate(row, shapes, values, kReference).shape();
        seed = repeated_along_first_axis(seed, out);
      }
      const Pass want = run(row, shapes, values, seed, kReference);
      const Pass got = run(row, shapes, values, seed, {.dtype = dtype, .layout = layout});
      Pass terms;
      if (row.accuracy == Accuracy::sum) {
        std::vector<Values> absolute;
        for (const Values& v : values) absolute.push_back(magnitudes(v));
        terms = run(row, shapes, absolute, magnitudes(seed), kReference);
      }
      CHECK(to_string(got.y.shape()) == to_string(want.y.shape()));
      if (row.keeps_dtype) CHECK(std::string(to_string(got.y.dtype())) == to_string(dtype));
      expect_close("forward", got.out, want.out,
                   forward_bound(row, dtype, want.out, magnitudes(terms.out)));
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (!want.grads[i].defined()) continue;
        const Values g = values_of(want.grads[i]);
        const Values m = row.accuracy == Accuracy::sum ? magnitudes(values_of(terms.grads[i])) : g;
        expect_close(fmt::format("gradient of operand {}", i), values_of(got.grads[i]), g,
                     backward_bound(row, dtype, g, m, seed));
      }
    }
  }
}

void check_rounded_once(const OpRow& row, DType dtype) {
  const double u = epsilon_of(dtype);
  for (std::size_t which = 0; which < row.shapes.size(); ++which) {
    const auto& shapes = row.shapes[which];
    if (!small(shapes)) continue;
    INFO("shapes " << name_shapes(shapes));
    std::vector<Values> values = operand_values(row, which), absolute;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = rounded(values[i], dtype_for(row.args[i], dtype));
      absolute.push_back(magnitudes(values[i]));
    }
    const bool sums = row.accuracy == Accuracy::sum;
    const Values want = values_of(evaluate(row, shapes, values, {.dtype = f32}));
    const Values got = values_of(evaluate(row, shapes, values, {.dtype = dtype}));
    const Values terms =
        sums ? magnitudes(values_of(evaluate(row, shapes, absolute, kReference))) : want;
    OpRow once = row;
    once.roundings = 1;
    Values bound = forward_bound(once, f32, want, terms);
    const double top = std::fmax(largest(want), row.scale);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double y = std::isfinite(want[i]) ? std::fabs(want[i]) : 0;
      bound[i] = 1.001 * u * y + (row.roundings - 1) * u * (sums ? terms[i] : top) + 2 * bound[i] +
                 tiny_of(dtype);
    }
    expect_close("beside f32", got, want, bound);
  }
}

void check_golden(const OpRow& row) {
  const auto found = op_goldens().find(row.name);
  if (found == op_goldens().end()) {
    FAIL("no record named " << row.name << " in tests/goldens/ops");
  }
  const Golden& golden = found->second;
  REQUIRE(golden.inputs.size() == row.args.size());
  Args x;
  double count = 1;
  for (const GoldenTensor& t : golden.inputs) {
    x.push_back(make(t.values, t.shape, t.dtype));
    count = std::fmax(count, static_cast<double>(t.values.size()));
  }
  for (const auto& [i, g] : golden.gradients) x[static_cast<std::size_t>(i)].set_requires_grad();
  const Tensor y = row.op(x);
  CHECK(to_string(y.shape()) == to_string(golden.output.shape));
  // Both sides are f64 with a few roundings a term: 16 u a value, and the length of the sums.
  const double u = 16 * 0x1p-53 * std::sqrt(count);
  expect_close("forward", values_of(y), golden.output.values,
               row.accuracy == Accuracy::exact ? 0 : u * largest(golden.output.values));
  if (golden.gradients.empty()) return;
  backward(y, {.initial_gradient = make(golden.seed, y.shape(), y.dtype())});
  for (const auto& [i, want] : golden.gradients) {
    const Tensor grad = x[static_cast<std::size_t>(i)].grad();
    REQUIRE(grad.defined());
    expect_close(fmt::format("gradient of operand {}", i), values_of(grad), want,
                 u * std::fmax(largest(want), 1e-3));
  }
}

void check_integers(const OpRow& row) {
  for (std::size_t which = 0; which < row.shapes.size(); ++which) {
    const auto& shapes = row.shapes[which];
    if (too_slow(shapes, f32, Layout::contiguous)) continue;
    INFO("shapes " << name_shapes(shapes));
    Rng rng(seed_of(row.name) + which);
    std::vector<Values> values;
    for (std::size_t i = 0; i < row.args.size(); ++i) {
      Values v = draw(row.args[i], shapes[i].product(), rng);
      if (row.args[i].kind == Arg::Kind::real)
        for (double& e : v) e = static_cast<double>(rng.below(17)) - 8;
      values.push_back(std::move(v));
    }
    const Values want = values_of(evaluate(row, shapes, values, kReference));
    for (DType t : {i32, i64}) {
      const Tensor y = row.op(operands_of(row, shapes, values, {.dtype = t}));
      // The dtype of an integer sum is the op's choice.
      if (row.keeps_dtype && row.accuracy != Accuracy::sum)
        CHECK(std::string(to_string(y.dtype())) == to_string(t));
      expect_close(to_string(t), values_of(y), want, 0);
    }
  }
}

void check_in_place(const OpRow& row) {
  for (std::size_t which = 0; which < row.shapes.size(); ++which) {
    const auto& shapes = row.shapes[which];
    if (too_slow(shapes, f32, Layout::contiguous)) continue;
    const std::vector<Values> values = operand_values(row, which);
    const Tensor plain = evaluate(row, shapes, values, {});
    if (!(plain.shape() == shapes[0])) continue;  // the first operand would have to grow
    INFO("shapes " << name_shapes(shapes));
    {  // the value, in the same memory, counted as a write
      for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::stepped}) {
        Args x = operands_of(row, shapes, values, {.layout = layout});
        const void* memory = x[0].storage()->data();
        const auto version = x[0].storage()->version();
        row.in_place(x[0], x);
        CHECK(x[0].storage()->data() == memory);
        CHECK(x[0].storage()->version() > version);
        expect_same(std::string("value, ") + to_string(layout), values_of(x[0]), values_of(plain));
      }
    }
    if (!row.differentiable()) continue;
    {  // a leaf that requires a gradient may not be written while ops are recorded
      Args x = operands_of(row, shapes, values, {});
      x[0].set_requires_grad();
      const std::string message = error_of([&] { row.in_place(x[0], x); });
      CHECK(message.find("_]") != std::string::npos);
      expect_same("the leaf after the error", values_of(x[0]), values[0]);
    }
    {  // in the middle of a graph the gradient is that of the plain form
      Rng rng(seed_of(row.name + " seed"));
      const Values seed = rng.uniforms(plain.numel(), -1, 1);
      const Pass want = run(row, shapes, values, seed, {});
      Args x = operands_of(row, shapes, values, {});
      for (std::size_t i = 0; i < x.size(); ++i)
        if (row.args[i].differentiable) x[i].set_requires_grad();
      Tensor y = x[0] * 1.0;
      row.in_place(y, x);
      const Tensor z = y * 1.0;
      backward(z, {.initial_gradient = make(seed, z.shape())});
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (!want.grads[i].defined()) continue;
        REQUIRE(x[i].grad().defined());
        const Values g = values_of(want.grads[i]);
        expect_close(fmt::format("gradient of operand {}", i), values_of(x[i].grad()), g,
                     4e-16 * largest(g));
      }
    }
  }
}

}  // namespace firn::testing
