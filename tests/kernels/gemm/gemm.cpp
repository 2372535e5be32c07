// Matrix products against a plain sum in double: layouts, dtypes, scales, blocks and threads.
#include "kernels/gemm.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
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
                                                     Device::cpu(),
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

Tensor normal(const Shape& shape, DType dtype, Generator& g) {
  return randn(shape, {.dtype = dtype, .device = Device::cpu(), .generator = &g});
}
/// Where the kernel under test runs: FIRN_TEST_DEVICE.
Tensor there(const Tensor& t) { return t.to(default_device()); }
Tensor here(const Tensor& t) { return t.to(Device::cpu()); }

void multiply(const ConstView& a, const ConstView& b, const Tensor& c,
              const kernels::GemmArgs& args = {}) {
  kernels::gemm(a, b, c.mutable_view(), args, current_stream(c.device()));
}

void check(Case s, DType in, DType out, bool flip_a, bool flip_b, kernels::GemmArgs args,
           const Tensor& bias = {}) {
  Generator g(42);
  const Tensor a = normal(flip_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, in, g);
  const Tensor b = normal(flip_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, in, g);
  const Tensor old = args.beta != 0 ? normal({s.m, s.n}, out, g)
                                    : full({s.m, s.n}, std::numeric_limits<double>::quiet_NaN(),
                                           out, Device::cpu());
  const Tensor da = there(a), db = there(b), c = there(clone(old));
  const Tensor device_bias = bias.defined() ? there(bias) : bias;
  if (bias.defined()) args.bias = device_bias.view();
  multiply(flip_a ? swapped(da) : da.view(), flip_b ? swapped(db) : db.view(), c, args);
  INFO("m " << s.m << " n " << s.n << " k " << s.k << " " << to_string(in) << " -> "
            << to_string(out) << " transposed " << flip_a << flip_b << " beta " << args.beta);
  if (bias.defined()) args.bias = bias.view();
  CHECK(error_of(flip_a ? swapped(a) : a.view(), flip_b ? swapped(b) : b.view(), here(c).view(),
                 old.view(), args) <= 1);
}

}  // namespace

TEST_CASE("gemm: sizes, transposed operands, scales and bias") {
  const DType dtype = GENERATE(f32, f64);
  Generator g(1);
  for (const Case& s : std::vector<Case>{{1, 1, 1},
                                         {1, 7, 5},
                                         {9, 1, 4},
                                         {3, 5, 1},
                                         {31, 33, 17},
                                         {64, 10, 100},
                                         {65, 129, 63}}) {
    const Tensor bias = normal({s.n}, dtype, g);
    for (const bool flip_a : {false, true}) {
      for (const bool flip_b : {false, true}) {
        check(s, dtype, dtype, flip_a, flip_b, {});
        check(s, dtype, dtype, flip_a, flip_b, {.alpha = -0.5, .beta = 1, .bias = {}});
        check(s, dtype, dtype, flip_a, flip_b, {.alpha = 2, .beta = 0.25, .bias = {}}, bias);
      }
    }
  }
}

TEST_CASE("gemm: 16-bit operands sum in f32 and may accumulate into f32") {
  const DType in = GENERATE(f16, bf16);
  const DType out = GENERATE_COPY(in, f32);
  Generator g(1);
  for (const Case& s : std::vector<Case>{{5, 6, 1000}, {64, 10, 33}}) {
    check(s, in, out, false, true, {});
    check(s, in, out, true, false, {.alpha = 1, .beta = 1, .bias = {}});
    check(s, in, out, false, true, {}, normal({s.n}, out, g));
  }
}

TEST_CASE("gemm: a sum long enough to be cut into parts") {
  check({16, 24, 9000}, f16, f32, true, false, {.alpha = 1, .beta = 1, .bias = {}});
  check({16, 24, 9000}, f32, f32, false, true, {});
  // On the CPU b is transposed part by part here.
  check({40, 35, 9000}, f32, f32, false, true, {.alpha = -0.5, .beta = 0.25, .bias = {}});
  check({40, 35, 9000}, f32, f32, true, true, {.alpha = 1, .beta = 1, .bias = {}});
}

