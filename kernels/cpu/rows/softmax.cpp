// Softmax and log-softmax of rows on the CPU, and their gradients.
#include <cmath>

#include "kernels/cpu/rows/driver.h"
#include "kernels/math/rows.h"
#include "kernels/rows.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Turns `rows` rows of n elements. Returns the distance in which those of an element begin, whole
/// tiles; rows that are absent have zeros.
template <class C>
std::int64_t turn_rows(const C* from, std::int64_t rows, std::int64_t n, C* to) {
  const std::int64_t ld = math::ceil_div(rows, Tile<C>::size) * Tile<C>::size;
  if (ld != rows) std::fill_n(to, n * ld, C(0));
  turn(from, n, rows, n, to, ld);
  return ld;
}

template <class C>
void softmax_abreast(const C* from, C* to, std::int64_t rows, std::int64_t n, bool log) {
  using V = Tile<C>;
  alignas(64) C x[kRow];
  const std::int64_t ld = turn_rows(from, rows, n, x);
  for (C* at = x; at < x + ld; at += V::size) {
    const auto each = [&](const auto& f) {
      for (std::int64_t j = 0; j < n; ++j) map_row(V::size, at + j * ld, 0, f, at + j * ld);
    };
    const V max = reduce_turned<C>(n, ld, math::Largest<V>{}, at).value;
    const math::ShiftedExp<V> term{max};
    if (log) {
      const auto pass = [&](V v) { return math::Sum<V>{term(v)}; };
      const V sum = reduce_turned<C>(n, ld, pass, at).value;
      each(math::LogSoftmax<V>{max, tiles::detail::per_lane([](C s) { return std::log(s); }, sum)});
    } else {
      each(term);
      const V share = V(1) / reduce_turned<C>(n, ld, math::Elements<V>{}, at).value;
      each([share](V v) { return v * share; });
    }
  }
  turn(x, ld, n, rows, to, n);
}

template <class C>
void softmax_rows(const ConstView& x, const View& y, bool log) {
  using V = Tile<C>;
  const std::int64_t n = x.shape[1];
  const RowBlocks blocks(x.shape[0], n);
  const RowReader<C> in(x);
  const RowWriter<C> out(y, 0);
  const bool streams = !log && out.streams(blocks.rows);
  const std::int64_t together = std::min(in.together(), out.together());
  const bool abreast = together > 1 && n <= V::size;
  const std::int64_t bytes =
      row_buffer_bytes_of<C>(together, in, out) + slot_bytes_of<C>(streams ? n : 0);
  parallel_for_with_scratch(bytes, blocks.count, blocks.rows * n * 16, [&](std::int64_t block) {
    const RowBuffer<C> in_buffer(in, together), out_buffer(out, together), terms(streams ? n : 0);
    for (std::int64_t i = blocks.begin(block), rows; i < blocks.end(block); i += rows) {
      rows = std::min(together, blocks.end(block) - i);
      const C* row = in.row(i, in_buffer.data(), rows);
      C* const first = out.open(i, out_buffer.data(), rows);
      if (abreast) {
        softmax_abreast(row, first, rows, n, log);
      } else {
        for (C* to = first; to < first + rows * n; to += n, row += n) {
          const C max = reduce_row<C>(n, math::Largest<V>{}, row).value;
          const math::ShiftedExp<V> term{V(max)};
          if (log) {
            const auto pass = [&](V v) { return math::Sum<V>{term(v)}; };
            const C sum = reduce_row<C>(n, pass, row).value;
            map_row(n, to, 0, math::LogSoftmax<V>{V(max), V(std::log(sum))}, row);
          } else {
            C* const e = streams ? terms.data() : to;
            const V share(C(1) / map_and_sum_row(n, in.ahead(), e, term, row));
            const auto scaled = [share](V v) { return v * share; };
            streams ? stream_row(n, to, scaled, e) : map_row(n, to, 0, scaled, e);
          }
        }
      }
      out.close(i, first, rows);
    }
  });
}

template <template <class> class Grad, class C>
void softmax_grad_abreast(const C* g, const C* p, C* to, std::int64_t rows, std::int64_t n,
                          float beta) {
  using V = Tile<C>;
  alignas(64) C dy[kRow];
  alignas(64) C y[kRow];
  alignas(64) C dx[kRow];
  turn_rows(g, rows, n, dy);
  if (beta != 0) turn_rows(to, rows, n, dx);
  const std::int64_t ld = turn_rows(p, rows, n, y);
  for (std::int64_t k = 0; k < ld; k += V::size) {
    const Grad<V> grad{reduce_turned<C>(n, ld, Grad<V>::pass, dy + k, y + k).value};
    for (std::int64_t j = k; j < n * ld; j += ld)
      map_row(V::size, dx + j, beta, grad, dy + j, y + j);
  }
  turn(dx, ld, n, rows, to, n);
}

template <template <class> class Grad, class C>
void softmax_grad_rows(const ConstView& dy, const ConstView& y, const View& dx, float beta) {
  using V = Tile<C>;
  const std::int64_t n = y.shape[1];
  const RowBlocks blocks(y.shape[0], n);
  const RowReader<C> dy_rows(dy), y_rows(y);
  const RowWriter<C> out(dx, beta);
  const bool streams = out.streams(blocks.rows);
  const std::int64_t together = std::min({dy_rows.together(), y_rows.together(), out.together()});
  const bool abreast = together > 1 && n <= V::size;
  const std::int64_t bytes = row_buffer_bytes_of<C>(together, dy_rows, y_rows, out);
  parallel_for_with_scratch(bytes, blocks.count, blocks.rows * n * 8, [&](std::int64_t block) {
    const RowBuffer<C> dy_buffer(dy_rows, together), y_buffer(y_rows, together),
        out_buffer(out, together);
    for (std::int64_t i = blocks.begin(block), rows; i < blocks.end(block); i += rows) {
      rows = std::min(together, blocks.end(block) - i);
      const C* g = dy_rows.row(i, dy_buffer.data(), rows);
      const C* p = y_rows.row(i, y_buffer.data(), rows);
      C* const first = out.open(i, out_buffer.data(), rows);
      if (abreast) {
        softmax_grad_abreast<Grad>(g, p, first, rows, n, beta);
      } else {
        for (C* to = first; to < first + rows * n; to += n, g += n, p += n) {
          const Grad<V> grad{V(reduce_row<C>(n, Grad<V>::pass, g, p).value)};
          streams ? stream_row(n, to, grad, g, p) : map_row(n, to, beta, grad, g, p);
        }
      }
      out.close(i, first, rows);
    }
  });
}

}  // namespace

void softmax(const ConstView& x, const View& y, bool log, Stream) {
  x.dtype == DType::f64 ? softmax_rows<double>(x, y, log) : softmax_rows<float>(x, y, log);
}

void softmax_backward(const ConstView& dy, const ConstView& y, const View& dx, bool log, float beta,
                      Stream) {
  const bool wide = y.dtype == DType::f64;
  if (log) {
    wide ? softmax_grad_rows<math::LogSoftmaxGrad, double>(dy, y, dx, beta)
         : softmax_grad_rows<math::LogSoftmaxGrad, float>(dy, y, dx, beta);
  } else {
    wide ? softmax_grad_rows<math::SoftmaxGrad, double>(dy, y, dx, beta)
         : softmax_grad_rows<math::SoftmaxGrad, float>(dy, y, dx, beta);
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
