// Matrix products against a plain sum in double: layouts, dtypes, scales, blocks and threads.
#include "kernels/gemm.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/threads.h"

using namespace firn;

namespace {

/// A view of `t` with its last two axes swapped: a transposed operand, no copy.
ConstView swapped(const Tensor& t) {
  ConstView v = t.view();
  std::swap(v.shape[v.rank() - 1], v.shape[v.rank() - 2]);
  std::swap(v.strides[v.rank() - 1], v.strides[v.rank() - 2]);
  return v;
}

double at(const ConstView& v, std::int64_t i, std::int64_t j) {
  const std::int64_t offset = i * v.strides[0] + j * v.strides[1];
  return visit(v.dtype, [&]<class T>() { return static_cast<double>(v.as<T>()[offset]); });
}

/// Largest error of c = alpha a b + beta old + bias, in units of the bound (4 sqrt(k) + 2) u_sum
/// sum |a b| + u_out |c|. What is above 1 is wrong.
double error_of(const ConstView& a, const ConstView& b, const ConstView& c, const ConstView& old,
                const kernels::GemmArgs& args) {
  const std::int64_t k = a.shape[1];
  const double sum_unit = epsilon_of(compute_dtype(a.dtype)), out_unit = epsilon_of(c.dtype);
  double worst = 0;
  for (std::int64_t i = 0; i < c.shape[0]; ++i) {
    for (std::int64_t j = 0; j < c.shape[1]; ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t q = 0; q < k; ++q) {
        const double p = args.alpha * at(a, i, q) * at(b, q, j);
        sum += p;
        magnitude += std::abs(p);
      }
      for (const double term : {args.beta != 0 ? args.beta * at(old, i, j) : 0.0,
                                args.bias.data ? at({args.bias.data,
                                                     args.bias.dtype,
                                                     {},
                                                     {1, c.shape[1]},
                                                     {0, args.bias.strides[0]}},
                                                    0, j)
                                               : 0.0}) {
        sum += term;
        magnitude += std::abs(term);
      }
      const double bound = (4 * std::sqrt(static_cast<double>(k)) + 4) * sum_unit * magnitude +
                           out_unit * std::abs(sum) + 1e-300;
      worst = std::max(worst, std::abs(at(c, i, j) - sum) / bound);
    }
  }
  return worst;
}

struct Case {
  std::int64_t m, n, k;
};

void check(Case s, DType in, DType out, bool flip_a, bool flip_b, kernels::GemmArgs args) {
  Generator g(42);
  const Tensor a = flip_a ? randn({s.k, s.m}, in, {}, 0, 1, g) : randn({s.m, s.k}, in, {}, 0, 1, g);
  const Tensor b = flip_b ? randn({s.n, s.k}, in, {}, 0, 1, g) : randn({s.k, s.n}, in, {}, 0, 1, g);
  const Tensor old = args.beta != 0
                         ? randn({s.m, s.n}, out, {}, 0, 1, g)
                         : full({s.m, s.n}, std::numeric_limits<double>::quiet_NaN(), out);
  const Tensor c = clone(old);
  const ConstView x = flip_a ? swapped(a) : a.view(), y = flip_b ? swapped(b) : b.view();
  kernels::gemm(x, y, c.mutable_view(), args, Stream{});
  INFO("m " << s.m << " n " << s.n << " k " << s.k << " " << to_string(in) << " -> "
            << to_string(out) << " transposed " << flip_a << flip_b << " beta " << args.beta);
  CHECK(error_of(x, y, c.view(), old.view(), args) <= 1);
}

}  // namespace

TEST_CASE("gemm: sizes, transposed operands, scales and bias") {
  const DType dtype = GENERATE(f32, f64);
  for (const Case& s : std::vector<Case>{{1, 1, 1},
                                         {1, 7, 5},
                                         {9, 1, 4},
                                         {3, 5, 1},
                                         {31, 33, 17},
                                         {64, 10, 100},
                                         {65, 129, 63}}) {
    const Tensor bias = randn({s.n}, dtype);
    for (const bool flip_a : {false, true}) {
      for (const bool flip_b : {false, true}) {
        check(s, dtype, dtype, flip_a, flip_b, {});
        check(s, dtype, dtype, flip_a, flip_b, {.alpha = -0.5, .beta = 1, .bias = {}});
        check(s, dtype, dtype, flip_a, flip_b, {.alpha = 2, .beta = 0.25, .bias = bias.view()});
      }
    }
  }
}