TEST_CASE("gemm: a transposed left operand, turned part by part") {
  // Two rows of blocks, the last part of the sum shorter; long enough for the CPU to turn it.
  check({70, 140, 600}, f32, f32, true, false, {.alpha = -0.5, .beta = 0.25, .bias = {}});
  check({70, 140, 600}, f32, f32, true, false, {}, full({140}, 3.0, f32, Device::cpu()));
}

TEST_CASE("gemm: a transposed right operand too large to turn at once", "[host]") {
  check({130, 1030, 1030}, f32, f32, false, true, {.alpha = 1, .beta = 1, .bias = {}});
}

TEST_CASE("gemm: layers of few examples, and operands turned once for all blocks", "[once]") {
  const DType dtype = GENERATE(f32, f64);
  Generator g(1);
  // x w^T by way of w x^T; dy w from parts of k; w^T turned before several rows of blocks.
  for (const Case& s : std::vector<Case>{{16, 80, 700},
                                         {33, 515, 301},
                                         {8, 64, 1000},
                                         {20, 515, 300},
                                         {128, 260, 513},
                                         {300, 130, 200}}) {
    const Tensor bias = normal({s.n}, dtype, g);
    for (const bool flip_a : {false, true}) {
      for (const bool flip_b : {false, true}) {
        check(s, dtype, dtype, flip_a, flip_b, {.alpha = -0.5, .beta = 0, .bias = {}});
        check(s, dtype, dtype, flip_a, flip_b, {}, bias);
        check(s, dtype, dtype, flip_a, flip_b, {.alpha = 1, .beta = 1, .bias = {}});
      }
    }
  }
}

TEST_CASE("gemm: a result of many blocks, with the same bits for any number of threads", "[once]") {
  Generator g(1);
  // Many rows; few, whose product turns them; few, whose sum is cut.
  const std::int64_t m = GENERATE(150, 24);
  const bool flip = GENERATE(true, false);
  const Tensor a = normal({m, 700}, f32, g),
               b = normal(flip ? Shape{400, 700} : Shape{700, 400}, f32, g);
  const Tensor da = there(a), db = there(b);
  std::vector<std::vector<float>> results;
  for (const int n : {1, 2, 5}) {
    const testing::Threads threads(n);
    const Tensor c = empty({m, 400});
    multiply(da.view(), flip ? swapped(db) : db.view(), c);
    CHECK(error_of(a.view(), flip ? swapped(b) : b.view(), here(c).view(), here(c).view(), {}) <=
          1);
    results.push_back(c.to_vector<float>());
  }
  for (const auto& r : results)
    CHECK(std::memcmp(r.data(), results[0].data(), r.size() * sizeof(float)) == 0);
}

TEST_CASE("gemm: a column times a row of 16 bits") {
  const DType in = GENERATE(f16, bf16);
  const DType out = GENERATE_COPY(in, f32);
  for (const Case& s : std::vector<Case>{{1, 1030, 1}, {3, 17, 1}, {40, 2, 1}, {1, 1, 1}}) {
    for (const bool flip : {false, true}) {
      check(s, in, out, flip, !flip, {});
      check(s, in, out, flip, flip, {.alpha = -0.5, .beta = 1, .bias = {}});
    }
  }
}

TEST_CASE("gemm: a row times a column, of any length and for any number of threads") {
  const DType dtype = GENERATE(f32, f64, bf16, f16);
  for (const std::int64_t k : {1, 15, 16, 17, 129, 1023, 1025, 70000}) {
    for (const bool flip : {false, true}) {
      check({1, 1, k}, dtype, dtype, flip, !flip, {});
      check({1, 1, k}, dtype, dtype == f64 ? f64 : f32, flip, flip,
            {.alpha = -0.5, .beta = 0.25, .bias = {}});
    }
  }
  Generator g(1);
  const Tensor a = there(normal({1, 200000}, dtype, g)), b = there(normal({200000, 1}, dtype, g));
  std::vector<double> results;
  for (const int n : {1, 2, 5}) {
    const testing::Threads threads(n);
    const Tensor c = empty({1, 1}, {.dtype = dtype});
    multiply(a.view(), b.view(), c);
    results.push_back(c.item());
  }
  CHECK(results[1] == results[0]);
  CHECK(results[2] == results[0]);
}

