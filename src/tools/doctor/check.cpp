#include "tools/doctor/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace doctor {
namespace {

using firn::Device;
using firn::DType;
using firn::Tensor;

std::vector<double> values(const Tensor& t) {
  return t.to(firn::f64).to(Device::cpu()).contiguous().to_vector<double>();
}

double unit_roundoff(DType dtype) {
  return std::ldexp(1.0, dtype == DType::f16 ? -11 : dtype == DType::bf16 ? -8 : -24);
}

/// Returns the largest error of a product, as a share of its bound. An element is a sum of k
/// products, added in f32 in any order, so its error is at most k 2^-24 sum |a b| (Higham 2002,
/// section 3.5). The bound is doubled for the rounding of the products. The result is rounded to
/// the dtype once.
double product_error(DType dtype, Device device) {
  constexpr std::int64_t kM = 93, kK = 130, kN = 71;  // not multiples of a vector or a tile
  firn::Generator generator(7);
  const Tensor a = firn::randn({kM, kK}, {.generator = &generator}).to(dtype);
  const Tensor b = firn::randn({kK, kN}, {.generator = &generator}).to(dtype);
  const std::vector<double> x = values(a), y = values(b);
  const std::vector<double> got = values(a.to(device).matmul(b.to(device)));
  double worst = 0;
  for (std::int64_t i = 0; i < kM; ++i) {
    for (std::int64_t j = 0; j < kN; ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t k = 0; k < kK; ++k) {
        const double term =
            x[static_cast<std::size_t>(i * kK + k)] * y[static_cast<std::size_t>(k * kN + j)];
        sum += term;
        magnitude += std::abs(term);
      }
      const double bound = 2 * static_cast<double>(kK) * std::ldexp(1.0, -24) * magnitude +
                           unit_roundoff(dtype) * std::abs(sum);
      const double error = std::abs(got[static_cast<std::size_t>(i * kN + j)] - sum);
      // A NaN counts as an infinite error.
      worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error / bound);
    }
  }
  return worst;
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Returns 2 n^3 / time of the fastest product of n x n matrices, with n doubled until one takes 20
/// ms.
double product_gflops(DType dtype, Device device) {
  constexpr double kLong = 0.02, kAltogether = 0.4;
  constexpr std::int64_t kLargest = 8192;
  const auto start = Clock::now();
  const auto time_product = [&](const Tensor& a) {
    const auto begin = Clock::now();
    a.matmul(a);
    firn::synchronize(device);
    return seconds_since(begin);
  };
  for (std::int64_t n = 64;; n *= 2) {
    const Tensor a = firn::ones({n, n}, dtype, device);
    double fastest = time_product(a);  // the first product selects its kernel and memory
    if (fastest < 2 * kLong) fastest = std::min(fastest, time_product(a));
    const bool last = fastest >= kLong || n >= kLargest || seconds_since(start) > kAltogether;
    while (last && seconds_since(start) < kAltogether) fastest = std::min(fastest, time_product(a));
    const auto size = static_cast<double>(n);
    if (last) return 2 * size * size * size / fastest * 1e-9;
  }
}

/// Returns the error of the weights after a step of SGD on softmax and cross-entropy, as a share of
/// 1e-5. Their gradient is xᵀ(p - onehot(y)) / n (Bishop 2006, section 4.3.4).
double step_error(Device device) {
  constexpr std::size_t kN = 6, kIn = 5, kClasses = 3;
  constexpr double kLr = 0.5;
  firn::Generator generator(11);
  const Tensor x = firn::randn({kN, kIn}, {.generator = &generator});
  const Tensor start = firn::randn({kIn, kClasses}, {.generator = &generator});
  const std::vector<std::int64_t> classes = {0, 2, 1, 1, 0, 2};
  const std::vector<double> inputs = values(x);
  std::vector<double> expected = values(start);
  const std::vector<double> before = expected;
  for (std::size_t i = 0; i < kN; ++i) {
    std::array<double, kClasses> p{};
    double total = 0;
    for (std::size_t c = 0; c < kClasses; ++c) {
      double logit = 0;
      for (std::size_t k = 0; k < kIn; ++k) logit += inputs[i * kIn + k] * before[k * kClasses + c];
      p.at(c) = std::exp(logit);
      total += p.at(c);
    }
    for (std::size_t k = 0; k < kIn; ++k)
      for (std::size_t c = 0; c < kClasses; ++c) {
        const double target = static_cast<std::size_t>(classes[i]) == c ? 1 : 0;
        expected[k * kClasses + c] -=
            kLr * inputs[i * kIn + k] * (p.at(c) / total - target) / static_cast<double>(kN);
      }
  }

  const Tensor weight = start.to(device).clone().set_requires_grad();
  firn::optim::SGD optimizer({weight}, {.lr = kLr});
  const Tensor y = firn::tensor(classes, {static_cast<std::int64_t>(kN)}).to(device);
  optimizer.backward(firn::cross_entropy(x.to(device).matmul(weight), y));
  optimizer.step();
  const std::vector<double> got = values(weight.detach());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - expected[i]);
    worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error / 1e-5);
  }
  return worst;
}

}  // namespace

std::vector<Checked> check(Device device) {
  std::vector<Checked> all;
  const auto run = [&](const std::string& what, const auto& work) {
    Checked c;
    c.device = firn::to_string(device);
    c.what = what;
    try {
      work(c);
    } catch (const std::exception& e) {
      c.failure = e.what();
    }
    all.push_back(std::move(c));
  };
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    run("product " + std::string(firn::to_string(dtype)), [&](Checked& c) {
      c.error = product_error(dtype, device);
      c.gflops = product_gflops(dtype, device);
    });
  run("training step", [&](Checked& c) { c.error = step_error(device); });
  return all;
}

std::vector<Finding> findings(const std::vector<Checked>& checks) {
  std::vector<Finding> all;
  for (const Checked& c : checks) {
    Finding f;
    f.section = "Check";
    f.what = c.device + ": " + c.what;
    if (c.gflops > 0) f.what += fmt::format(", {:.3g} GFLOP/s", c.gflops);
    if (c.ok()) {
      f.what += fmt::format(", right (error {:.2g} of its bound)", c.error);
    } else {
      f.state = State::broken;
      f.why = c.failure.empty() ? fmt::format("the error is {:.3g} times its bound", c.error)
                                : c.failure;
      if (c.failure.empty()) f.mend = "report this with the output of firn-doctor --json --check";
    }
    all.push_back(std::move(f));
  }
  return all;
}

}  // namespace doctor
