// Reading and adding at positions held in a tensor. take_rows and add_rows are gather and
// gather_backward along axis 0 with an index that is repeated over the columns.
//
// Determinism: elements that meet in one place differ along the axis only, so work is split off the
// axis or by place, and what meets is added in the order of the axis.
#include "kernels/index.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "kernels/copy.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/workspace.h"

namespace firn::kernels::cpu {
namespace {

constexpr std::int64_t kTile = 512;    // columns of a chunk
constexpr std::int64_t kWork = 16384;  // elements of a chunk where pieces are small

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Throws where an index is outside [0, bound). Axes with stride 0 are looked at once.
template <class I>
void check_index(const char* op, const ConstView& index, std::int64_t bound) {
  if (index.numel() == 0) return;
  Shape shape = index.shape;
  for (int i = 0; i < shape.size(); ++i)
    if (index.strides[i] == 0) shape[i] = 1;
  const int last = shape.size() - 1;
  const std::int64_t n = last < 0 ? 1 : shape[last];
  const std::int64_t stride = last < 0 ? 1 : index.strides[last];
  const std::int64_t lines = shape.product() / n;
  Dims at = Dims::filled(shape.size(), 0);
  const I* line = index.as<I>();
  for (std::int64_t l = 0; l < lines; ++l) {
    bool bad = false;
    for (std::int64_t k = 0; k < n; ++k) {
      const auto value = static_cast<std::int64_t>(line[k * stride]);
      bad |= (value < 0) | (value >= bound);
    }
    if (bad) [[unlikely]] {
      for (std::int64_t k = 0; k < n; ++k) {
        const auto value = static_cast<std::int64_t>(line[k * stride]);
        if (last >= 0) at[last] = k;
        FIRN_CHECK(value >= 0 && value < bound, op, "indices start at 0 and may not be negative",
                   "index {} at position {} is outside [0, {})", value, at, bound);
      }
    }
    for (int a = last - 1; a >= 0; --a) {
      line += index.strides[a];
      if (++at[a] < shape[a]) break;
      line -= index.strides[a] * shape[a];
      at[a] = 0;
    }
  }
}

void check_index(const char* op, const ConstView& index, std::int64_t bound) {
  if (index.dtype == i32) return check_index<std::int32_t>(op, index, bound);
  check_index<std::int64_t>(op, index, bound);
}

std::int64_t index_at(const ConstView& index, std::int64_t offset) {
  return index.dtype == i32 ? index.as<std::int32_t>()[offset] : index.as<std::int64_t>()[offset];
}

/// Strides of one axis (or offsets) in the indexed tensor, in the index, and in the tensor of the
/// index's shape.
struct Steps {
  std::int64_t size = 1;
  std::int64_t table = 0;
  std::int64_t index = 0;
  std::int64_t dense = 0;
};

/// The axes of a gather: the one that is indexed, an inner one (or none), and the rest merged.
struct Geometry {
  Steps axis;
  Steps inner;
  Steps outer[kMaxRank];
  int outer_count = 0;
  std::int64_t lines = 1;  ///< product of the outer sizes

  Geometry(const ConstView& table, const ConstView& index, const ConstView& dense, int along) {
    for (int i = 0; i < index.rank(); ++i) {
      const Steps s{index.shape[i], table.strides[i], index.strides[i], dense.strides[i]};
      if (i == along) {
        axis = s;
        continue;
      }
      if (s.size == 1) continue;
      Steps* previous = outer_count > 0 ? &outer[outer_count - 1] : nullptr;
      // Axes on different sides of the indexed one never merge: the table's stride jumps over it.
      if (previous && previous->table == s.table * s.size && previous->index == s.index * s.size &&
          previous->dense == s.dense * s.size) {
        const std::int64_t size = previous->size;
        *previous = s;
        previous->size *= size;
      } else {
        outer[outer_count++] = s;
      }
    }
    // The inner loop runs off the axis where elements lie closer there than along the axis.
    if (outer_count > 0 && outer[outer_count - 1].dense <= axis.dense) inner = outer[--outer_count];
    for (int i = 0; i < outer_count; ++i) lines *= outer[i].size;
  }

