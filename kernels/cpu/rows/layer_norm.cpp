// Layer norm and RMS norm of rows on the CPU, and their gradients.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/rows/driver.h"
#include "kernels/math/channel_norm.h"
#include "kernels/math/rows.h"
#include "kernels/rows.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

template <class C>
void norm_rows(const ConstView& x, const ConstView& weight, const ConstView& bias, double eps,
               bool center, const View& y, const View& mean_out, const View& rstd_out) {
  using V = Tile<C>;
  const std::int64_t n = x.shape[1];
  const RowBlocks blocks(x.shape[0], n);
  const RowReader<C> in(x);
  const RowWriter<C> out(y, 0);
  const bool streams = out.streams(blocks.rows);
  const RowBuffer<C> parameters(2 * n);
  C* const w = parameters.data();
  C* const b = w + n;
  load_vector(weight, n, 1, w);
  load_vector(bias, n, 0, b);
  const std::int64_t bytes = row_buffer_bytes<C>(in, out);
  parallel_for_with_scratch(bytes, blocks.count, blocks.rows * n * 4, [&](std::int64_t block) {
    const RowBuffer<C> in_buffer(in), out_buffer(out);
    for (std::int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      const C* row = in.row(i, in_buffer.data());
      C* to = out.open(i, out_buffer.data());
      const C count = static_cast<C>(n);
      const C mean = center ? reduce_row<C>(n, math::Elements<V>{}, row).value / count : C(0);
      const math::Distances<V> from{V(mean)};
      const auto distances = reduce_row_fetching<C>(n, in.ahead(), from, row);
      const C var = math::variance_of(center, distances, C(1) / count);
      const C rstd = C(1) / std::sqrt(var + static_cast<C>(eps));
      const math::Norm<V> norm{V(mean), V(rstd)};
      streams ? stream_row(n, to, norm, row, w, b) : map_row(n, to, 0, norm, row, w, b);
      out.close(i, to);
      if (center) mean_out.as<C>()[i] = mean;
      rstd_out.as<C>()[i] = rstd;
    }
  });
}

/// grad[j] = beta*grad[j] + the blocks' sums of column j, in the order of the blocks. Block k's
/// sums are at partial + k*stride; those of block 0 are overwritten.
template <class C>
void add_columns(C* partial, std::int64_t stride, std::int64_t blocks, std::int64_t n,
                 const View& grad, float beta) {
  const RowWriter<C> out({grad.data, grad.dtype, grad.device, {1, n}, {n, 1}}, beta);
  const RowBuffer<C> buffer(out);
  if (runtime::dry_run()) return;
  const auto same = [](Tile<C> v) { return v; };
  for (std::int64_t k = 1; k < blocks; ++k) map_row(n, partial, 1, same, partial + k * stride);
  C* to = out.open(0, buffer.data());
  map_row(n, to, beta, same, partial);
  out.close(0, to);
}

/// dw[j] += g[j] h[j] and db[j] += g[j] for the normalised row h. It prefetches data `ahead`
/// elements after both rows into the L2 cache.
template <class C>
void add_parameter_terms(std::int64_t n, std::int64_t ahead, const C* g, const C* row, C mean,
                         C rstd, C* dw, C* db) {
  using V = Tile<C>;
  const V m(mean), r(rstd);
  const auto term = [&](V d, V v) { return d * math::NormGrad<V>::normalised(v, m, r); };
  const int tail = static_cast<int>(n % V::size);
  std::int64_t j = 0;
  for (; j + V::size <= n; j += V::size) {
    if (ahead > 0) {
      __builtin_prefetch(g + j + ahead, 0, 2);
      __builtin_prefetch(row + j + ahead, 0, 2);
    }
    const V d = V::load(g + j);
    (V::load(dw + j) + term(d, V::load(row + j))).store(dw + j);
    (V::load(db + j) + d).store(db + j);
  }
  if (tail == 0) return;
  const V d = V::load(g + j, tail);
  (V::load(dw + j, tail) + term(d, V::load(row + j, tail))).store(dw + j, tail);
  (V::load(db + j, tail) + d).store(db + j, tail);
}

