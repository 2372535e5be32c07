// Rotary positions beside the formula in f64.
#include <cmath>

#include "reference.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

std::vector<double> turned(const std::vector<double>& x, const Shape& shape,
                           const std::vector<std::int64_t>& positions, double theta,
                           bool interleaved) {
  const std::int64_t d = shape.back(), n = shape[-2], rows = d == 0 ? 0 : shape.product() / d;
  std::vector<double> y(x.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t per_batch = rows / shape[0];
    const bool shared = static_cast<std::int64_t>(positions.size()) == n;
    const std::int64_t p =
        positions[static_cast<std::size_t>(row % n + (shared ? 0 : row / per_batch * n))];
    for (std::int64_t i = 0; i < d / 2; ++i) {
      const double angle = static_cast<double>(p) *
                           std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
      const auto a = static_cast<std::size_t>(row * d + (interleaved ? 2 * i : i));
      const auto b = static_cast<std::size_t>(row * d + (interleaved ? 2 * i + 1 : i + d / 2));
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
    }
  }
  return y;
}

}  // namespace

TEST_CASE("rope: values and gradients beside the formula, for every layout and dtype") {
  for (const bool interleaved : {false, true}) {
    for (const Shape& shape : {Shape{2, 3, 5, 6}, Shape{2, 7, 34}, Shape{9, 2}}) {
      for (const DType dtype : {f64, f32, bf16}) {
        for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::stepped}) {
          INFO(to_string(shape) << " " << to_string(dtype) << " " << to_string(layout)
                                << (interleaved ? " interleaved" : ""));
          Rng rng(3);
          const std::int64_t n = shape[-2];
          const auto x = rounded(rng.uniforms(shape.product(), -2, 2), dtype);
          const auto seed = rounded(rng.uniforms(shape.product(), -2, 2), dtype);
          std::vector<std::int64_t> positions;
          for (std::int64_t i = 0; i < n; ++i) positions.push_back(100 + i);
          const Tensor t = make(x, shape, dtype, layout).set_requires_grad();
          const RopeOptions options{.offset = 100, .theta = 500, .interleaved = interleaved};
          const Tensor y = rope(t, options);
          CHECK(y.dtype() == dtype);
          const double bound = dtype == f64 ? 1e-13 : dtype == f32 ? 2e-6 : 0.01;
          expect_close("value", values_of(y), turned(x, shape, positions, 500, interleaved), bound);
          backward(y, {.initial_gradient = make(seed, shape, dtype, layout)});
          for (std::int64_t& p : positions) p = -p;  // the inverse
          expect_close("gradient", values_of(t.grad()),
                       turned(seed, shape, positions, 500, interleaved), bound);
        }
      }
    }
  }
}

TEST_CASE("rope: positions of each sequence, and far ones without a loss of digits") {
  const Shape shape = {2, 2, 3, 8};
  Rng rng(5);
  const auto x = rng.uniforms(shape.product(), -2, 2);
  for (const DType dtype : {i32, i64}) {
    const std::vector<double> p = {5, 0, 1000003, 7, 7, -2};
    const Tensor y = rope(make(x, shape, f32), {.positions = make(p, {2, 3}, dtype)});
    expect_close("batch", values_of(y), turned(x, shape, {5, 0, 1000003, 7, 7, -2}, 10000, false),
                 2e-6);
    const Tensor one = rope(make(x, shape, f32), {.positions = make({4, 2, 9}, {3}, dtype)});
    expect_close("shared", values_of(one), turned(x, shape, {4, 2, 9}, 10000, false), 2e-6);
  }
}

