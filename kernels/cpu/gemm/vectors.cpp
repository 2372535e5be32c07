#include "kernels/cpu/gemm/vectors.h"

#include <algorithm>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/tile.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

using tiles::Tile;

constexpr std::int64_t kPart = std::int64_t{1} << 15;  ///< elements that a task sums
constexpr int kSums = 8;                               ///< independent sums of a task

/// Adds x[i] y[i] to `sums`, tile by tile in turn. The last tile may have idle lanes.
template <class A>
void add_products(const A* x, const A* y, std::int64_t n, Tile<A> (&sums)[kSums]) {
  using V = Tile<A>;
  std::int64_t i = 0;
  for (; i + kSums * V::size <= n; i += kSums * V::size)
    for (int s = 0; s < kSums; ++s)
      sums[s] += V::load(x + i + s * V::size) * V::load(y + i + s * V::size);
  for (; i + V::size <= n; i += V::size) sums[0] += V::load(x + i) * V::load(y + i);
  if (i < n) sums[1] += V::load(x + i, n - i) * V::load(y + i, n - i);
}

/// Returns the sum of the products from `begin` to `end`.
template <class A>
double sum_of(const ConstView& a, const ConstView& b, std::int64_t begin, std::int64_t end) {
  alignas(64) A x[kRow];
  alignas(64) A y[kRow];
  const std::int64_t step_a = a.strides[1], step_b = b.strides[0];
  Tile<A> sums[kSums];
  std::fill_n(sums, kSums, Tile<A>(0));
  for (std::int64_t i = begin; i < end; i += kRow) {
    const std::int64_t n = std::min(kRow, end - i);
    add_products(load_row<A>(advance(a.data, a.dtype, i * step_a), a.dtype, step_a, n, x),
                 load_row<A>(advance(b.data, b.dtype, i * step_b), b.dtype, step_b, n, y), n, sums);
  }
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int s = 0; s < half; ++s) sums[s] += sums[s + half];
  double sum = 0;
  for (int l = 0; l < Tile<A>::size; ++l) sum += static_cast<double>(sums[0][l]);
  return sum;
}

template <class A>
void dot_as(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args) {
  const std::int64_t k = a.shape[1], parts = math::ceil_div(k, kPart);
  const Workspace workspace({std::max<std::int64_t>(parts, 1)}, f64);
  auto* const sums = workspace.view().as<double>();
  parallel_for(parts, k, [&](std::int64_t p) {
    sums[p] = sum_of<A>(a, b, p * kPart, std::min(k, (p + 1) * kPart));
  });
  parallel_for(1, 1, [&](std::int64_t) {
    double sum = 0;
    for (std::int64_t p = 0; p < parts; ++p) sum += sums[p];
    A before = A(0), result = static_cast<A>(args.alpha * sum);
    if (args.beta != 0)
      result += static_cast<A>(args.beta) * *load_row<A>(c.data, c.dtype, 1, 1, &before);
    store_row<A>(&result, c.data, c.dtype, 1, 1);
  });
}

}  // namespace

void outer(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args) {
  if (c.shape[1] < c.shape[0]) return outer(turned(b), turned(a), turned(c), args);
  const std::int64_t m = c.shape[0], n = c.shape[1], pieces = math::ceil_div(n, kRow);
  const auto alpha = static_cast<float>(args.alpha), beta = static_cast<float>(args.beta);
  parallel_for(m * pieces, m * n, [&](std::int64_t task) {
    alignas(64) float row[kRow];
    alignas(64) float old[kRow];
    const std::int64_t i = task / pieces, j = task % pieces * kRow, size = std::min(kRow, n - j);
    const float left =
        *load_row<float>(advance(a.data, a.dtype, i * a.strides[0]), a.dtype, 1, 1, old);
    const float* const right = load_row<float>(advance(b.data, b.dtype, j * b.strides[1]), b.dtype,
                                               b.strides[1], size, row);
    for (std::int64_t k = 0; k < size; ++k) row[k] = alpha * (left * right[k]);
    void* const out = advance(c.data, c.dtype, i * c.strides[0] + j * c.strides[1]);
    if (beta != 0) {
      const float* const before = load_row<float>(out, c.dtype, c.strides[1], size, old);
      for (std::int64_t k = 0; k < size; ++k) row[k] += beta * before[k];
    }
    store_row<float>(row, out, c.dtype, c.strides[1], size);
  });
}

void dot(const ConstView& a, const ConstView& b, const View& c, const GemmArgs& args) {
  if (a.dtype == DType::f64) return dot_as<double>(a, b, c, args);
  dot_as<float>(a, b, c, args);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
