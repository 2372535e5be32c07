// Elementwise kernels on the CPU: every op against the C library in every dtype, and every geometry
// against a loop over index tuples.
#include "kernels/elementwise.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "firn/device.h"
#include "kernels/copy.h"
#include "support/catch.h"
#include "support/device/run_kernel.h"
#include "support/formulas.h"

namespace {

using namespace firn;
using math::Args;
using math::BinaryOp;
using math::UnaryOp;
namespace run = firn::testing::run;
using firn::testing::args_of;

View view(void* data, DType dtype, const Shape& shape) {
  return {data, dtype, Device(), shape, contiguous_strides(shape)};
}
template <class T>
View view(std::vector<T>& v) {
  return view(v.data(), dtype_of<T>, {static_cast<std::int64_t>(v.size())});
}

/// The op by its definition, from the C library; a different road from math/unary.h where there is
/// one.
double reference(UnaryOp op, double x, Args p) {
  switch (op) {
    case UnaryOp::neg:
      return -x;
    case UnaryOp::abs:
      return std::fabs(x);
    case UnaryOp::exp:
      return std::exp(x);
    case UnaryOp::log:
      return std::log(x);
    case UnaryOp::sqrt:
      return std::sqrt(x);
    case UnaryOp::rsqrt:
      return 1 / std::sqrt(x);
    case UnaryOp::square:
      return x * x;
    case UnaryOp::reciprocal:
      return 1 / x;
    case UnaryOp::relu:
      return std::isnan(x) ? x : std::fmax(x, 0.0);
    case UnaryOp::leaky_relu:
      return x > 0 ? x : p.a * x;
    case UnaryOp::elu:
      return x > 0 ? x : p.a * std::expm1(x);
    case UnaryOp::gelu:
      return x * (0.5 * std::erfc(-x / std::sqrt(2.0)));
    case UnaryOp::gelu_tanh: {
      // 1 + tanh(u) = 2/(1 + e^-2u), which keeps the left tail.
      const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
      return x * (1 / (1 + std::exp(-2 * u)));
    }
    case UnaryOp::sigmoid:
      return 1 / (1 + std::exp(-x));
    case UnaryOp::silu:
      return x * (1 / (1 + std::exp(-x)));
    case UnaryOp::tanh:
      return std::tanh(x);
    case UnaryOp::softplus:
      return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    case UnaryOp::sin:
      return std::sin(x);
    case UnaryOp::cos:
      return std::cos(x);
    case UnaryOp::tan:
      return std::tan(x);
    case UnaryOp::asin:
      return std::asin(x);
    case UnaryOp::acos:
      return std::acos(x);
    case UnaryOp::atan:
      return std::atan(x);
    case UnaryOp::sinh:
      return std::sinh(x);
    case UnaryOp::cosh:
      return std::cosh(x);
    case UnaryOp::asinh:
      return std::asinh(x);
    case UnaryOp::acosh:
      return std::acosh(x);
    case UnaryOp::atanh:
      return std::atanh(x);
    case UnaryOp::log10:
      return std::log10(x);
    case UnaryOp::hardshrink:
      return std::fabs(x) <= p.a ? 0 : x;
    case UnaryOp::softshrink:
      return x > p.a ? x - p.a : x < -p.a ? x + p.a : x * 0;
    case UnaryOp::clamp:
      return std::isnan(x) ? x : std::fmin(std::fmax(x, p.a), p.b);
    case UnaryOp::log1p:
      return std::log1p(x);
    case UnaryOp::expm1:
      return std::expm1(x);
    case UnaryOp::log2:
      return std::log2(x);
    case UnaryOp::exp2:
      return std::exp2(x);
    case UnaryOp::erf:
      return std::erf(x);
    case UnaryOp::erfc:
      return std::erfc(x);
    case UnaryOp::floor:
      return std::floor(x);
    case UnaryOp::ceil:
      return std::ceil(x);
    case UnaryOp::round:
      return std::nearbyint(x);
    case UnaryOp::trunc:
      return std::trunc(x);
    case UnaryOp::sign:
      return (x > 0) - (x < 0);
    case UnaryOp::isnan:
      return std::isnan(x);
    case UnaryOp::isinf:
      return std::isinf(x);
    case UnaryOp::isfinite:
      return std::isfinite(x);
    case UnaryOp::logical_not:
      return x == 0;
    case UnaryOp::nan_to_num:
      return std::isnan(x) ? p.a : std::isinf(x) ? (x > 0 ? p.b : p.c) : x;
    case UnaryOp::hardswish:
      return x <= -3 ? x * 0 : x >= 3 ? x : x * (x + 3) / 6;  // NaN at -infinity
    case UnaryOp::hardsigmoid:
      return std::isnan(x) ? x : x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) / 6;
    case UnaryOp::softsign:
      return x / (1 + std::fabs(x));
    case UnaryOp::mish:
      return x * std::tanh(x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)));
    case UnaryOp::celu:
      return std::isnan(x) ? x : std::fmax(x, 0) + std::fmin(p.a * std::expm1(x / p.a), 0);
    case UnaryOp::selu:
      return 1.0507009873554804934 * (x > 0 ? x : 1.6732632423543772848 * std::expm1(x));
    case UnaryOp::logsigmoid:
      return x > 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
    case UnaryOp::hardtanh:
      return std::isnan(x) ? x : std::fmin(std::fmax(x, p.a), p.b);
    case UnaryOp::threshold:
      return x <= p.a ? p.b : x;
    case UnaryOp::bitwise_not:
      break;  // of integers only
    case UnaryOp::add_number:
      return x + p.a;
    case UnaryOp::mul_number:
      return x * p.a;
    case UnaryOp::div_number:
      return x / p.a;
    case UnaryOp::pow_number:
      return std::pow(x, p.a);
    case UnaryOp::number_sub:
      return p.a - x;
    case UnaryOp::number_div:
      return p.a / x;
  }
  throw Error("reference", "an op without a definition here");
}

