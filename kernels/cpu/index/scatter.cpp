// Adds at positions held in a tensor, on the CPU: the gradients of gather.
#include <algorithm>
#include <optional>

#include "kernels/copy.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/scratch.h"
#include "kernels/cpu/index/index.h"
#include "kernels/index.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kTile = 512;  // columns of a chunk

/// sum[index * axis_step + c * step] += dy, for n columns and all positions along the axis.
template <class A>
void add_columns(const ConstView& dy, const ConstView& index, const IndexGeometry& g,
                 const IndexSteps& at, std::int64_t n, A* sum, std::int64_t axis_step,
                 std::int64_t step) {
  alignas(64) A buffer[kTile];
  // The axis is the only loop, or each of its positions has a row of columns.
  const IndexSteps rows{n == 1 ? math::ceil_div(g.axis.size, kTile) : g.axis.size, 0,
                        (n == 1 ? kTile : 1) * g.axis.index, (n == 1 ? kTile : 1) * g.axis.dense};
  const IndexSteps& fast = n == 1 ? g.axis : g.inner;
  with_indices(index, [&](const auto* list) {
    for (std::int64_t j = 0; j < rows.size; ++j) {
      const std::int64_t m = n == 1 ? std::min(kTile, g.axis.size - j * kTile) : n;
      const void* const from = advance(dy.data, dy.dtype, at.dense + j * rows.dense);
      const IndexSteps line{m, n == 1 ? 0 : step, fast.index, 1};
      const auto add = [&](const auto* row) {
        each_element(list + at.index + j * rows.index, line, axis_step,
                     [&](std::int64_t t, std::int64_t d) { sum[t] += row[d]; });
      };
      if (dy.dtype == f32 && fast.dense == 1)
        add(static_cast<const float*>(from));
      else
        add(load_row<A>(from, dy.dtype, fast.dense, m, buffer));
    }
  });
}

/// Number of parts of one list in add_parts(). It depends on sizes alone: parts are rounded apart.
std::int64_t parts_of(std::int64_t terms, std::int64_t bound) {
  constexpr std::int64_t kLong = 65536, kMost = 8;
  return terms < kLong
             ? 1
             : std::clamp<std::int64_t>(terms / (4 * std::max<std::int64_t>(bound, 1)), 1, kMost);
}

/// Adds one list of terms that is much longer than the line of sums. Each part of it has sums of
/// its own, which are then added in the order of the parts.
void add_parts(const ConstView& dy, const ConstView& index, const View& grad, int axis,
               const IndexGeometry& g, std::int64_t parts) {
  const std::int64_t bound = grad.shape[axis];
  Workspace sums({parts, bound}, f64);
  double* const all = sums.view().as<double>();
  const std::int64_t each = math::ceil_div(g.axis.size, parts);
  parallel_for(parts, g.axis.size, [&](std::int64_t p) {
    std::fill_n(all + p * bound, bound, 0.0);
    IndexGeometry part = g;
    part.axis.size = std::min(each, g.axis.size - p * each);
    IndexSteps from;
    from.index = p * each * g.axis.index;
    from.dense = p * each * g.axis.dense;
    add_columns(dy, index, part, from, 1, all + p * bound, 1, 1);
  });
  parallel_for(math::ceil_div(bound, kTile), parts * bound, [&](std::int64_t tile) {
    alignas(64) double old[kTile];
    const std::int64_t first = tile * kTile, n = std::min(kTile, bound - first);
    void* const to = advance(grad.data, grad.dtype, first * g.axis.table);
    double* const sum = all + first;
    const double* before = load_row<double>(to, grad.dtype, g.axis.table, n, old);
    for (std::int64_t i = 0; i < n; ++i) sum[i] += before[i];
    for (std::int64_t p = 1; p < parts; ++p)
      for (std::int64_t i = 0; i < n; ++i) sum[i] += sum[p * bound + i];
    store_row<double>(sum, to, grad.dtype, g.axis.table, n);
  });
}

