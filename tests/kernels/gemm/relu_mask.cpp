// relu of a dense layer: which gradients pass, and that no NaN is lost, on the CPU and by every way
// of a CUDA device.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "kernels/dense.h"
#include "kernels/gemm/ways.h"
#include "support/catch.h"
#include "support/small_grids.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Kind = kernels::Activation;
using kernels::Epilogues;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

/// x is [rows, 2], and every row of w is {2^-13, 1}: a row of y is a 2^-13 + b before relu, without
/// roundings in f32. In f16, 2^-25 rounds to 0 and half as much again to 2^-24.
const std::vector<double> kRows = {0, 0,        -0.0,    -0.0,       1,       -0x1p-13, 0,
                                   1, 0,        -1,      kNan,       1,       0,        kInf,
                                   0, -kInf,    0x1p-13, 0,          0x1p-12, 0,        0x1.8p-12,
                                   0, -0x1p-12, 0,       -0x1.8p-12, 0,       3,        -0x1p-10};

struct Results {
  std::vector<double> y, mask, dx;
};

/// The layer and the data gradient of the one above, whose two outputs have weights of 1. y and dx
/// start `offset` elements after aligned memory.
Results compute(Device device, DType dtype, std::int64_t n, bool with_bias, std::int64_t offset) {
  const auto m = static_cast<std::int64_t>(kRows.size()) / 2;
  std::vector<double> weights;
  for (std::int64_t j = 0; j < n; ++j) weights.insert(weights.end(), {0x1p-13, 1});
  const Tensor x = make(kRows, {m, 2}, dtype, Layout::contiguous, device);
  const Tensor w = make(weights, {n, 2}, dtype, Layout::contiguous, device);
  const Tensor bias = zeros({n}, dtype, device);
  const Tensor memory = full({m * n + offset}, kNan, dtype, device);
  View y = slice(memory, 0, offset, m * n + offset).mutable_view();
  y.shape = {m, n};
  y.strides = {n, 1};
  const auto layout = kernels::dense_saved(Kind::relu, m, n, dtype);
  const Tensor mask = full(layout.shape, 255, layout.dtype, device);
  const Tensor gradient = full({m * n + offset}, kNan, dtype, device);
  View dx = slice(gradient, 0, offset, m * n + offset).mutable_view();
  dx.shape = {m, n};
  dx.strides = {n, 1};
  const Stream stream = current_stream(device);
  kernels::dense_forward(x.view(), w.view(), with_bias ? bias.view() : ConstView{}, Kind::relu, y,
                         mask.mutable_view(), stream);
  kernels::dense_data_gradient(ones({m, 2}, dtype, device).view(),
                               ones({2, n}, dtype, device).view(), Kind::relu, mask.view(), dx,
                               stream);
  return {values_of(slice(memory, 0, offset, m * n + offset)), values_of(mask),
          values_of(slice(gradient, 0, offset, m * n + offset))};
}

/// The bytes and gradients that y asks for.
void check(const Results& got, std::int64_t n) {
  const std::size_t columns = static_cast<std::size_t>(n), rows = got.y.size() / columns;
  const std::size_t bytes = got.mask.size() / rows;
  for (std::size_t i = 0; i < rows; ++i) {
    std::vector<double> mask(bytes), dx(columns);
    for (std::size_t j = 0; j < columns; ++j) {
      const bool passes = !(got.y[i * columns + j] <= 0);
      if (passes) mask[j / 8] += 1 << (j % 8);
      dx[j] = passes ? 2 : 0;
    }
    const auto row = [&](const std::vector<double>& all, std::size_t length) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * length);
      return std::vector<double>(first, first + static_cast<std::ptrdiff_t>(length));
    };
    INFO("row " << i);
    CHECK(row(got.mask, bytes) == mask);
    CHECK(row(got.dx, columns) == dx);
  }
}