/// Distance in units of the format: how many 16-bit values lie between.
template <class H>
int distance(H a, H b) {
  const float fa = a, fb = b;
  if (std::isnan(fa) || std::isnan(fb)) return std::isnan(fa) && std::isnan(fb) ? 0 : 1 << 20;
  const auto order = [](H h) {
    const int magnitude = h.bits & 0x7fff;
    return h.bits & 0x8000 ? -magnitude : magnitude;
  };
  return std::abs(order(a) - order(b));
}

template <class H>
void check_all_inputs(DType dtype) {
  std::vector<H> x(65536), y(65536);
  for (int i = 0; i < 65536; ++i) x[i] = H::from_bits(static_cast<std::uint16_t>(i));
  for (const math::UnaryInfo& op : math::kUnaryOps) {
    if (!op.floats) continue;
    const Args args = args_of(op.op);
    run::unary(op.op, view(x), view(y), args);
    int worst = 0, at = 0;
    for (int i = 0; i < 65536; ++i) {
      const double exact = reference(op.op, static_cast<double>(static_cast<float>(x[i])), args);
      // f32 subnormals count as zero while kernels run: inputs (bf16 has them), results, and what a
      // formula meets on the way to a tiny result.
      const bool tiny = std::fabs(static_cast<float>(x[i])) < 1.2e-38f || std::fabs(exact) < 1e-35;
      if (dtype == bf16 && tiny && x[i] != 0.f) continue;
      const int d = distance(y[i], H(static_cast<float>(exact)));
      if (d > worst) worst = d, at = i;
    }
    INFO(op.name << " " << to_string(dtype) << ": " << worst << " ulp at "
                 << static_cast<float>(x[at]) << ", got " << static_cast<float>(y[at]));
    CHECK(worst <= 1);
  }
}

