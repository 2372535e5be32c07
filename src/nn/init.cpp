// Initialisation schemes.
#include "firn/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "autograd/node.h"
#include "base/check.h"
#include "firn/ops/ops.h"
#include "nn/normal_quantile.h"
#include "ops/common.h"

namespace firn::nn::init {
namespace {

void check_target(const char* op, const Tensor& t) {
  FIRN_CHECK(t.defined() && is_floating(t.dtype()), op, "initialise a floating tensor",
             "cannot fill {}", describe(t));
}

/// t = values (row-major, f64 on the CPU), rounded once.
void write(const Tensor& t, const Tensor& values) {
  const NoGrad guard;
  copy_(t, to_device(cast(values, t.dtype()), t.device()));
}

double stddev_of(const char* op, double gain, double fan) {
  FIRN_CHECK(fan > 0, op, "give it elements", "the tensor has no elements to scale by (fan {})",
             fan);
  return gain / std::sqrt(fan);
}

// A uniform distribution in (-b, b) has the standard deviation b / sqrt(3).
void uniform_with_stddev(const Tensor& t, double stddev, Generator& g) {
  const double bound = std::numbers::sqrt3 * stddev;
  init::uniform_(t, -bound, bound, g);
}

double xavier_stddev(const char* op, const Tensor& t, double gain) {
  const Fans f = fans(t);
  return stddev_of(op, gain, static_cast<double>(f.in + f.out) / 2);
}

double kaiming_stddev(const char* op, const Tensor& t, const KaimingOptions& o) {
  require_named(op, "Fan", o.fan, Fan::out);
  const Fans f = fans(t);
  return stddev_of(op, gain(o.nonlinearity, o.slope),
                   static_cast<double>(o.fan == Fan::in ? f.in : f.out));
}

}  // namespace

Fans fans(const Tensor& weight) {
  FIRN_CHECK(weight.defined() && weight.rank() >= 2, "init::fans",
             "give a weight [out, in, ...]; for biases use zeros_ or uniform_",
             "{} has no fan-in and fan-out: less than two axes", describe(weight));
  std::int64_t kernel = 1;
  for (int i = 2; i < weight.rank(); ++i) kernel *= weight.shape()[i];
  return {weight.shape()[1] * kernel, weight.shape()[0] * kernel};
}

double gain(Nonlinearity f, double slope) {
  require_named("init::gain", "Nonlinearity", f, Nonlinearity::leaky_relu);
  switch (f) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid:
      return 1;
    case Nonlinearity::tanh:
      return 5.0 / 3;
    case Nonlinearity::relu:
      return std::numbers::sqrt2;
    case Nonlinearity::leaky_relu:
      return std::sqrt(2 / (1 + slope * slope));
  }
  return 1;
}

void constant_(const Tensor& t, double value) {
  const NoGrad guard;
  fill_(t, value);
}
void zeros_(const Tensor& t) { constant_(t, 0); }
void ones_(const Tensor& t) { constant_(t, 1); }

void uniform_(const Tensor& t, double low, double high, Generator& g) {
  check_target("init::uniform_", t);
  const NoGrad guard;
  firn::uniform_(t, low, high, g);
}

void normal_(const Tensor& t, double mean, double stddev, Generator& g) {
  check_target("init::normal_", t);
  const NoGrad guard;
  firn::normal_(t, mean, stddev, g);
}

void trunc_normal_(const Tensor& t, double mean, double stddev, double low, double high,
                   Generator& g) {
  check_target("init::trunc_normal_", t);
  FIRN_CHECK(stddev > 0 && low < high, "init::trunc_normal_", "needs stddev > 0 and low < high",
             "stddev {}, low {}, high {}", stddev, low, high);
  // Quantiles of uniform numbers between the probabilities of the two bounds. Both bounds are taken
  // in the lower tail, where probabilities keep their digits.
  const bool mirrored = low > mean;
  const double a = (mirrored ? mean - high : low - mean) / stddev;
  const double b = (mirrored ? mean - low : high - mean) / stddev;
  const double from = normal_cdf(a);
  const double to = normal_cdf(b);
  FIRN_CHECK(to > from, "init::trunc_normal_", "move the bounds closer to the mean",
             "the interval [{}, {}] has probability 0", low, high);
  const Tensor values = rand(t.shape(), {.dtype = f64, .device = Device::cpu(), .generator = &g});
  double* v = values.data<double>();
  double largest = 0;
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double z = std::clamp(normal_quantile(from + v[i] * (to - from)), a, b);
    v[i] = std::clamp(mean + (mirrored ? -z : z) * stddev, low, high);
    largest = std::max(largest, std::abs(v[i]));
  }
  ops::require_holds("init::trunc_normal_", t.dtype(), largest);
  write(t, values);
}

void xavier_uniform_(const Tensor& t, double gain, Generator& g) {
  uniform_with_stddev(t, xavier_stddev("init::xavier_uniform_", t, gain), g);
}
void xavier_normal_(const Tensor& t, double gain, Generator& g) {
  init::normal_(t, 0, xavier_stddev("init::xavier_normal_", t, gain), g);
}
void kaiming_uniform_(const Tensor& t, const KaimingOptions& options, Generator& g) {
  uniform_with_stddev(t, kaiming_stddev("init::kaiming_uniform_", t, options), g);
}
void kaiming_normal_(const Tensor& t, const KaimingOptions& options, Generator& g) {
  init::normal_(t, 0, kaiming_stddev("init::kaiming_normal_", t, options), g);
}

void orthogonal_(const Tensor& t, double gain, Generator& g) {
  check_target("init::orthogonal_", t);
  FIRN_CHECK(t.rank() >= 2, "init::orthogonal_", "give a weight [out, in, ...]",
             "{} is no matrix: less than two axes", describe(t));
  FIRN_CHECK(std::isfinite(gain), "init::orthogonal_", "1 keeps the orthogonal matrix",
             "gain = {} is not finite", gain);
  ops::require_holds("init::orthogonal_", t.dtype(), gain);  // no element is larger
  if (t.numel() == 0) return;
  const std::int64_t rows = t.shape()[0];
  const std::int64_t columns = t.numel() / rows;
  const std::int64_t count = std::min(rows, columns);   // number of vectors to make orthonormal
  const std::int64_t length = std::max(rows, columns);  // length of each
  // Gram-Schmidt on normal vectors is the QR decomposition with a positive diagonal of R, whose Q
  // is uniform. Two passes give full precision (Giraud et al. 2005).
  const Tensor normals =
      randn({count, length}, {.dtype = f64, .device = Device::cpu(), .generator = &g});
  double* q = normals.data<double>();
  for (std::int64_t i = 0; i < count; ++i) {
    double* v = q + i * length;
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t j = 0; j < i; ++j) {
        const double* u = q + j * length;
        const double dot = std::inner_product(u, u + length, v, 0.0);
        for (std::int64_t k = 0; k < length; ++k) v[k] -= dot * u[k];
      }
    }
    const double norm = std::sqrt(std::inner_product(v, v + length, v, 0.0));
    for (std::int64_t k = 0; k < length; ++k) v[k] /= norm;
  }
  const NoGrad guard;
  const Tensor matrix = rows <= columns ? normals : transpose(normals, 0, 1);
  write(t, reshape(mul(matrix, gain), t.shape()));
}

}  // namespace firn::nn::init