/// 0 for -0, so that results may differ in its sign.
std::vector<double> without_signed_zeros(std::vector<double> values) {
  for (double& v : values) v = v == 0 ? 0 : v;
  return values;
}

}  // namespace

TEST_CASE("dense: relu passes the gradient where its stored result is above 0 or NaN") {
  const DType dtype = GENERATE(f32, f16, bf16, f64);
  const bool with_bias = GENERATE(false, true);
  for (const std::int64_t n : {3, 8, 128, 130, 200}) {
    const Results cpu = compute(Device::cpu(), dtype, n, with_bias, 0);
    check(cpu, n);
    for (const Epilogues e : twins()) {
      const Twin twin(e);
      for (const std::int64_t offset : {0, 1}) {
        INFO(to_string(dtype) << " n " << n << " way " << static_cast<int>(e) << " offset "
                              << offset);
        const Results got = compute(default_device(), dtype, n, with_bias, offset);
        check(got, n);
        expect_same("y", without_signed_zeros(got.y), without_signed_zeros(cpu.y));
        CHECK(got.mask == cpu.mask);
        CHECK(got.dx == cpu.dx);
      }
    }
  }
}

#ifdef FIRN_HAS_CUDA
TEST_CASE("dense: relu where threads stride over more than a grid holds", "[gpu]") {
  const Twin twin(Epilogues::unfused);
  const Results want = compute(default_device(), f16, 200, false, 0);
  const SmallGrids small(1);
  const Results got = compute(default_device(), f16, 200, false, 0);
  expect_same("y", got.y, want.y);
  CHECK(got.mask == want.mask);
  expect_same("dx", got.dx, want.dx);
}
#endif

TEST_CASE("dense: infinities and NaN come through the activation") {
  const DType dtype = GENERATE(f32, f16);
  const Kind activation = GENERATE(Kind::relu, Kind::gelu_tanh);
  const bool saves = GENERATE(false, true);
  for (const Epilogues e : twins()) {
    const Twin twin(e);
    const Tensor x = tensor<double>({kInf, -kInf, kNan, 2}, {4, 1}).to(dtype);
    const Tensor w = ones({8, 1}, dtype), y = empty({4, 8}, dtype);
    const auto layout = kernels::dense_saved(activation, 4, 8, dtype);
    const Tensor saved = empty(layout.shape, layout.dtype);
    kernels::dense_forward(x.view(), w.view(), ConstView{}, activation, y.mutable_view(),
                           saves ? saved.mutable_view() : View{}, current_stream(y.device()));
    const auto got = values_of(y);
    CHECK(got[0] == kInf);
    if (activation == Kind::relu) CHECK(got[8] == 0);
    CHECK(std::isnan(got[16]));
    CHECK(got[24] == Approx(activation == Kind::relu ? 2 : 1.9546).epsilon(2e-3));
  }
}

TEST_CASE("dense: the slope of relu at 0 is 0") {
  const DType dtype = GENERATE(f32, f16, f64);
  for (const Epilogues e : twins()) {
    const Twin twin(e);
    const Stream stream = current_stream(default_device());
    const Tensor x = tensor<double>({-1, 0, 1}, {3, 1}).to(dtype), w = ones({8, 1}, dtype);
    const Tensor y = empty({3, 8}, dtype), dx = empty({3, 8}, dtype);
    const auto layout = kernels::dense_saved(Kind::relu, 3, 8, dtype);
    const Tensor saved = empty(layout.shape, layout.dtype);
    kernels::dense_forward(x.view(), w.view(), ConstView{}, Kind::relu, y.mutable_view(),
                           saved.mutable_view(), stream);
    // The layer above has two outputs, with weights of 1.
    kernels::dense_data_gradient(ones({3, 2}, dtype).view(), ones({2, 8}, dtype).view(), Kind::relu,
                                 saved.view(), dx.mutable_view(), stream);
    const auto got = values_of(dx);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == (i < 16 ? 0 : 2));
  }
}

}  // namespace firn::testing