/// The derivative of ops that save their input, of those that take a GPU longer than their bytes
/// do.
double slope(UnaryOp op, double x, Args p) {
  const double cdf = 0.5 * std::erfc(-x / std::sqrt(2.0)), s = 1 / (1 + std::exp(-x));
  switch (op) {
    case UnaryOp::elu:
      return x > 0 ? 1 : p.a * std::exp(x);
    case UnaryOp::gelu:
      return cdf + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
    case UnaryOp::gelu_tanh: {
      const double c = 2 * std::sqrt(2 / M_PI),
                   g = 1 / (1 + std::exp(-c * (x + 0.044715 * x * x * x)));
      return g + x * g * (1 - g) * c * (1 + 3 * 0.044715 * x * x);
    }
    case UnaryOp::silu:
      return s * (1 + x * (1 - s));
    case UnaryOp::mish: {
      const double t = std::tanh(x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)));
      return t + x * s * (1 - t * t);
    }
    case UnaryOp::celu:
      return x > 0 ? 1 : std::exp(x / p.a);
    case UnaryOp::selu:
      return 1.0507009873554804934 * (x > 0 ? 1 : 1.6732632423543772848 * std::exp(x));
    case UnaryOp::logsigmoid:
      return 1 / (1 + std::exp(x));
    case UnaryOp::softsign:
      return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x)));
    case UnaryOp::erf:
      return 2 / std::sqrt(M_PI) * std::exp(-x * x);
    default:  // softplus
      return s;
  }
}

template <class H>
void check_all_gradients(DType dtype) {
  std::vector<H> x, one;
  for (int i = 0; i < 65536; ++i) {
    const H h = H::from_bits(static_cast<std::uint16_t>(i));
    const float size = std::fabs(static_cast<float>(h));
    if (size < 1e4f && (size > 1.2e-38f || size == 0.f)) x.push_back(h);
  }
  one.assign(x.size(), H(1.f));
  std::vector<H> dx(x.size());
  for (const UnaryOp op : {UnaryOp::elu, UnaryOp::gelu, UnaryOp::gelu_tanh, UnaryOp::silu,
                           UnaryOp::softplus, UnaryOp::mish, UnaryOp::celu, UnaryOp::selu,
                           UnaryOp::logsigmoid, UnaryOp::softsign, UnaryOp::erf}) {
    const Args args = args_of(op);
    run::unary_backward(op, view(one), view(x), view(dx), args, 0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = slope(op, static_cast<double>(static_cast<float>(x[i])), args);
      // Rounded once; and two terms near 1 may cancel, whose errors then stay.
      const double bound = 0.51 * (dtype == f16 ? 0x1p-10 : 0x1p-7) * std::fabs(exact) +
                           (std::fabs(exact) < 0.25 ? 0x1p-20 : 0) + (dtype == f16 ? 0x1p-25 : 0);
      const double got = static_cast<double>(static_cast<float>(dx[i]));
      if (!(std::fabs(got - exact) <= bound))
        FAIL(math::info(op).name << "' " << to_string(dtype) << " at " << static_cast<float>(x[i])
                                 << ": " << got << ", not " << exact);
    }
  }
}