TEST_CASE("gemm: a right factor that was packed before", "[host]") {
  Generator g(1);
  const auto [in, out] = GENERATE(std::pair{f32, f32}, std::pair{f64, f64}, std::pair{f16, f16},
                                  std::pair{f16, f32}, std::pair{bf16, bf16}, std::pair{bf16, f32});
  const bool flip = GENERATE(false, true), invariant = GENERATE(false, true);
  struct Required {
    explicit Required(bool on) { require_batch_invariance(on); }
    ~Required() { require_batch_invariance(false); }
  } const required(invariant);
  // One row of blocks; several; columns and depths that fill no panel.
  for (const Case& s : std::vector<Case>{
           {64, 1024, 256}, {300, 530, 70}, {33, 77, 131}, {7, 40, 50}, {64, 96, 0}, {0, 40, 50}}) {
    const Tensor a = normal({s.m, s.k}, in, g),
                 b = normal(flip ? Shape{s.n, s.k} : Shape{s.k, s.n}, in, g);
    const Tensor bias = normal({s.n}, f32, g), old = normal({s.m, s.n}, out, g);
    const ConstView right = flip ? swapped(b) : b.view();
    kernels::PackedRight packed = kernels::plan_right(right, s.m);
    INFO(s.m << " x " << s.k << " x " << s.n << " " << in << " -> " << out << " flip " << flip);
    CHECK((packed.unit != nullptr) == (in != f64 && s.k > 0));
    // The same unit multiplies without packing: a library may in f32, unless rows are invariant.
    const bool same = in != f32 || invariant;
    const Tensor memory = empty({packed.bytes}, u8);
    packed.data = memory.mutable_view().data;
    if (packed.unit) kernels::pack_right(right, packed);
    for (const double beta : {0.0, 1.0}) {
      const Tensor x = clone(old), y = clone(old);
      const kernels::GemmArgs args{.alpha = 0.5, .beta = beta, .bias = bias.view()};
      kernels::GemmArgs with = args;
      with.packed = packed;
      multiply(a.view(), right, x, args);
      multiply(a.view(), right, y, with);
      if (beta == 0 && same) CHECK(std::memcmp(x.view().data, y.view().data, x.bytes()) == 0);
      if (s.m > 0) CHECK(error_of(a.view(), right, y.view(), old.view(), with) <= 1);
    }
  }
}

TEST_CASE("gemm: operands and results without a unit stride") {
  Generator g(1);
  const DType dtype = GENERATE(f32, f16);
  const auto every = [](const Tensor& t, int axis, std::int64_t step) {
    return slice(t, axis, 0, t.size(axis), step);
  };
  const Tensor wide_a = normal({20, 26}, dtype, g), wide_b = normal({26, 30}, dtype, g);
  const Tensor device_a = there(wide_a), device_b = there(wide_b);
  const Tensor a = every(wide_a, 1, 2), b = every(every(wide_b, 0, 2), 1, 2);
  const Tensor da = every(device_a, 1, 2), db = every(every(device_b, 0, 2), 1, 2);
  for (const double beta : {0.0, 1.0}) {
    const Tensor wide_c = full({20, 45}, 0.5, dtype), c = every(wide_c, 1, 3);
    const Tensor old = here(c.contiguous());
    multiply(da.view(), db.view(), c, {.alpha = 1, .beta = beta, .bias = {}});
    CHECK(error_of(a.view(), b.view(), here(c.contiguous()).view(), old.view(),
                   {.alpha = 1, .beta = beta, .bias = {}}) <= 1);
    // What lies between is not touched.
    const std::vector<double> all = wide_c.to_vector<double>();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i % 3 != 0) REQUIRE(all[i] == 0.5);
  }
  const Tensor row = normal({1, 13}, dtype, g), device_row = there(row);  // stride 0
  const Tensor c = empty({20, 15}, dtype);
  multiply(broadcast_to(device_row.view(), {20, 13}), db.view(), c);
  CHECK(error_of(broadcast_to(row.view(), {20, 13}), b.view(), here(c).view(), c.view(), {}) <= 1);
}