TEST_CASE("rope: given frequencies turn the pairs, forwards and back") {
  const Shape shape = {2, 2, 3, 8};
  Rng rng(6);
  const auto x = rng.uniforms(shape.product(), -2, 2);
  for (const bool interleaved : {false, true}) {
    const Tensor same =
        make({1, std::pow(50., -0.25), std::pow(50., -0.5), std::pow(50., -0.75)}, {4}, f64);
    const Tensor t = make(x, shape, f64).set_requires_grad();
    const Tensor y = rope(t, {.offset = 3, .frequencies = same, .interleaved = interleaved});
    expect_close("value", values_of(y), turned(x, shape, {3, 4, 5}, 50, interleaved), 1e-13);
    backward(y, {.initial_gradient = make(x, shape, f64)});
    expect_close("gradient", values_of(t.grad()), turned(x, shape, {-3, -4, -5}, 50, interleaved),
                 1e-13);
    // Half of the angle at twice the position; the frequencies are a view with a stride.
    const Tensor halves = stack({same * 0.5, same}, 1).slice(1, 0, 1).squeeze(1);
    const Tensor z = rope(t, {.positions = make({6, 8, 10}, {3}, i64),
                              .frequencies = halves,
                              .interleaved = interleaved});
    expect_close("halves", values_of(z), values_of(y), 1e-13);
  }
}

TEST_CASE("rope: products depend on the distance alone, and gradients add up") {
  const Tensor q = make({1, 2, -1, 0.5}, {1, 1, 1, 4}), k = make({0.3, -2, 1, 1}, {1, 1, 1, 4});
  const auto product = [&](std::int64_t i, std::int64_t j) {
    return (rope(q, {.offset = i}) * rope(k, {.offset = j})).sum().item();
  };
  CHECK(product(3, 1) == Approx(product(102, 100)).epsilon(1e-12));
  CHECK(product(3, 1) != Approx(product(3, 2)));
  const Tensor x = make({1, 2, -1, 0.5}, {1, 4}).set_requires_grad();
  (rope(x, {.offset = 2}) + rope(x, {.offset = 2})).sum().backward();
  const Tensor once = make({1, 2, -1, 0.5}, {1, 4}).set_requires_grad();
  rope(once, {.offset = 2}).sum().backward();
  CHECK(relative_error(values_of(x.grad()), values_of(once.grad() * 2.0)) <= 1e-15);
}

TEST_CASE("rope: views of heads stay in their order in memory, and sizes of 0") {
  const Tensor x = transpose(ones({2, 5, 3, 4}), 1, 2);
  CHECK(transpose(rope(x), 1, 2).is_contiguous());
  CHECK(rope(ones({2, 0, 4})).shape() == Shape{2, 0, 4});
  CHECK(rope(ones({2, 3, 0})).shape() == Shape{2, 3, 0});
}

TEST_CASE("rope: what does not fit is refused, with the values") {
  const Tensor x = ones({2, 3, 5, 6});
  const auto refused = [](auto fn, const char* part) {
    const std::string message = error_of(fn);
    INFO(message);
    CHECK(message.find("[rope]") != std::string::npos);
    CHECK(message.find(part) != std::string::npos);
  };
  refused([&] { rope(Tensor()); }, "undefined");
  refused([&] { rope(ones({4}, i32)); }, "floating");
  refused([&] { rope(ones({4})); }, "not 2 to 4");
  refused([&] { rope(ones({4, 3})); }, "odd");
  refused([&] { rope(x, {.theta = 0}); }, "theta = 0");
  refused([&] { rope(x, {.theta = 1e-100}); }, "theta = 1e-100");
  refused([&] { rope(x, {.positions = zeros({4}, i64)}); }, "positions [4]");
  refused([&] { rope(x, {.positions = zeros({3, 5}, i64)}); }, "positions [3, 5]");
  refused([&] { rope(x, {.positions = zeros({5})}); }, "index is i64 or i32");
  refused([&] { rope(x, {.positions = zeros({5}, i64), .offset = 1}); }, "offset = 1");
  refused([&] { rope(x, {.frequencies = zeros({3})}); }, "frequencies are f64 [d/2]");
  refused([&] { rope(x, {.frequencies = zeros({4}, f64)}); }, "frequencies [4] f64");
  refused([&] { rope(x, {.offset = std::numeric_limits<std::int64_t>::max()}); }, "64 bits");
}

}  // namespace firn::testing