std::vector<double> test_inputs(int n) {
  std::vector<double> x(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = std::sin(i * 0.731) * 6 + 0.01;
  return x;
}

/// A [64, 64] view with element (i, j) = values[64 i + j].
template <class H>
struct Placed {
  std::vector<H> memory;
  View view;
  Placed(const std::vector<H>& values, const Strides& strides)
      : memory(static_cast<std::size_t>(63 * (strides[0] + strides[1]) + 1)),
        view{memory.data(), dtype_of<H>, Device(), {64, 64}, strides} {
    for (int k = 0; k < 4096; ++k) at(k) = values[static_cast<std::size_t>(k)];
  }
  H& at(int k) {
    return memory[static_cast<std::size_t>(k / 64 * view.strides[0] + k % 64 * view.strides[1])];
  }
};

/// Every unary op and its gradient through contiguous views, rows with gaps, columns, and every
/// second element: all give the same bits.
template <class H>
void check_unary_geometries() {
  std::vector<H> values, dys;
  for (int k = 0; k < 4096; ++k) {
    values.push_back(H::from_bits(static_cast<std::uint16_t>(16 * k + k % 13)));
    dys.push_back(H(1.f + static_cast<float>(k % 7) / 8.f));
  }
  for (const math::UnaryInfo& op : math::kUnaryOps) {
    if (!op.floats) continue;
    std::vector<H> y[2];
    for (const Strides& strides :
         {Strides{64, 1}, Strides{72, 1}, Strides{1, 64}, Strides{130, 2}}) {
      Placed<H> x(values, strides), dy(dys, {64, 1}), out(values, strides), dx(values, strides);
      run::unary(op.op, x.view, out.view, args_of(op.op));
      if (op.has_gradient())
        run::unary_backward(op.op, dy.view, x.view, dx.view, args_of(op.op), 0);
      const bool first = y[0].empty();
      int bad = 0;
      for (int k = 0; k < 4096; ++k) {
        if (first) {
          y[0].push_back(out.at(k)), y[1].push_back(dx.at(k));
        } else {
          const auto place = static_cast<std::size_t>(k);
          bad += distance(out.at(k), y[0][place]) != 0 || distance(dx.at(k), y[1][place]) != 0;
        }
      }
      INFO(op.name << " " << to_string(dtype_of<H>) << " " << to_string(strides));
      CHECK(bad == 0);
    }
  }
}

/// Every second element of a buffer, and the same in reversed axis order: views with gaps.
template <class T>
struct Buffers {
  std::vector<T> memory;
  View view;
  Buffers(const Shape& shape, const Strides& strides) {
    std::int64_t last = 0;
    for (int i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * strides[i];
    memory.resize(static_cast<std::size_t>(last + 1));
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory[i] = static_cast<T>(static_cast<float>(static_cast<int>((i * 37) % 101) - 50) / 8.f);
    }
    view = {memory.data(), dtype_of<T>, Device(), shape, strides};
  }
  double at(const std::int64_t* index) const {
    std::int64_t offset = 0;
    for (int i = 0; i < view.shape.size(); ++i) offset += index[i] * view.strides[i];
    return static_cast<double>(memory[static_cast<std::size_t>(offset)]);
  }
};

/// out = beta*out + dy*b through strided views of three dtypes, compared with a plain loop.
template <class T>
void check_geometry(const Shape& shape, const Strides& a_strides, const Strides& b_strides,
                    const Strides& out_strides, float beta) {
  const Buffers<T> dy(shape, a_strides), b(shape, b_strides);
  Buffers<T> out(shape, out_strides);
  const Buffers<T> before(shape, out_strides);
  run::binary_backward(BinaryOp::mul, 0, dy.view, dy.view, b.view, out.view, {}, beta);
  std::int64_t index[kMaxRank] = {};
  int bad = 0;
  for (std::int64_t i = 0; i < shape.product(); ++i) {
    const double want = dy.at(index) * b.at(index) + (beta != 0 ? before.at(index) : 0);
    const double stored = static_cast<double>(static_cast<T>(static_cast<float>(want)));
    bad += out.at(index) != stored;
    for (int d = shape.size() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
  INFO(to_string(shape) << " " << to_string(a_strides) << " " << to_string(b_strides) << " "
                        << to_string(out_strides) << " " << to_string(dtype_of<T>));
  CHECK(bad == 0);
}

}  // namespace

TEST_CASE("all 65,536 f16 and bf16 inputs of every unary op come within 1 ulp of rounded f64") {
  check_all_inputs<half>(f16);
  check_all_inputs<bfloat16>(bf16);
}

TEST_CASE("the gradients of activations at every f16 and bf16 input are f64's, rounded once") {
  check_all_gradients<half>(f16);
  check_all_gradients<bfloat16>(bf16);
}

TEST_CASE("unary ops in f32 and f64 come within a few ulp") {
  const std::vector<double> exact_x = test_inputs(1537);
  std::vector<float> x(exact_x.begin(), exact_x.end()), y(x.size());
  std::vector<double> xd(x.begin(), x.end()), yd(x.size());
  for (const math::UnaryInfo& op : math::kUnaryOps) {
    if (!op.floats) continue;
    const Args args = args_of(op.op);
    run::unary(op.op, view(x), view(y), args);
    run::unary(op.op, view(xd), view(yd), args);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = reference(op.op, xd[i], args);
      INFO(op.name << "(" << xd[i] << ")");
      if (std::isnan(want)) {
        CHECK((std::isnan(y[i]) && std::isnan(yd[i])));
        continue;
      }
      // In the tails an argument's rounding error comes out times x^2 <= 36.
      const double bound = 100 * std::fabs(want) + 1e-30;
      if (std::fabs(y[i] - want) > epsilon_of(f32) * bound) FAIL("f32: " << y[i] << ", " << want);
      if (std::fabs(yd[i] - want) > epsilon_of(f64) * bound) FAIL("f64: " << yd[i] << ", " << want);
    }
  }
}

TEST_CASE("the derivative of every unary op matches central differences") {
  std::vector<double> x = test_inputs(97), dy(x.size(), 2.0), dx(x.size()), saved(x.size());
  for (const math::UnaryInfo& op : math::kUnaryOps) {
    if (!op.has_gradient()) continue;
    const Args args = args_of(op.op);
    run::unary(op.op, view(x), view(saved), args);
    const bool input = op.saves == math::Saves::input;
    for (float beta : {0.f, 1.f}) {
      std::fill(dx.begin(), dx.end(), beta == 0 ? std::nan("") : 0.5);
      run::unary_backward(op.op, view(dy), input ? view(x) : view(saved), view(dx), args, beta);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double h = 1e-5;
        const double slope =
            (reference(op.op, x[i] + h, args) - reference(op.op, x[i] - h, args)) / (2 * h);
        if (std::isnan(slope)) continue;  // outside the domain
        INFO(op.name << "'(" << x[i] << "), beta " << beta);
        CHECK(dx[i] == Approx(2 * slope + 0.5 * beta).epsilon(1e-5).margin(1e-7));
      }
    }
  }
}

