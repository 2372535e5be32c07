// Convolutions as plain loops, against which kernels are tested.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "firn/shape.h"
#include "kernels/conv.h"

namespace firn::testing {

/// The sizes of a convolution: x [n, c, h, w], weight [k, c/groups, r, s].
struct ConvCase {
  std::int64_t n, c, h, w, k, r, s;
  kernels::ConvGeometry geometry = {};

  /// Height (axis 0) or width (axis 1) of the result.
  std::int64_t out(std::size_t axis) const {
    const kernels::ConvGeometry& g = geometry;
    const std::int64_t size = axis == 0 ? h : w, taps = axis == 0 ? r : s;
    return (size + g.before[axis] + g.after[axis] - g.dilation[axis] * (taps - 1) - 1) /
               g.stride[axis] +
           1;
  }
  Shape x() const { return {n, c, h, w}; }
  Shape weight() const { return {k, c / geometry.groups, r, s}; }
  Shape y() const { return {n, k, out(0), out(1)}; }

  std::string name() const {
    const kernels::ConvGeometry& g = geometry;
    const auto pair = [](const std::array<std::int64_t, 2>& v) {
      return std::to_string(v[0]) + "," + std::to_string(v[1]);
    };
    return to_string(x()) + " * " + to_string(weight()) + " stride " + pair(g.stride) + " before " +
           pair(g.before) + " after " + pair(g.after) + " dilation " + pair(g.dilation) +
           " groups " + std::to_string(g.groups);
  }
};

/// What meets what: fn(index in x, index in w, index in y), row-major.
template <class Fn>
void for_each_product(const ConvCase& a, Fn&& fn) {
  const kernels::ConvGeometry& g = a.geometry;
  const std::int64_t p_size = a.out(0), q_size = a.out(1), cg = a.c / g.groups, kg = a.k / g.groups;
  for (std::int64_t n = 0; n < a.n; ++n)
    for (std::int64_t k = 0; k < a.k; ++k)
      for (std::int64_t p = 0; p < p_size; ++p)
        for (std::int64_t q = 0; q < q_size; ++q)
          for (std::int64_t c = 0; c < cg; ++c)
            for (std::int64_t r = 0; r < a.r; ++r)
              for (std::int64_t s = 0; s < a.s; ++s) {
                const std::int64_t i = p * g.stride[0] - g.before[0] + r * g.dilation[0];
                const std::int64_t j = q * g.stride[1] - g.before[1] + s * g.dilation[1];
                if (i < 0 || i >= a.h || j < 0 || j >= a.w) continue;
                fn(static_cast<std::size_t>(((n * a.c + k / kg * cg + c) * a.h + i) * a.w + j),
                   static_cast<std::size_t>(((k * cg + c) * a.r + r) * a.s + s),
                   static_cast<std::size_t>(((n * a.k + k) * p_size + p) * q_size + q));
              }
}

/// Sums, and those of their terms' magnitudes, by which errors are measured.
struct Sums {
  explicit Sums(std::vector<double> start) : value(std::move(start)), magnitude(value) {
    for (double& m : magnitude) m = std::abs(m);
  }
  void add(std::size_t i, double term) {
    value[i] += term;
    magnitude[i] += std::abs(term);
  }
  std::vector<double> value, magnitude;
};

}  // namespace firn::testing