/// Adds element by element, in sums of type A.
template <class A>
void add_elements(const ConstView& dy, const ConstView& index, const View& grad, int axis,
                  const IndexGeometry& g) {
  const std::int64_t bound = grad.shape[axis];
  const std::int64_t tiles = math::ceil_div(g.inner.size, kTile);
  const std::int64_t each = g.axis.size * std::min(kTile, g.inner.size);
  const std::int64_t together = tiles > 1 ? 1 : std::max<std::int64_t>(1, kIndexChunk / each);
  const std::int64_t pieces = g.lines * tiles;
  const bool direct = grad.dtype == dtype_of<A>;
  const Shape sums{bound, std::min(kTile, g.inner.size)};  // sums of a narrower gradient
  const std::int64_t bytes = direct ? 0 : slot_bytes_of<A>(sums.product());
  const std::int64_t chunks = math::ceil_div(pieces, together);
  parallel_for_with_scratch(bytes, chunks, pieces * each, [&](std::int64_t chunk) {
    std::optional<Workspace> wide;
    if (!direct) wide.emplace(sums, dtype_of<A>);
    const std::int64_t end = std::min(pieces, (chunk + 1) * together);
    for (std::int64_t p = chunk * together; p < end; ++p) {
      IndexSteps at = g.line(p / tiles);
      const std::int64_t c = p % tiles * kTile;
      const std::int64_t n = std::min(kTile, g.inner.size - c);
      at.table += c * g.inner.table;
      at.index += c * g.inner.index;
      at.dense += c * g.inner.dense;
      const auto add = [&](A* sum, std::int64_t axis_step, std::int64_t step) {
        add_columns(dy, index, g, at, n, sum, axis_step, step);
      };
      if (direct) {
        add(grad.as<A>() + at.table, g.axis.table, g.inner.table);
        continue;
      }
      // The inner loop takes the shorter stride, that of the axis or of the columns.
      A* const sum = wide->view().template as<A>();
      const bool rows = n > 1;
      const std::int64_t lines = rows ? bound : 1;
      const std::int64_t length = rows ? n : bound;
      const std::int64_t stride = rows ? g.inner.table : g.axis.table;
      const auto line = [&](std::int64_t r) {
        return advance(grad.data, grad.dtype, at.table + r * g.axis.table);
      };
      for (std::int64_t r = 0; r < lines; ++r) {
        const A* old = load_row<A>(line(r), grad.dtype, stride, length, sum + r * n);
        if (old != sum + r * n) std::copy_n(old, length, sum + r * n);
      }
      add(sum, n, 1);
      for (std::int64_t r = 0; r < lines; ++r) {
        store_row<A>(sum + r * n, line(r), grad.dtype, stride, length);
      }
    }
  });
}

/// The positions 0 .. m-1 of a list of indices, sorted by index. Positions of equal indices keep
/// their order. A dry run has none.
class Grouped {
 public:
  Grouped(const ConstView& index, std::int64_t stride, std::int64_t m, std::int64_t bound)
      : workspace_({2 * m + 1}, i64), positions_(workspace_.view().as<std::int64_t>()) {
    const auto at = [&](std::int64_t j) { return index_at(index, j * stride); };
    const bool counted = bound <= 16 * m;
    std::optional<Workspace> counts;
    if (counted) counts.emplace(Shape{bound + 1}, i64);
    if (runtime::dry_run()) return;
    if (counted) {
      auto* const next = counts->view().as<std::int64_t>();
      std::fill_n(next, bound + 1, 0);
      for (std::int64_t j = 0; j < m; ++j) ++next[at(j) + 1];
      for (std::int64_t i = 0; i < bound; ++i) next[i + 1] += next[i];
      for (std::int64_t j = 0; j < m; ++j) positions_[next[at(j)]++] = j;
    } else {
      for (std::int64_t j = 0; j < m; ++j) positions_[j] = j;
      std::sort(positions_, positions_ + m, [&](std::int64_t a, std::int64_t b) {
        return at(a) != at(b) ? at(a) < at(b) : a < b;
      });
    }
    starts_ = positions_ + m;
    for (std::int64_t k = 0; k < m; ++k)
      if (k == 0 || at(positions_[k]) != at(positions_[k - 1])) starts_[count_++] = k;
    starts_[count_] = m;
  }
  std::int64_t count() const { return count_; }
  std::int64_t size(std::int64_t g) const { return starts_[g + 1] - starts_[g]; }
  const std::int64_t* positions(std::int64_t g) const { return positions_ + starts_[g]; }
  /// Number of positions from those of group g on, including those of later groups.
  std::int64_t rest(std::int64_t g) const { return starts_[count_] - starts_[g]; }

 private:
  Workspace workspace_;
  std::int64_t* positions_;
  std::int64_t* starts_ = nullptr;
  std::int64_t count_ = 0;
};

/// Prefetches the first lines of `bytes` bytes; the CPU itself prefetches the others.
void fetch_ahead(const void* data, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64, kMost = 4 * kLine;
  for (std::int64_t i = 0; i < std::min(bytes, kMost); i += kLine)
    __builtin_prefetch(static_cast<const char*>(data) + i);
}