TEST_CASE("the derivatives of every binary op match central differences") {
  const std::vector<double> raw = test_inputs(61);
  for (const math::BinaryInfo& op : math::kBinaryOps) {
    if (!op.has_gradient()) continue;
    // Positive operands: in the domain of pow and kl_div. A target need not be in [0, 1].
    std::vector<double> a(raw.size()), b(raw.size()), dy(raw.size(), 1.5), g(raw.size());
    for (std::size_t i = 0; i < raw.size(); ++i) {
      a[i] = std::fabs(raw[i]) + 0.1;
      b[i] = std::fabs(raw[(i * 7 + 3) % raw.size()]) / 2 + 0.2;
    }
    const Args args{0.9, 0};
    for (int operand = 0; operand < 2; ++operand) {
      std::vector<double>& moved = operand == 0 ? a : b;
      std::vector<double> up(raw.size()), down(raw.size());
      const std::vector<double> kept = moved;
      const double h = 1e-6;
      for (double& v : moved) v += h;
      run::binary(op.op, view(a), view(b), view(up), args);
      for (double& v : moved) v -= 2 * h;
      run::binary(op.op, view(a), view(b), view(down), args);
      moved = kept;
      std::fill(g.begin(), g.end(), 0.25);
      run::binary_backward(op.op, operand, view(dy), view(a), view(b), view(g), args, 1);
      for (std::size_t i = 0; i < raw.size(); ++i) {
        if (std::isnan(up[i])) continue;  // outside the domain: bce of more than 1
        INFO(op.name << " operand " << operand << " at " << a[i] << ", " << b[i]);
        CHECK(g[i] == Approx(0.25 + 1.5 * (up[i] - down[i]) / (2 * h)).epsilon(1e-6).margin(1e-7));
      }
    }
  }
}