TEST_CASE("gemm: 16-bit operands sum in f32 and may accumulate into f32") {
  const DType in = GENERATE(f16, bf16);
  const DType out = GENERATE_COPY(in, f32);
  for (const Case& s : std::vector<Case>{{5, 6, 1000}, {64, 10, 33}}) {
    check(s, in, out, false, true, {});
    check(s, in, out, true, false, {.alpha = 1, .beta = 1, .bias = {}});
  }
}

TEST_CASE("gemm: a result of many blocks, with the same bits for any number of threads") {
  const Tensor a = randn({150, 700}), b = randn({400, 700});
  std::vector<std::vector<float>> results;
  for (const int n : {1, 2, 5}) {
    const testing::Threads threads(n);
    const Tensor c = empty({150, 400});
    kernels::gemm(a.view(), swapped(b), c.mutable_view(), kernels::GemmArgs{}, Stream{});
    CHECK(error_of(a.view(), swapped(b), c.view(), c.view(), {}) <= 1);
    results.push_back(c.to_vector<float>());
  }
  for (const auto& r : results)
    CHECK(std::memcmp(r.data(), results[0].data(), r.size() * sizeof(float)) == 0);
}

TEST_CASE("gemm: operands and results without a unit stride") {
  const Tensor wide_a = randn({20, 26}), wide_b = randn({26, 30}), wide_c = zeros({20, 45});
  const Tensor a = slice(wide_a, 1, 0, 26, 2), b = slice(slice(wide_b, 0, 0, 26, 2), 1, 0, 30, 2);
  const Tensor c = slice(wide_c, 1, 0, 45, 3);
  kernels::gemm(a.view(), b.view(), c.mutable_view(), kernels::GemmArgs{}, Stream{});
  CHECK(error_of(a.view(), b.view(), c.view(), c.view(), {}) <= 1);
  // What lies between is not touched.
  CHECK(sum(abs(slice(wide_c, 1, 1, 45, 3))).item() == 0);
  const Tensor row = expand(randn({1, 13}), {20, 13});  // stride 0
  kernels::gemm(row.view(), b.view(), c.mutable_view(), kernels::GemmArgs{}, Stream{});
  CHECK(error_of(row.view(), b.view(), c.view(), c.view(), {}) <= 1);
}

TEST_CASE("gemm: batches, one of them repeated with stride 0") {
  const std::int64_t batch = GENERATE(1, 3, 20);
  const Tensor a = randn({batch, 6, 5}), b = randn({1, 5, 7}), c = empty({batch, 6, 7});
  kernels::gemm(a.view(), broadcast_to(b.view(), {batch, 5, 7}), c.mutable_view(),
                kernels::GemmArgs{}, Stream{});
  for (std::int64_t i = 0; i < batch; ++i)
    CHECK(error_of(a[i].view(), b[0].view(), c[i].view(), c[i].view(), {}) <= 1);
}

TEST_CASE("gemm: an empty inner axis gives beta c + bias") {
  const DType dtype = GENERATE(f32, f64, f16);
  const Tensor a = zeros({2, 0}, dtype), b = zeros({0, 3}, dtype), bias = full({3}, 0.5, dtype);
  const Tensor c = full({2, 3}, 4, dtype);
  kernels::gemm(a.view(), b.view(), c.mutable_view(),
                kernels::GemmArgs{.alpha = 1, .beta = 1, .bias = bias.view()}, Stream{});
  CHECK(c.to_vector<double>() == std::vector<double>(6, 4.5));
  kernels::gemm(a.view(), b.view(), c.mutable_view(), kernels::GemmArgs{}, Stream{});
  CHECK(sum(c).item() == 0);
}