TEST_CASE("gemm: a result whose columns lie together, with and without a bias") {
  Generator g(1);
  const Tensor a = normal({9, 5}, f32, g), b = normal({5, 7}, f32, g), bias = normal({7}, f32, g);
  const Tensor da = there(a), db = there(b), dbias = there(bias);
  for (const bool with_bias : {false, true}) {
    const Tensor c = full({7, 9}, 2), t = transpose(c, 0, 1);
    const Tensor old = here(t.contiguous());
    kernels::GemmArgs args{.alpha = 1, .beta = 1, .bias = {}};
    if (with_bias) args.bias = dbias.view();
    multiply(da.view(), db.view(), t, args);
    if (with_bias) args.bias = bias.view();
    CHECK(error_of(a.view(), b.view(), here(t.contiguous()).view(), old.view(), args) <= 1);
  }
}

TEST_CASE("gemm: addresses and rows that are not multiples of 16 bytes") {
  Generator g(1);
  const DType dtype = GENERATE(f16, f32);
  const Tensor a = normal({8, 23}, dtype, g), b = normal({23, 11}, dtype, g);
  const Tensor da = there(a), db = there(b), wide = zeros({8, 13}, dtype);
  for (const std::int64_t skip : {0, 1, 2, 3}) {
    const Tensor c = slice(wide, 1, skip % 2, 11 + skip % 2);
    multiply(slice(da, 1, skip, 23).view(), slice(db, 0, skip, 23).view(), c);
    CHECK(error_of(slice(a, 1, skip, 23).view(), slice(b, 0, skip, 23).view(),
                   here(c.contiguous()).view(), c.view(), {}) <= 1);
  }
}

TEST_CASE("gemm: batches, one of them repeated with stride 0") {
  const std::int64_t batch = GENERATE(1, 3, 20);
  const DType dtype = GENERATE(f32, bf16, f64);
  Generator g(1);
  const Tensor a = normal({batch, 6, 5}, dtype, g), b = normal({1, 5, 7}, dtype, g);
  const Tensor bias = normal({7}, dtype, g);
  const Tensor da = there(a), db = there(b), dbias = there(bias);
  for (const bool with_bias : {false, true}) {
    const Tensor c = empty({batch, 6, 7}, dtype);
    kernels::GemmArgs args;
    if (with_bias) args.bias = dbias.view();
    multiply(da.view(), broadcast_to(db.view(), {batch, 5, 7}), c, args);
    const Tensor result = here(c);
    if (with_bias) args.bias = bias.view();
    for (std::int64_t i = 0; i < batch; ++i)
      CHECK(error_of(a[i].view(), b[0].view(), result[i].view(), result[i].view(), args) <= 1);
  }
}

TEST_CASE("gemm: an empty inner axis gives beta c + bias") {
  const DType dtype = GENERATE(f32, f64, f16);
  const Tensor a = zeros({2, 0}, dtype), b = zeros({0, 3}, dtype), bias = full({3}, 0.5, dtype);
  const Tensor c = full({2, 3}, 4, dtype);
  multiply(a.view(), b.view(), c, {.alpha = 1, .beta = 1, .bias = bias.view()});
  CHECK(c.to_vector<double>() == std::vector<double>(6, 4.5));
  multiply(a.view(), b.view(), c, {.alpha = 1, .beta = 0.5, .bias = {}});
  CHECK(c.to_vector<double>() == std::vector<double>(6, 2.25));
  multiply(a.view(), b.view(), c);
  CHECK(c.to_vector<double>() == std::vector<double>(6, 0));
  const Tensor none = zeros({0, 3}, dtype);
  multiply(zeros({0, 4}, dtype).view(), zeros({4, 3}, dtype).view(), none);
  CHECK(none.numel() == 0);
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("gemm: an error of the library names the product, the status and the shapes") {
  if (default_device().is_cpu()) return;
  const Tensor a = zeros({4, 5}), b = zeros({5, 3}, f32, Device::cpu()), c = zeros({4, 3});
  std::string message;
  try {
    multiply(a.view(), b.view(), c);  // on a GPU this would be a fault of the kernel
  } catch (const Error& e) {
    message = e.what();
  }
  CHECK(message.find("[gemm] cublasLtMatmul answered CUBLAS_STATUS_INVALID_VALUE (7) for A [3, 5] "
                     "ld 3, B [5, 4] ld 5, D [3, 4] ld 3 (column-major), f32 -> f32") == 0);
}
#endif