TEST_CASE("views of any strides, broadcast, accumulated or not, give what a plain loop gives") {
  const float beta = GENERATE(0.f, 1.f);
  const auto all = [&](const Shape& shape, const Strides& a, const Strides& b, const Strides& out) {
    check_geometry<float>(shape, a, b, out, beta);
    check_geometry<half>(shape, a, b, out, beta);
    check_geometry<bfloat16>(shape, a, b, out, beta);
    check_geometry<double>(shape, a, b, out, beta);
  };
  all({}, {}, {}, {});
  all({1}, {7}, {0}, {3});
  all({17}, {1}, {1}, {1});
  all({1000}, {2}, {1}, {3});
  all({5000}, {1}, {0}, {1});
  all({33, 70}, {70, 1}, {0, 1}, {70, 1});
  all({33, 70}, {70, 1}, {1, 0}, {70, 1});
  all({33, 70}, {1, 33}, {70, 1}, {70, 1});
  all({33, 70}, {1, 33}, {1, 33}, {1, 33});
  all({33, 70}, {0, 0}, {1, 33}, {1, 40});
  all({3, 1, 4, 5}, {20, 9, 5, 1}, {0, 0, 5, 1}, {40, 1, 10, 2});
  all({7, 11, 13}, {143, 13, 1}, {0, 1, 0}, {1, 7, 77});
  all({2, 3, 2, 3, 2, 3, 2, 3}, {648, 216, 108, 36, 18, 6, 3, 1}, {0, 1, 0, 3, 0, 9, 0, 27},
      {1, 2, 6, 12, 36, 72, 216, 432});
  all({300, 301}, {301, 1}, {0, 1}, {301, 1});  // several chunks
  all({0, 4}, {4, 1}, {4, 1}, {4, 1});
}

TEST_CASE("unary ops in 16 bits give the same bits for views of any strides") {
  check_unary_geometries<half>();
  check_unary_geometries<bfloat16>();
}

TEST_CASE("an output that is an input") {
  std::vector<half> x(999);
  for (int i = 0; i < 999; ++i) x[i] = half(static_cast<float>(i - 500) / 100.f);
  std::vector<half> want(999), y = x;
  run::unary(UnaryOp::gelu, view(x), view(want), {});
  run::unary(UnaryOp::gelu, view(y), view(y), {});
  CHECK(std::memcmp(y.data(), want.data(), 2 * y.size()) == 0);
  std::vector<float> a(333, 3.f);
  run::binary(BinaryOp::mul, view(a), view(a), view(a), {});
  CHECK(a[332] == 9.f);
}

TEST_CASE("integers: arithmetic in 64 bits, comparisons of all dtypes") {
  std::vector<std::int64_t> a{1, -2, (std::int64_t{1} << 53) + 1}, b{5, -2, 1}, y(3);
  run::binary(BinaryOp::add, view(a), view(b), view(y), {});
  CHECK(y == std::vector<std::int64_t>{6, -4, (std::int64_t{1} << 53) + 2});
  std::vector<std::uint8_t> flags(3, 9);
  run::binary(BinaryOp::eq, view(a), view(b), view(flags.data(), boolean, {3}), {});
  CHECK(flags == std::vector<std::uint8_t>{0, 1, 0});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> u{1, nan, 3}, v{1, nan, 2};
  const auto compare = [&](BinaryOp op) {
    run::binary(op, view(u), view(v), view(flags.data(), boolean, {3}), {});
    return flags[0] * 4 + flags[1] * 2 + flags[2];
  };
  CHECK(compare(BinaryOp::eq) == 4);
  CHECK(compare(BinaryOp::ne) == 3);
  CHECK(compare(BinaryOp::lt) == 0);
  CHECK(compare(BinaryOp::le) == 4);
  CHECK(compare(BinaryOp::gt) == 1);
  CHECK(compare(BinaryOp::ge) == 5);
}

