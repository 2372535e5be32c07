// Tensors of dual numbers: a firn tensor beside its values and one directional derivative of each,
// computed forward in plain loops. What backward() gives must agree: gradient times direction.
#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "autograd/leaf.h"

namespace firn::testing {

struct Dual {
  Tensor t;        ///< f64
  Values value;    ///< its elements in row-major order
  Values tangent;  ///< their derivatives along the direction that the leaves were given
};

/// A leaf with values and direction from `rng`.
inline Dual dual_leaf(const Shape& shape, Rng& rng) {
  Dual d{{}, rng.uniforms(shape.product(), -1, 1), rng.uniforms(shape.product(), -1, 1)};
  d.t = make(d.value, shape).set_requires_grad();
  return d;
}
inline Dual dual_constant(const Shape& shape, Rng& rng) {
  Dual d{{},
         rng.uniforms(shape.product(), -1, 1),
         Values(static_cast<std::size_t>(shape.product()), 0.0)};
  d.t = make(d.value, shape);
  return d;
}

/// y = f(x), of which `slope` is the derivative.
template <class F, class Slope>
Dual map(const Dual& x, Tensor t, F f, Slope slope) {
  Dual y{std::move(t), x.value, x.tangent};
  for (std::size_t i = 0; i < x.value.size(); ++i) {
    y.value[i] = f(x.value[i]);
    y.tangent[i] = slope(x.value[i]) * x.tangent[i];
  }
  return y;
}

/// What `move`, an operation that only picks elements, makes of x. Which elements it picks is read
/// off a tensor of positions.
template <class Move>
Dual moved(const Dual& x, const Move& move) {
  Values positions(x.value.size());
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<double>(i);
  Dual y{move(x.t), {}, {}};
  for (const double at : values_of(move(make(positions, x.t.shape())))) {
    y.value.push_back(x.value[static_cast<std::size_t>(at)]);
    y.tangent.push_back(x.tangent[static_cast<std::size_t>(at)]);
  }
  return y;
}

/// The elements of all, one tensor after the other: cat and stack along axis 0.
inline Dual joined(const std::vector<Dual>& parts, Tensor t) {
  Dual y{std::move(t), {}, {}};
  for (const Dual& p : parts) {
    y.value.insert(y.value.end(), p.value.begin(), p.value.end());
    y.tangent.insert(y.tangent.end(), p.tangent.begin(), p.tangent.end());
  }
  return y;
}

/// a + b, or a * b, of one shape.
inline Dual added(const Dual& a, const Dual& b, Tensor t, double factor = 1) {
  Dual y{std::move(t), a.value, a.tangent};
  for (std::size_t i = 0; i < y.value.size(); ++i) {
    y.value[i] += factor * b.value[i];
    y.tangent[i] += factor * b.tangent[i];
  }
  return y;
}
inline Dual multiplied(const Dual& a, const Dual& b, Tensor t) {
  Dual y{std::move(t), a.value, a.tangent};
  for (std::size_t i = 0; i < y.value.size(); ++i) {
    y.value[i] = a.value[i] * b.value[i];
    y.tangent[i] = a.tangent[i] * b.value[i] + a.value[i] * b.tangent[i];
  }
  return y;
}

/// The mean over all elements, a scalar.
inline Dual averaged(const Dual& x, Tensor t) {
  Dual y{std::move(t), {0.0}, {0.0}};
  const auto n = static_cast<double>(x.value.size());
  for (std::size_t i = 0; i < x.value.size(); ++i) {
    y.value[0] += x.value[i] / n;
    y.tangent[0] += x.tangent[i] / n;
  }
  return y;
}

/// a bᵀ for a [m, k] and b [n, k].
inline Dual product(const Dual& a, const Dual& b, Tensor t) {
  const auto k = static_cast<std::size_t>(a.t.size(1)), m = a.value.size() / k,
             n = b.value.size() / k;
  Dual y{std::move(t), Values(m * n), Values(m * n)};
  for (std::size_t i = 0; i < m * n; ++i)
    for (std::size_t j = 0; j < k; ++j) {
      const std::size_t at_a = i / n * k + j, at_b = i % n * k + j;
      y.value[i] += a.value[at_a] * b.value[at_b];
      y.tangent[i] += a.tangent[at_a] * b.value[at_b] + a.value[at_a] * b.tangent[at_b];
    }
  return y;
}

}  // namespace firn::testing