/// grad[0 .. n) += the pieces of dy at `count` positions, summed in A and rounded once. `rest` is
/// the number of positions left, these included; the next ones are prefetched.
template <class A>
void add_group(const ConstView& dy, std::int64_t from, const IndexGeometry& g,
               const std::int64_t* positions, std::int64_t count, std::int64_t rest, void* grad,
               DType dtype, std::int64_t n) {
  constexpr std::int64_t kAhead = 8;
  const auto bytes = n * static_cast<std::int64_t>(size_of(dy.dtype));
  const auto piece = [&](std::int64_t k) {
    return advance(dy.data, dy.dtype, from + positions[k] * g.axis.dense);
  };
  alignas(64) A loaded[kTile];
  alignas(64) A buffer[kTile];
  A* const sum = row_target(grad, dtype, g.inner.table, buffer);
  const A* old = load_row<A>(grad, dtype, g.inner.table, n, sum);
  if (old != sum) std::copy_n(old, n, sum);
  for (std::int64_t k = 0; k < count; ++k) {
    if (k + kAhead < rest) fetch_ahead(piece(k + kAhead), bytes);
    const A* row = load_row<A>(piece(k), dy.dtype, g.inner.dense, n, loaded);
    for (std::int64_t c = 0; c < n; ++c) sum[c] += row[c];
  }
  store_row<A>(sum, grad, dtype, g.inner.table, n);
}

/// Adds whole pieces of the inner axis, with one list of indices for all lines: each row of grad is
/// read and written once.
void add_slices(const ConstView& dy, const ConstView& index, const View& grad, int axis,
                const IndexGeometry& g) {
  const Grouped groups(index, g.axis.index, g.axis.size, grad.shape[axis]);
  const std::int64_t tiles = math::ceil_div(g.inner.size, kTile);
  const std::int64_t width = std::min(kTile, g.inner.size);
  const std::int64_t together = std::max<std::int64_t>(1, kIndexChunk / width / 4);
  const std::int64_t bundles = math::ceil_div(groups.count(), together);
  const std::int64_t work = g.lines * g.axis.size * g.inner.size;
  parallel_for(g.lines * tiles * bundles, work, [&](std::int64_t chunk) {
    const IndexSteps at = g.line(chunk / bundles / tiles);
    const std::int64_t c = chunk / bundles % tiles * kTile;
    const std::int64_t n = std::min(kTile, g.inner.size - c);
    const std::int64_t first = chunk % bundles * together;
    const std::int64_t last = std::min(groups.count(), first + together);
    const std::int64_t from = at.dense + c * g.inner.dense;
    for (std::int64_t k = first; k < last; ++k) {
      const std::int64_t* positions = groups.positions(k);
      const std::int64_t row = index_at(index, positions[0] * g.axis.index);
      void* to = advance(grad.data, grad.dtype, at.table + c * g.inner.table + row * g.axis.table);
      if (grad.dtype == f64 || groups.size(k) > kFewTerms) {
        add_group<double>(dy, from, g, positions, groups.size(k), groups.rest(k), to, grad.dtype,
                          n);
      } else {
        add_group<float>(dy, from, g, positions, groups.size(k), groups.rest(k), to, grad.dtype, n);
      }
    }
  });
}

}  // namespace

void gather_backward(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
                     int axis, float beta, Stream stream) {
  const std::int64_t bound = grad.shape[axis];
  check_index(op, index, bound);
  if (beta == 0) fill(grad, 0, stream);
  if (dy.numel() == 0) return;
  const IndexGeometry g(grad, index, dy, axis);
  bool one_list = g.inner.index == 0 && g.inner.size > 1;
  for (int i = 0; i < g.outer_count; ++i) one_list = one_list && g.outer[i].index == 0;
  if (one_list) return add_slices(dy, index, grad, axis, g);
  const std::int64_t parts = parts_of(g.axis.size, bound);
  if (parts > 1 && g.lines == 1 && g.inner.size == 1) {
    add_parts(dy, index, grad, axis, g, parts);
  } else if (grad.dtype == f64 || g.axis.size > kFewTerms) {
    add_elements<double>(dy, index, grad, axis, g);
  } else {
    add_elements<float>(dy, index, grad, axis, g);
  }
}

void add_rows(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
              float beta, Stream stream) {
  if (dy.shape[1] == 0) check_index(op, index, grad.shape[0]);
  gather_backward(op, dy, over_columns(index, dy.shape[1]), grad, 0, beta, stream);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
