// Initialisation: ranges, variances, fans, reproducibility. Sample statistics are held to five
// standard errors of their estimator, at fixed seeds.
#include "firn/nn/init.h"

#include <algorithm>
#include <cmath>

#include "firn/firn.h"
#include "nn/normal_quantile.h"
#include "support/catch.h"

using namespace firn;
namespace init = firn::nn::init;

namespace {

struct Statistics {
  double mean, variance, low, high;
};

Statistics statistics(const Tensor& t) {
  const auto v = t.to_vector<double>();
  Statistics s{0, 0, v[0], v[0]};
  for (const double x : v) {
    s.mean += x / static_cast<double>(v.size());
    s.low = std::min(s.low, x);
    s.high = std::max(s.high, x);
  }
  for (const double x : v)
    s.variance += (x - s.mean) * (x - s.mean) / static_cast<double>(v.size() - 1);
  return s;
}

/// Mean 0 and this variance, for a distribution whose kurtosis is at most the normal one's.
void check_moments(const Tensor& t, double variance) {
  const Statistics s = statistics(t);
  const auto n = static_cast<double>(t.numel());
  CHECK(std::abs(s.mean) < 5 * std::sqrt(variance / n));
  CHECK(std::abs(s.variance / variance - 1) < 5 * std::sqrt(2 / n));
}

}  // namespace

TEST_CASE("fans count inputs per output and outputs per input") {
  CHECK(init::fans(zeros({30, 20})).in == 20);
  CHECK(init::fans(zeros({30, 20})).out == 30);
  CHECK(init::fans(zeros({8, 4, 3, 5})).in == 4 * 15);
  CHECK(init::fans(zeros({8, 4, 3, 5})).out == 8 * 15);
  CHECK_THROWS_AS(init::fans(zeros({8})), Error);
}

TEST_CASE("gains of the nonlinearities") {
  using enum init::Nonlinearity;
  CHECK(init::gain(linear) == 1);
  CHECK(init::gain(sigmoid) == 1);
  CHECK(init::gain(init::Nonlinearity::tanh) == Approx(5.0 / 3));
  CHECK(init::gain(init::Nonlinearity::relu) == Approx(std::sqrt(2)));
  CHECK(init::gain(init::Nonlinearity::leaky_relu, 1) == Approx(1));
  CHECK(init::gain(init::Nonlinearity::leaky_relu, std::sqrt(5)) == Approx(1 / std::sqrt(3)));
}

