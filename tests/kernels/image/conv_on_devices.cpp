// The three products of a convolution on a CUDA device against plain loops in double: strides,
// padding, dilation and groups, all dtypes, views in any order, sums that go on from what is there,
// chunks of columns, and the bits in every order of threads and blocks.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/conv.h"
#include "kernels/twins.h"
#include "runtime/graph/captured_graph.h"
#include "support/catch.h"
#include "support/convolution.h"
#include "support/device/simulator.h"
#include "support/values.h"
#ifdef FIRN_HAS_CUDA
#include "kernels/cuda/conv/parts.h"
#include "kernels/settings/settings.h"

namespace firn::testing {
namespace {

using kernels::ConvPath;
using Case = ConvCase;

const std::vector<Case> kCases = {
    {2, 1, 8, 7, 5, 3, 3, {}},
    {2, 8, 7, 6, 5, 3, 3, {.stride = {2, 2}, .before = {1, 1}, .after = {1, 1}}},
    {1, 3, 9, 10, 4, 2, 3, {{2, 1}, {1, 0}, {0, 2}, {1, 2}}},
    {2, 16, 5, 6, 16, 3, 3, {.before = {1, 1}, .after = {1, 1}}},
    {3, 8, 5, 5, 6, 1, 1, {}},
    {2, 4, 6, 5, 8, 1, 1, {.stride = {2, 2}}},
    {2, 4, 4, 4, 3, 1, 1, {.before = {1, 1}, .after = {1, 1}}},
    {1, 2, 9, 8, 3, 4, 4, {.stride = {4, 4}}},
    {1, 2, 5, 5, 3, 5, 5, {}},
    {2, 8, 6, 5, 4, 3, 3, {.before = {1, 1}, .after = {1, 1}, .groups = 2}},
    {2, 16, 4, 4, 16, 1, 1, {.groups = 2}},
    {2, 4, 8, 9, 4, 3, 3, {{1, 2}, {1, 1}, {-1, 0}, {2, 1}}},  // the last row is cut off
    {2, 6, 5, 5, 12, 3, 3, {.stride = {2, 1}, .before = {1, 1}, .after = {1, 1}, .groups = 6}},
};

std::vector<double> bound_of(const Sums& s, DType in, DType out, std::int64_t terms) {
  std::vector<double> bound(s.value.size());
  for (std::size_t i = 0; i < bound.size(); ++i) {
    bound[i] = (4 * std::sqrt(static_cast<double>(terms)) + 4) * epsilon_of(compute_dtype(in)) *
                   s.magnitude[i] +
               2 * epsilon_of(out) * std::abs(s.value[i]) + (out == f16 ? 0x1p-24 : 1e-38);
  }
  return bound;
}

enum class Order { channels_last, row_major, stepped };

/// Values of a rank-4 view in an order of memory; what lies between them is NaN.
class Operand {
 public:
  Operand(const std::vector<double>& values, const Shape& shape, DType dtype, Order order)
      : shape_(shape) {
    strides_ = order == Order::channels_last ? strides_in(shape, MemoryFormat::channels_last)
                                             : contiguous_strides(shape);
    if (order == Order::stepped)
      for (std::int64_t& s : strides_) s *= 3;
    std::int64_t last = 0;
    for (int d = 0; d < 4; ++d) last += (shape[d] - 1) * strides_[d];
    std::vector<double> memory(static_cast<std::size_t>(last + 1), std::nan(""));
    each([&](std::size_t i, std::size_t at) { memory[at] = values[i]; });
    twins_.emplace(dtype, memory);
  }
  View view() const { return twins_->device(shape_, strides_); }
  std::vector<double> values() const {
    const std::vector<double> memory = twins_->device_values();
    std::vector<double> out(static_cast<std::size_t>(shape_.product()));
    each([&](std::size_t i, std::size_t at) { out[i] = memory[at]; });
    return out;
  }

 private:
  template <class Fn>
  void each(Fn&& fn) const {
    std::size_t i = 0;
    for (std::int64_t a = 0; a < shape_[0]; ++a)
      for (std::int64_t b = 0; b < shape_[1]; ++b)
        for (std::int64_t c = 0; c < shape_[2]; ++c)
          for (std::int64_t d = 0; d < shape_[3]; ++d)
            fn(i++, static_cast<std::size_t>(a * strides_[0] + b * strides_[1] + c * strides_[2] +
                                             d * strides_[3]));
  }