template <class C>
void norm_grad_rows(const ConstView& dy, const ConstView& x, const ConstView& weight,
                    const ConstView& mean_in, const ConstView& rstd_in, bool center,
                    const NormGrads& grads) {
  using V = Tile<C>;
  const std::int64_t n = x.shape[1];
  const bool dweight = grads.dweight.data, dbias = grads.dbias.data;
  const RowBlocks blocks(x.shape[0], n);
  // Without rows there is still one block: the sums over no rows must be stored.
  const std::int64_t count = std::max<std::int64_t>(1, blocks.count);
  const RowReader<C> dy_rows(dy), x_rows(x);
  const RowWriter<C> out(
      grads.dx.data ? grads.dx : View{nullptr, x.dtype, x.device, x.shape, x.strides},
      grads.dx_beta);
  const bool streams = grads.dx.data && out.streams(blocks.rows);
  const std::int64_t ahead = dy_rows.ahead() == x_rows.ahead() ? x_rows.ahead() : 0;
  const RowBuffer<C> weights(n), partial(dweight || dbias ? 2 * n * count : 0);
  load_vector(weight, n, 1, weights.data());
  const C* const w = weights.data();
  const std::int64_t bytes = row_buffer_bytes<C>(dy_rows, x_rows, out);
  parallel_for_with_scratch(bytes, count, blocks.rows * n * 8, [&](std::int64_t block) {
    const RowBuffer<C> dy_buffer(dy_rows), x_buffer(x_rows), out_buffer(out);
    C* const dw = dweight || dbias ? partial.data() + 2 * n * block : nullptr;
    C* const db = dw ? dw + n : nullptr;
    if (dw) std::fill_n(dw, 2 * n, C(0));
    for (std::int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      const C* g = dy_rows.row(i, dy_buffer.data());
      const C* row = x_rows.row(i, x_buffer.data());
      const C mean = center ? mean_in.as<C>()[i] : C(0), rstd = rstd_in.as<C>()[i];
      if (grads.dx.data) {
        C* to = out.open(i, out_buffer.data());
        const auto s = reduce_row<C>(n, math::NormGradPass<V>{V(mean), V(rstd)}, g, row, w);
        const C count_n = static_cast<C>(n);
        const C mean_g = center ? s.first / count_n : C(0), mean_gh = s.second / count_n;
        const math::NormGrad<V> grad{V(mean), V(rstd), V(mean_g), V(mean_gh)};
        streams ? stream_row(n, to, grad, g, row, w) : map_row(n, to, out.beta(), grad, g, row, w);
        out.close(i, to);
      }
      if (dw) add_parameter_terms(n, ahead, g, row, mean, rstd, dw, db);
    }
  });
  C* const sums = partial.data();
  if (dweight) add_columns(sums, 2 * n, count, n, grads.dweight, grads.dweight_beta);
  if (dbias) add_columns(sums + n, 2 * n, count, n, grads.dbias, grads.dbias_beta);
}

}  // namespace

void norm(const ConstView& x, const ConstView& weight, const ConstView& bias, double eps,
          bool center, const View& y, const View& mean, const View& rstd, Stream) {
  x.dtype == DType::f64 ? norm_rows<double>(x, weight, bias, eps, center, y, mean, rstd)
                        : norm_rows<float>(x, weight, bias, eps, center, y, mean, rstd);
}

void norm_backward(const ConstView& dy, const ConstView& x, const ConstView& weight,
                   const ConstView& mean, const ConstView& rstd, bool center,
                   const NormGrads& grads, Stream) {
  x.dtype == DType::f64 ? norm_grad_rows<double>(dy, x, weight, mean, rstd, center, grads)
                        : norm_grad_rows<float>(dy, x, weight, mean, rstd, center, grads);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