TEST_CASE("constants fill, also parameters that require a gradient") {
  const nn::Parameter p(ones({3}));
  init::zeros_(p);
  CHECK(p.to_vector<float>() == std::vector<float>{0, 0, 0});
  init::constant_(p, 2.5);
  CHECK(p.to_vector<float>() == std::vector<float>{2.5, 2.5, 2.5});
  init::ones_(p);
  CHECK(p.to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(p.requires_grad());
}

TEST_CASE("uniform and normal have the moments they were asked for") {
  manual_seed(1);
  const Tensor t = zeros({200, 300});
  init::uniform_(t, -2, 2);
  check_moments(t, 16.0 / 12);
  CHECK(statistics(t).low >= -2);
  CHECK(statistics(t).high < 2);
  init::normal_(t, 0, 0.1);
  check_moments(t, 0.01);
}

TEST_CASE("xavier initialisation has variance 2 gain^2 / (fan_in + fan_out)") {
  manual_seed(2);
  const Tensor t = zeros({300, 200});
  init::xavier_uniform_(t);
  check_moments(t, 2.0 / 500);
  CHECK(statistics(t).high <= std::sqrt(6.0 / 500));
  init::xavier_normal_(t, 3);
  check_moments(t, 9 * 2.0 / 500);
}

TEST_CASE("kaiming initialisation has variance gain^2 / fan") {
  manual_seed(3);
  const Tensor t = zeros({300, 200});
  init::kaiming_uniform_(t);
  check_moments(t, 2.0 / 200);
  init::kaiming_normal_(t, {.fan = init::Fan::out});
  check_moments(t, 2.0 / 300);
  init::kaiming_normal_(t, {.nonlinearity = init::Nonlinearity::leaky_relu, .slope = 1});
  check_moments(t, 1.0 / 200);
}

TEST_CASE("kaiming keeps the size of activations through a deep ReLU network") {
  manual_seed(4);
  Tensor x = randn({64, 256});
  const Tensor w = zeros({256, 256});
  for (int i = 0; i < 20; ++i) {
    init::kaiming_normal_(w);
    x = relu(linear(x, w));
  }
  // E[x^2] stays 1 per layer in expectation; the default for Linear shrinks it by 1/6 each time.
  const double size = mean(square(x)).item();
  CHECK(size > 0.3);
  CHECK(size < 3);
}

TEST_CASE("Linear starts uniform in 1/sqrt(in)") {
  manual_seed(5);
  const nn::Linear layer(400, 300);
  check_moments(layer.weight, 1.0 / (3 * 400));
  CHECK(statistics(layer.weight).low >= -0.05f);
  CHECK(statistics(layer.weight).high <= 0.05f);
  CHECK(statistics(layer.weight).high > 0.0499);
  CHECK(statistics(layer.bias).high <= 0.05f);
  CHECK(statistics(layer.bias).high > 0.04);
}

TEST_CASE("Embedding starts standard normal") {
  manual_seed(6);
  check_moments(nn::Embedding(300, 100).weight, 1);
}

TEST_CASE("the seed decides the start") {
  const auto weights = [](std::uint64_t seed) {
    manual_seed(seed);
    return nn::Linear(20, 20).weight.to_vector<float>();
  };
  CHECK(weights(1) == weights(1));
  CHECK(weights(1) != weights(2));
  manual_seed(1);
  const nn::Linear a(20, 20), b(20, 20);
  CHECK(a.weight.to_vector<float>() != b.weight.to_vector<float>());
  // A generator of one's own leaves the default one alone.
  Generator g(9);
  const RandomKey before = default_generator().get();
  init::trunc_normal_(a.weight, 0, 1, -2, 2, g);
  init::orthogonal_(a.weight, 1, g);
  CHECK(default_generator().get().offset == before.offset);
}

TEST_CASE("the normal quantile inverts the distribution function") {
  for (double p = 1e-300; p < 0.9999; p = p < 1e-3 ? p * 10 : p + 0.01) {
    INFO(p);
    CHECK(init::normal_cdf(init::normal_quantile(p)) == Approx(p).epsilon(1e-12));
  }
  CHECK(init::normal_quantile(0.5) == 0);
  CHECK(init::normal_quantile(0.975) == Approx(1.959963984540054).epsilon(1e-15));
}

TEST_CASE("trunc_normal stays within its bounds and has the truncated moments") {
  manual_seed(7);
  const Tensor t = zeros({200, 300});
  init::trunc_normal_(t, 0, 0.5, -1, 1);
  CHECK(statistics(t).low >= -1);
  CHECK(statistics(t).high <= 1);
  CHECK(statistics(t).high > 0.99);
  // Two standard deviations: variance 1 - 2*2 φ(2) / (Φ(2) - Φ(-2)) = 0.773741 of the full one.
  check_moments(t, 0.25 * 0.7737413035);
}

TEST_CASE("trunc_normal reaches far tails on both sides") {
  manual_seed(8);
  const Tensor t = zeros({1000}, f64);
  init::trunc_normal_(t, 0, 1, 10, 12);
  CHECK(statistics(t).low >= 10);
  // The mean excess over a far bound z is near 1/z: 0.0981 for z = 10.
  CHECK(statistics(t).mean == Approx(10.098).margin(0.02));
  init::trunc_normal_(t, 0, 1, -12, -10);
  CHECK(statistics(t).high <= -10);
  CHECK(statistics(t).mean == Approx(-10.098).margin(0.02));
}

TEST_CASE("orthogonal matrices are orthogonal") {
  manual_seed(9);
  for (const Shape& shape : {Shape{8, 8}, Shape{5, 12}, Shape{12, 5}, Shape{6, 2, 3}}) {
    const Tensor t = zeros(shape, f64);
    init::orthogonal_(t, 2);
    const Tensor m = reshape(t, {shape[0], -1});
    const bool wide = m.size(0) <= m.size(1);
    const Tensor product = wide ? matmul(m, transpose(m, 0, 1)) : matmul(transpose(m, 0, 1), m);
    const auto got = product.to_vector<double>();
    const auto expected = (eye(product.size(0), f64) * 4.0).to_vector<double>();
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(1e-12));
  }
}

TEST_CASE("initialisation works in every floating dtype") {
  manual_seed(10);
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor t = zeros({100, 100}, dtype);
    init::kaiming_uniform_(t);
    CHECK(statistics(t).variance == Approx(0.02).epsilon(0.1));
    init::trunc_normal_(t);
    CHECK(statistics(t).high <= 2);
    CHECK(statistics(t).variance == Approx(0.7737).epsilon(0.1));
    init::orthogonal_(t);
    CHECK(norm(t).item() == Approx(10).epsilon(0.01));
  }
}

TEST_CASE("initialisation refuses what it cannot fill") {
  CHECK_THROWS_AS(init::uniform_(zeros({3}, i32)), Error);
  CHECK_THROWS_AS(init::normal_(Tensor()), Error);
  CHECK_THROWS_AS(init::xavier_normal_(zeros({3})), Error);
  CHECK_THROWS_AS(init::orthogonal_(zeros({3})), Error);
  CHECK_THROWS_AS(init::trunc_normal_(zeros({3}), 0, 1, 2, -2), Error);
  CHECK_THROWS_AS(init::trunc_normal_(zeros({3}), 0, 0, -2, 2), Error);
  CHECK_THROWS_AS(init::trunc_normal_(zeros({3}), 0, 1, 100, 101), Error);
  CHECK_THROWS_AS(init::kaiming_uniform_(zeros({0, 0})), Error);
}