  Steps line(std::int64_t l) const {
    Steps at;
    for (int i = outer_count - 1; i >= 0; --i) {
      const std::int64_t k = l % outer[i].size;
      l /= outer[i].size;
      at.table += k * outer[i].table;
      at.index += k * outer[i].index;
      at.dense += k * outer[i].dense;
    }
    return at;
  }
};

/// Elements of one size are moved as unsigned integers of it.
template <class T>
void gather_bits(const ConstView& x, const ConstView& index, const View& out, const Geometry& g) {
  const T* const from = x.as<T>();
  T* const to = out.as<T>();
  const Steps& in = g.inner;
  if (in.index == 0 && in.size > 1) {  // whole pieces of the inner axis
    const bool dense = in.table == 1 && in.dense == 1;
    const std::int64_t together = std::max<std::int64_t>(1, kWork / in.size);
    const std::int64_t pieces = g.lines * g.axis.size;
    parallel_for(ceil_div(pieces, together), pieces * in.size, [&](std::int64_t chunk) {
      const std::int64_t end = std::min(pieces, (chunk + 1) * together);
      for (std::int64_t p = chunk * together; p < end; ++p) {
        const std::int64_t j = p % g.axis.size;
        const Steps at = g.line(p / g.axis.size);
        const T* source =
            from + at.table + index_at(index, at.index + j * g.axis.index) * g.axis.table;
        T* target = to + at.dense + j * g.axis.dense;
        if (dense) {
          std::memcpy(target, source, static_cast<std::size_t>(in.size) * sizeof(T));
        } else {
          for (std::int64_t c = 0; c < in.size; ++c) target[c * in.dense] = source[c * in.table];
        }
      }
    });
    return;
  }
  const bool along = in.size == 1;  // element by element, along the axis or off it
  const Steps& fast = along ? g.axis : in;
  const Steps& slow = along ? in : g.axis;
  const std::int64_t together = std::max<std::int64_t>(1, kWork / fast.size);
  const std::int64_t pieces = g.lines * slow.size;
  parallel_for(ceil_div(pieces, together), pieces * fast.size, [&](std::int64_t chunk) {
    const std::int64_t end = std::min(pieces, (chunk + 1) * together);
    for (std::int64_t p = chunk * together; p < end; ++p) {
      const Steps at = g.line(p / slow.size);
      const std::int64_t s = p % slow.size;
      const T* source = from + at.table + (along ? s * in.table : 0);
      T* target = to + at.dense + s * slow.dense;
      const std::int64_t positions = at.index + s * slow.index;
      const std::int64_t step = along ? 0 : in.table;
      for (std::int64_t k = 0; k < fast.size; ++k) {
        target[k * fast.dense] =
            source[k * step + index_at(index, positions + k * fast.index) * g.axis.table];
      }
    }
  });
}

void gather_checked(const ConstView& x, const ConstView& index, const View& out, int axis) {
  if (out.numel() == 0) return;
  const Geometry g(x, index, out, axis);
  switch (size_of(x.dtype)) {
    case 1:
      return gather_bits<std::uint8_t>(x, index, out, g);
    case 2:
      return gather_bits<std::uint16_t>(x, index, out, g);
    case 4:
      return gather_bits<std::uint32_t>(x, index, out, g);
    default:
      return gather_bits<std::uint64_t>(x, index, out, g);
  }
}

/// A few duplicates are summed in the compute type; a sum of more terms than this runs in f64,
/// since one after the other they would drift.
constexpr std::int64_t kFewTerms = 64;

/// sum[index * axis_step + c * step] += dy, for n columns and all positions along the axis.
template <class A>
void add_columns(const ConstView& dy, const ConstView& index, const Geometry& g, const Steps& at,
                 std::int64_t n, A* sum, std::int64_t axis_step, std::int64_t step) {
  alignas(64) A buffer[kTile];
  const auto load = [&](std::int64_t offset, std::int64_t stride, std::int64_t count) {
    return load_row<A>(advance(dy.data, dy.dtype, at.dense + offset), dy.dtype, stride, count,
                       buffer);
  };
  if (n == 1) {  // the axis is the only loop: load along it
    for (std::int64_t j = 0; j < g.axis.size; j += kTile) {
      const std::int64_t m = std::min(kTile, g.axis.size - j);
      const A* row = load(j * g.axis.dense, g.axis.dense, m);
      for (std::int64_t k = 0; k < m; ++k) {
        sum[index_at(index, at.index + (j + k) * g.axis.index) * axis_step] += row[k];
      }
    }
    return;
  }
  for (std::int64_t j = 0; j < g.axis.size; ++j) {
    const A* row = load(j * g.axis.dense, g.inner.dense, n);
    const std::int64_t positions = at.index + j * g.axis.index;
    for (std::int64_t c = 0; c < n; ++c) {
      sum[index_at(index, positions + c * g.inner.index) * axis_step + c * step] += row[c];
    }
  }
}

/// Element by element, in sums of type A.
template <class A>
void add_elements(const ConstView& dy, const ConstView& index, const View& grad, int axis,
                  const Geometry& g) {
  const std::int64_t bound = grad.shape[axis];
  const std::int64_t tiles = ceil_div(g.inner.size, kTile);
  const std::int64_t each = g.axis.size * std::min(kTile, g.inner.size);
  const std::int64_t together = tiles > 1 ? 1 : std::max<std::int64_t>(1, kWork / each);
  const std::int64_t pieces = g.lines * tiles;
  const bool direct = grad.dtype == dtype_of<A>;
  parallel_for(ceil_div(pieces, together), pieces * each, [&](std::int64_t chunk) {
    std::optional<Workspace> wide;  // sums of a narrower gradient, [bound, columns]
    if (!direct) wide.emplace(Shape{bound, std::min(kTile, g.inner.size)}, dtype_of<A>);
    const std::int64_t end = std::min(pieces, (chunk + 1) * together);
    for (std::int64_t p = chunk * together; p < end; ++p) {
      Steps at = g.line(p / tiles);
      const std::int64_t c = p % tiles * kTile;
      const std::int64_t n = std::min(kTile, g.inner.size - c);
      at.table += c * g.inner.table;
      at.index += c * g.inner.index;
      at.dense += c * g.inner.dense;
      if (direct) {
        add_columns(dy, index, g, at, n, grad.as<A>() + at.table, g.axis.table, g.inner.table);
        continue;
      }
      // The shorter stride inside, whether that is the axis or the columns.
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
      add_columns(dy, index, g, at, n, sum, n, 1);
      for (std::int64_t r = 0; r < lines; ++r) {
        store_row<A>(sum + r * n, line(r), grad.dtype, stride, length);
      }
    }
  });
}

/// The positions 0 .. m-1 of a list of indices, ordered by index, those of one index in their
/// order.
class Grouped {
 public:
  Grouped(const ConstView& index, std::int64_t stride, std::int64_t m, std::int64_t bound)
      : workspace_({2 * m + 1}, i64), positions_(workspace_.view().as<std::int64_t>()) {
    const auto at = [&](std::int64_t j) { return index_at(index, j * stride); };
    if (bound <= 16 * m) {
      const Workspace counts({bound + 1}, i64);
      auto* const next = counts.view().as<std::int64_t>();
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

 private:
  Workspace workspace_;
  std::int64_t* positions_;
  std::int64_t* starts_ = nullptr;
  std::int64_t count_ = 0;
};

/// grad[0 .. n) += the pieces of dy at these positions, summed in A and rounded once.
template <class A>
void add_group(const ConstView& dy, std::int64_t from, const Geometry& g,
               const std::int64_t* positions, std::int64_t count, void* grad, DType dtype,
               std::int64_t n) {
  alignas(64) A loaded[kTile];
  alignas(64) A buffer[kTile];
  A* const sum = row_target(grad, dtype, g.inner.table, buffer);
  const A* old = load_row<A>(grad, dtype, g.inner.table, n, sum);
  if (old != sum) std::copy_n(old, n, sum);
  for (std::int64_t k = 0; k < count; ++k) {
    const void* src = advance(dy.data, dy.dtype, from + positions[k] * g.axis.dense);
    const A* row = load_row<A>(src, dy.dtype, g.inner.dense, n, loaded);
    for (std::int64_t c = 0; c < n; ++c) sum[c] += row[c];
  }
  store_row<A>(sum, grad, dtype, g.inner.table, n);
}

/// Whole pieces of the inner axis, by one list of indices for all lines: each row of grad is read
/// and written once.
void add_slices(const ConstView& dy, const ConstView& index, const View& grad, int axis,
                const Geometry& g) {
  const Grouped groups(index, g.axis.index, g.axis.size, grad.shape[axis]);
  const std::int64_t tiles = ceil_div(g.inner.size, kTile);
  const std::int64_t width = std::min(kTile, g.inner.size);
  const std::int64_t together = std::max<std::int64_t>(1, kWork / width / 4);
  const std::int64_t bundles = ceil_div(groups.count(), together);
  const std::int64_t work = g.lines * g.axis.size * g.inner.size;
  parallel_for(g.lines * tiles * bundles, work, [&](std::int64_t chunk) {
    const Steps at = g.line(chunk / bundles / tiles);
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
        add_group<double>(dy, from, g, positions, groups.size(k), to, grad.dtype, n);
      } else {
        add_group<float>(dy, from, g, positions, groups.size(k), to, grad.dtype, n);
      }
    }
  });
}

void gather_backward_checked(const ConstView& dy, const ConstView& index, const View& grad,
                             int axis, float beta, Stream stream) {
  if (beta == 0) fill(grad, 0, stream);
  if (dy.numel() == 0) return;
  const Geometry g(grad, index, dy, axis);
  bool one_list = g.inner.index == 0 && g.inner.size > 1;
  for (int i = 0; i < g.outer_count; ++i) one_list = one_list && g.outer[i].index == 0;
  if (one_list) return add_slices(dy, index, grad, axis, g);
  if (grad.dtype == f64 || g.axis.size > kFewTerms) {
    return add_elements<double>(dy, index, grad, axis, g);
  }
  add_elements<float>(dy, index, grad, axis, g);
}

/// A 1-D index as [m, d], repeated over the columns.
ConstView over_columns(const ConstView& index, std::int64_t d) {
  ConstView v = index;
  v.shape.push_back(d);
  v.strides.push_back(0);
  return v;
}

}  // namespace

void gather(const char* op, const ConstView& x, const ConstView& index, const View& out, int axis,
            Stream) {
  check_index(op, index, x.shape[axis]);
  gather_checked(x, index, out, axis);
}

void gather_backward(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
                     int axis, float beta, Stream stream) {
  check_index(op, index, grad.shape[axis]);
  gather_backward_checked(dy, index, grad, axis, beta, stream);
}

void take_rows(const char* op, const ConstView& table, const ConstView& index, const View& out,
               Stream) {
  check_index(op, index, table.shape[0]);
  gather_checked(table, over_columns(index, out.shape[1]), out, 0);
}

void add_rows(const char* op, const ConstView& dy, const ConstView& index, const View& grad,
              float beta, Stream stream) {
  check_index(op, index, grad.shape[0]);
  gather_backward_checked(dy, over_columns(index, dy.shape[1]), grad, 0, beta, stream);
}

void one_hot(const char* op, const ConstView& index, const View& out, Stream stream) {
  check_index(op, index, out.shape[1]);
  fill(out, 0, stream);
  const float one = 1;
  for (std::int64_t i = 0; i < out.shape[0]; ++i) {
    const std::int64_t at =
        i * out.strides[0] + index_at(index, i * index.strides[0]) * out.strides[1];
    store_row(&one, advance(out.data, out.dtype, at), out.dtype, 1, 1);
  }
}

}  // namespace firn::kernels::cpu