  Shape shape_;
  Strides strides_;
  std::optional<Twins> twins_;
};

/// While alive, products take this path, with columns in chunks of about so many bytes.
class Path {
 public:
  explicit Path(ConvPath path, std::size_t bytes = std::size_t{64} << 20)
      : path_(kernels::conv_path().exchange(path)),
        bytes_(kernels::column_bytes().exchange(bytes)) {}
  ~Path() {
    kernels::conv_path() = path_;
    kernels::column_bytes() = bytes_;
  }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

 private:
  ConvPath path_;
  std::size_t bytes_;
};

/// A case's values, the same for every dtype but for rounding.
struct Data {
  std::vector<double> x, w, dy, bias;
  Data(const Case& c, DType t) {
    Rng rng(seed_of(c.name()));
    x = rounded(rng.uniforms(c.x().product(), -1, 1), t);
    w = rounded(rng.uniforms(c.weight().product(), -1, 1), t);
    dy = rounded(rng.uniforms(c.y().product(), -1, 1), t);
    bias = rounded(rng.uniforms(c.k, -1, 1), t);
  }
};

std::vector<double> forward(const Case& c, const Data& d, DType t, Order order, bool with_bias,
                            bool relu) {
  const Operand x(d.x, c.x(), t, order), w(d.w, c.weight(), t, order);
  const Operand y(std::vector<double>(d.dy.size(), std::nan("")), c.y(), t, order);
  const Twins bias(t, d.bias);
  const ConstView added = with_bias ? ConstView(bias.device({c.k})) : ConstView{};
  kernels::cuda::conv_forward(x.view(), w.view(), added, relu, c.geometry, y.view(),
                              device_stream());
  return y.values();
}
/// `before`: what the gradient already is, where it is added to.
std::vector<double> data_gradient(const Case& c, const Data& d, DType t, DType out, Order order,
                                  const std::vector<double>& before) {
  const Operand dy(d.dy, c.y(), t, order), w(d.w, c.weight(), t, order);
  const Operand dx(before.empty() ? std::vector<double>(d.x.size(), std::nan("")) : before, c.x(),
                   out, order);
  kernels::cuda::conv_data_gradient(dy.view(), w.view(), c.geometry, dx.view(),
                                    before.empty() ? 0.f : 1.f, device_stream());
  return dx.values();
}
std::vector<double> weight_gradient(const Case& c, const Data& d, DType t, DType out, Order order,
                                    const std::vector<double>& before) {
  const Operand dy(d.dy, c.y(), t, order), x(d.x, c.x(), t, order);
  const Operand dw(before.empty() ? std::vector<double>(d.w.size(), std::nan("")) : before,
                   c.weight(), out, order);
  kernels::cuda::conv_weight_gradient(dy.view(), x.view(), c.geometry, dw.view(),
                                      before.empty() ? 0.f : 1.f, device_stream());
  return dw.values();
}

void check_case(const Case& c, DType t, Order order) {
  const Data d(c, t);
  const std::int64_t taps = c.weight().product() / c.k, positions = c.y().product() / c.k;
  for (const bool with_bias : {false, true}) {
    for (const bool relu : {false, true}) {
      std::vector<double> start(d.dy.size());
      const std::size_t area = static_cast<std::size_t>(c.out(0) * c.out(1));
      for (std::size_t i = 0; i < start.size() && with_bias; ++i)
        start[i] = d.bias[i / area % d.bias.size()];
      Sums want(std::move(start));
      for_each_product(c, [&](auto x, auto w, auto y) { want.add(y, d.x[x] * d.w[w]); });
      for (double& v : want.value) v = relu ? std::max(v, 0.0) : v;
      expect_close(c.name() + (with_bias ? " bias" : "") + (relu ? " relu" : ""),
                   forward(c, d, t, order, with_bias, relu), want.value,
                   bound_of(want, t, t, taps + 1));
    }
  }
  Rng rng(seed_of(c.name() + " before"));
  for (const bool add : {false, true}) {
    for (const DType out : {t, compute_dtype(t)}) {
      const auto dx0 = add ? rounded(rng.uniforms(c.x().product(), -1, 1), out)
                           : std::vector<double>(d.x.size());
      Sums dx(dx0);
      for_each_product(c, [&](auto x, auto w, auto y) { dx.add(x, d.dy[y] * d.w[w]); });
      expect_close(c.name() + " dx",
                   data_gradient(c, d, t, out, order, add ? dx0 : decltype(dx0){}), dx.value,
                   bound_of(dx, t, out, taps * c.k + 1));
      const auto dw0 = add ? rounded(rng.uniforms(c.weight().product(), -1, 1), out)
                           : std::vector<double>(d.w.size());
      Sums dw(dw0);
      for_each_product(c, [&](auto x, auto w, auto y) { dw.add(w, d.dy[y] * d.x[x]); });
      expect_close(c.name() + " dw",
                   weight_gradient(c, d, t, out, order, add ? dw0 : decltype(dw0){}), dw.value,
                   bound_of(dw, t, out, positions + 1));
    }
  }
}

TEST_CASE("conv on a device: products of gathered columns agree with loops") {
  if (!has_device()) return;
  const Path path(ConvPath::im2col);
  for (const Case& c : kCases) {
    for (const DType t : {f32, f16, bf16, f64}) check_case(c, t, Order::channels_last);
    check_case(c, f32, Order::row_major);
    check_case(c, f16, Order::stepped);
  }
}

TEST_CASE("conv on a device: what the library takes agrees with loops") {
  if (!has_device()) return;
  for (const Case& c : kCases) {
    for (const DType t : {f32, f16, bf16, f64}) check_case(c, t, Order::channels_last);
    check_case(c, bf16, Order::row_major);
  }
}

TEST_CASE("conv on a device: columns in chunks") {
  if (!has_device()) return;
  const Path path(ConvPath::im2col, 2048);
  for (const Case& c :
       {Case{5, 4, 9, 9, 6, 3, 3, {.before = {1, 1}, .after = {1, 1}}},
        Case{4, 6, 8, 7, 4, 3, 2, {.stride = {2, 1}, .before = {0, 1}, .groups = 2}}}) {
    for (const DType t : {f32, f16}) check_case(c, t, Order::channels_last);
  }
}

TEST_CASE("conv on a device: infinities and NaNs come through, also through the relu") {
  if (!has_device()) return;
  const double inf = std::numeric_limits<double>::infinity();
  for (const ConvPath way : {ConvPath::im2col, ConvPath::automatic}) {
    const Path path(way);
    for (const DType t : {f32, f16, bf16}) {
      const Case c{1, 8, 4, 4, 8, 3, 3, {}};
      Data d(c, t);
      std::fill(d.w.begin(), d.w.end(), 1);
      d.x[0] = std::nan("");  // channel 0, row 0, column 0: of the first of four results
      d.x[3] = inf;           // column 3: of the second
      d.x[12] = -inf;         // row 3, column 0: of the third
      const std::vector<double> y = forward(c, d, t, Order::channels_last, true, true);
      for (std::size_t k = 0; k < 8; ++k) {
        CHECK(std::isnan(y[k * 4]));
        CHECK(y[k * 4 + 1] == inf);
        CHECK(y[k * 4 + 2] == 0);
        CHECK(std::isfinite(y[k * 4 + 3]));
      }
    }
  }
}

TEST_CASE("conv on a device: nothing to add up") {
  if (!has_device()) return;
  for (const ConvPath way : {ConvPath::im2col, ConvPath::automatic}) {
    const Path path(way);
    // No images: gradients of the weight are 0, or stay.
    const Case none{0, 3, 5, 5, 2, 3, 3, {}};
    const Twins empty(f32, {}), dw(f32, std::vector<double>(54, 2));
    const auto view = [&](const Shape& s) { return empty.device(s); };
    kernels::cuda::conv_forward(view(none.x()), dw.device(none.weight()), ConstView{}, true, {},
                                view(none.y()), device_stream());
    kernels::cuda::conv_data_gradient(view(none.y()), dw.device(none.weight()), {}, view(none.x()),
                                      0, device_stream());
    kernels::cuda::conv_weight_gradient(view(none.y()), view(none.x()), {},
                                        dw.device(none.weight()), 1, device_stream());
    CHECK(dw.device_values() == std::vector<double>(54, 2));
    kernels::cuda::conv_weight_gradient(view(none.y()), view(none.x()), {},
                                        dw.device(none.weight()), 0, device_stream());
    CHECK(dw.device_values() == std::vector<double>(54, 0));
    // No channels: the result is the bias.
    const Case hollow{2, 0, 4, 4, 3, 3, 3, {}};
    const Twins bias(f32, {-1, 0.5, 2}), y(f32, std::vector<double>(24, 7));
    const View out = y.device(hollow.y(), strides_in(hollow.y(), MemoryFormat::channels_last));
    kernels::cuda::conv_forward(view(hollow.x()), view(hollow.weight()), bias.device({3}), true, {},
                                out, device_stream());
    std::vector<double> want;
    for (int i = 0; i < 8; ++i) want.insert(want.end(), {0, 0.5, 2});
    CHECK(y.device_values() == want);
    // No kernels: dx is 0, or stays.
    const Case blunt{2, 3, 4, 4, 0, 3, 3, {}};
    const Twins dx(f32, std::vector<double>(96, 3));
    kernels::cuda::conv_data_gradient(view(blunt.y()), view(blunt.weight()), {},
                                      dx.device(blunt.x()), 1, device_stream());
    CHECK(dx.device_values() == std::vector<double>(96, 3));
    kernels::cuda::conv_data_gradient(view(blunt.y()), view(blunt.weight()), {},
                                      dx.device(blunt.x()), 0, device_stream());
    CHECK(dx.device_values() == std::vector<double>(96, 0));
  }
}

TEST_CASE("conv on a device: graphs record what has run once, and replays run it again") {
  if (!has_device()) return;
  // Sizes that no other case has: plans are kept.
  const Case c{3, 8, 6, 11, 8, 3, 3, {.before = {1, 1}, .after = {1, 1}}};
  const Data d(c, f16);
  const Twins x(f16, d.x), w(f16, d.w), bias(f16, d.bias), dy(f16, d.dy);
  const auto place = [](const Twins& t, const Shape& shape) {
    return t.device(shape, strides_in(shape, MemoryFormat::channels_last));
  };
  const Twins y(f16, d.dy), dx(f16, d.x), dw(f32, d.w);
  const auto step = [&] {
    kernels::cuda::conv_forward(place(x, c.x()), place(w, c.weight()), bias.device({c.k}), true,
                                c.geometry, place(y, c.y()), device_stream());
    kernels::cuda::conv_data_gradient(place(dy, c.y()), place(w, c.weight()), c.geometry,
                                      place(dx, c.x()), 0, device_stream());
    kernels::cuda::conv_weight_gradient(place(dy, c.y()), place(x, c.x()), c.geometry,
                                        place(dw, c.weight()), 1, device_stream());
  };
  const auto record = [&] { return memory::CapturedGraph::capture(Device::cuda(), step); };
  for (const ConvPath way : {ConvPath::automatic, ConvPath::im2col}) {
    const Path path(way);
#ifdef FIRN_HAS_CUSIM
    if (way == ConvPath::automatic && !std::getenv("CUSIM_CUDNN")) {
      CHECK(error_of(record).find("run the step once before") != std::string::npos);
    }
#endif
    const std::vector<double> before = dw.device_values();
    step();
    const std::vector<double> once_y = y.device_values(), once_dx = dx.device_values();
    const std::vector<double> once_dw = dw.device_values();
    const auto graph = record();
    CHECK(dw.device_values() == once_dw);
    graph->launch();
    CHECK(y.device_values() == once_y);
    CHECK(dx.device_values() == once_dx);
    std::vector<double> twice(before.size());
    for (std::size_t i = 0; i < twice.size(); ++i) twice[i] = 2 * once_dw[i] - before[i];
    expect_close("dw of two steps", dw.device_values(), twice, 1e-4);
  }
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("conv on a device: the same bits in every order of threads and blocks") {
  if (!has_device()) return;
  const Path path(ConvPath::im2col, 2048);
  const Case c{3, 8, 7, 7, 6, 3, 3, {{2, 1}, {1, 1}, {1, 1}, {1, 2}, 2}};
  const Data d(c, f16);
  expect_same_in_every_order([&] {
    std::vector<double> all = forward(c, d, f16, Order::channels_last, true, true);
    for (const auto& part : {data_gradient(c, d, f16, f16, Order::channels_last, d.x),
                             weight_gradient(c, d, f16, f32, Order::channels_last, d.w)})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  });
}
#endif

}  // namespace
}  // namespace firn::testing
#endif