TEST_CASE("minimum and maximum: NaN wins, ties share") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> a{1, nan, 2, 5}, b{2, 1, nan, 5}, y(4), dy(4, 1.f);
  for (BinaryOp op : {BinaryOp::minimum, BinaryOp::maximum}) {
    run::binary(op, view(a), view(b), view(y), {});
    CHECK(y[0] == (op == BinaryOp::minimum ? 1.f : 2.f));
    CHECK((std::isnan(y[1]) && std::isnan(y[2]) && y[3] == 5.f));
    for (int operand : {0, 1}) {
      run::binary_backward(op, operand, view(dy), view(a), view(b), view(y), {}, 0);
      CHECK(y[3] == 0.5f);
      CHECK(y[0] == ((op == BinaryOp::minimum) == (operand == 0) ? 1.f : 0.f));
    }
  }
}

TEST_CASE("pow has finite gradients at base 0") {
  std::vector<double> a{0, 0, 0, 2}, b{0, 1, 2, 0}, dy(4, 1), da(4), db(4);
  run::binary_backward(BinaryOp::pow, 0, view(dy), view(a), view(b), view(da), {}, 0);
  run::binary_backward(BinaryOp::pow, 1, view(dy), view(a), view(b), view(db), {}, 0);
  CHECK(da == std::vector<double>{0, 1, 0, 0});
  CHECK(db[0] == 0);
  CHECK(db[1] == 0);
  CHECK(db[2] == 0);
  CHECK(db[3] == Approx(std::log(2.0)));
}

TEST_CASE("where and axpby") {
  std::vector<std::uint8_t> c{1, 0, 1};
  std::vector<float> a{1, 2, 3}, b{std::nanf(""), 5, HUGE_VALF}, y(3, 10.f);
  run::where(view(c.data(), boolean, {3}), view(a), view(b), view(y), 1);
  CHECK(y == std::vector<float>{11, 15, 13});
  run::where(view(c.data(), boolean, {3}), view(a), view(b), view(y), 0);
  CHECK(y == std::vector<float>{1, 5, 3});
  std::vector<std::int64_t> p{1, 2, 3}, q{4, 5, 6};
  run::where(view(c.data(), boolean, {3}), view(p), view(q), view(q), 0);
  CHECK(q == std::vector<std::int64_t>{1, 5, 3});

  std::vector<half> h{half(1.f), half(2.f), half(3.f)};
  run::axpby(2, view(h), 1, view(a));
  CHECK(a == std::vector<float>{3, 6, 9});
  std::vector<float> nans(3, std::nanf(""));
  run::axpby(0.5, view(a), 0, view(nans));
  CHECK(nans == std::vector<float>{1.5, 3, 4.5});
}

TEST_CASE("elementwise results do not depend on the number of threads", "[host]") {
  std::vector<float> x(100'003), z(x.size()), one(x.size()), more(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = 4 * std::sin(static_cast<float>(i));
    z[i] = i % 97 == 0 ? 1e-7f : 3 * std::cos(static_cast<float>(3 * i));
    if (i % 101 == 0) x[i] *= 1e30f;
  }
  const int before = num_threads();
  const auto check = [&](const char* name, auto run_into) {
    set_num_threads(1);
    run_into(view(one));
    for (const int threads : {2, 3, 4}) {
      set_num_threads(threads);
      run_into(view(more));
      INFO(name << " with " << threads << " threads");
      CHECK(std::memcmp(one.data(), more.data(), one.size() * sizeof(float)) == 0);
    }
    set_num_threads(before);
  };
  for (const math::UnaryInfo& op : math::kUnaryOps) {
    if (op.gives_bool || !op.floats) continue;
    check(op.name, [&](const View& y) { run::unary(op.op, view(x), y, args_of(op.op)); });
  }
  for (const BinaryOp op : {BinaryOp::pow, BinaryOp::atan2, BinaryOp::fmod, BinaryOp::remainder})
    check(math::info(op).name, [&](const View& y) { run::binary(op, view(x), view(z), y, {}); });
}
