// A classifier of images and data for it: FashionMNIST where it is installed, and a generated set
// of the same shape and statistics everywhere.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "firn/firn.h"
#include "optim/problem.h"
#include "support/values.h"

namespace firn::testing {

/// Two affine layers of plain tensors. The function between them is smooth: in an epoch some sample
/// comes so near to ReLU's kink that two f32 runs, apart by rounding alone, part there for good.
struct Mlp {
  Tensor w1, b1, w2, b2;

  Mlp(std::int64_t inputs, std::int64_t hidden, std::int64_t classes, DType dtype,
      std::uint64_t seed = 3) {
    Rng rng(seed);
    const auto layer = [&](std::int64_t out, std::int64_t in, Tensor& w, Tensor& b) {
      const double bound = 1 / std::sqrt(static_cast<double>(in));
      w = parameter(rng.uniforms(out * in, -bound, bound), {out, in}, dtype);
      b = parameter(rng.uniforms(out, -bound, bound), {out}, dtype);
    };
    layer(hidden, inputs, w1, b1);
    layer(classes, hidden, w2, b2);
  }
  std::vector<Tensor> parameters() const { return {w1, b1, w2, b2}; }
  Tensor operator()(const Tensor& x) const {
    return linear(tanh(linear(cast(x, w1.dtype()), w1, b1)), w2, b2);
  }
};

/// `n` images of 28 x 28 bytes: ten classes, each with a pattern of its own under noise; half of
/// the pixels are 0, and mean and deviation (68 and 91) are near FashionMNIST's 73 and 90.
inline data::LabelledImages generated_images(std::int64_t n) {
  Rng rng(28);
  const std::int64_t pixels = 784;
  std::vector<double> pattern = rng.uniforms(10 * pixels, -220, 220);
  std::vector<std::uint8_t> images, labels;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t label = rng.below(10);
    labels.push_back(static_cast<std::uint8_t>(label));
    for (std::int64_t k = 0; k < pixels; ++k) {
      const double v =
          pattern[static_cast<std::size_t>(label * pixels + k)] + rng.uniform(-220, 220);
      images.push_back(static_cast<std::uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v));
    }
  }
  return {tensor(images, {n, 28, 28}, Device::cpu()), tensor(labels, {n}, Device::cpu())};
}

/// FashionMNIST's training set, where the machine has it.
inline std::optional<data::LabelledImages> real_images() {
  try {
    return data::load_fashion_mnist().train;
  } catch (const IoError&) {
    return std::nullopt;
  }
}

/// The weights of all parameters in one vector.
inline std::vector<double> weights_of(const std::vector<Tensor>& parameters) {
  std::vector<double> out;
  for (const Tensor& p : parameters)
    for (const double v : values_of(p)) out.push_back(v);
  return out;
}

/// |a - b| / |b|, Euclidean.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace firn::testing
