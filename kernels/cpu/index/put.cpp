// Writes at positions held in a tensor, on the CPU. Elements with equal positions are combined in
// the order of the index. Lines along the axis, and pieces of slices, are independent.
#include <algorithm>

#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/index/index.h"
#include "kernels/index.h"
#include "kernels/math/combine.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kTile = 512;  // columns of a chunk

template <class T, class Meet>
void put_as(const ConstView& src, const ConstView& index, const View& out, int axis,
            const Meet& meet) {
  const IndexGeometry g(out, index, src, axis);
  const T* const from = src.as<T>();
  T* const to = out.as<T>();
  const std::int64_t tiles = math::ceil_div(g.inner.size, kTile);
  const std::int64_t each = g.axis.size * std::min(kTile, g.inner.size);
  const std::int64_t together = tiles > 1 ? 1 : std::max<std::int64_t>(1, kIndexChunk / each);
  const std::int64_t pieces = g.lines * tiles;
  parallel_for(math::ceil_div(pieces, together), pieces * each, [&](std::int64_t chunk) {
    const std::int64_t end = std::min(pieces, (chunk + 1) * together);
    for (std::int64_t p = chunk * together; p < end; ++p) {
      const IndexSteps at = g.line(p / tiles);
      const std::int64_t first = p % tiles * kTile;
      const std::int64_t last = std::min(g.inner.size, first + kTile);
      if (g.inner.size == 1) {
        const IndexSteps along = g.axis;
        const T* const list = from + at.dense;
        T* const table = to + at.table;
        for (std::int64_t j = 0; j < along.size; ++j)
          meet(table[index_at(index, at.index + j * along.index) * along.table],
               list[j * along.dense]);
        continue;
      }
      for (std::int64_t j = 0; j < g.axis.size; ++j) {
        const T* const row = from + at.dense + j * g.axis.dense;
        const std::int64_t positions = at.index + j * g.axis.index;
        if (g.inner.index == 0) {
          T* const place = to + at.table + index_at(index, positions) * g.axis.table;
          for (std::int64_t c = first; c < last; ++c)
            meet(place[c * g.inner.table], row[c * g.inner.dense]);
        } else {
          for (std::int64_t c = first; c < last; ++c) {
            const std::int64_t at_place = index_at(index, positions + c * g.inner.index);
            meet(to[at.table + at_place * g.axis.table + c * g.inner.table],
                 row[c * g.inner.dense]);
          }
        }
      }
    }
  });
}

template <class T>
void combine_as(const ConstView& src, const ConstView& index, const View& out, int axis,
                Meeting meeting) {
  switch (meeting) {
    case Meeting::sum:
      if constexpr (std::is_integral_v<T>)
        put_as<T>(src, index, out, axis, [](T& a, T b) { a = math::wrapping_sum(a, b); });
      return;
    case Meeting::prod:
      return put_as<T>(src, index, out, axis, [](T& a, T b) { a = math::wrapping_product(a, b); });
    case Meeting::max:
      return put_as<T>(src, index, out, axis, [](T& a, T b) { a = math::larger_or_nan(a, b); });
    default:
      return put_as<T>(src, index, out, axis, [](T& a, T b) { a = math::smaller_or_nan(a, b); });
  }
}

template <class T>
void put_last(const ConstView& src, const ConstView& index, const View& out, int axis) {
  put_as<T>(src, index, out, axis, [](T& a, T b) { a = b; });
}

}  // namespace

void put(const char* op, const ConstView& src, const ConstView& index, const View& out, int axis,
         Meeting meeting, Stream) {
  check_index(op, index, out.shape[axis]);
  if (src.numel() == 0) return;
  if (meeting == Meeting::last) {
    switch (size_of(out.dtype)) {
      case 1:
        return put_last<std::uint8_t>(src, index, out, axis);
      case 2:
        return put_last<std::uint16_t>(src, index, out, axis);
      case 4:
        return put_last<std::uint32_t>(src, index, out, axis);
      default:
        return put_last<std::uint64_t>(src, index, out, axis);
    }
  }
  switch (out.dtype) {
    case f64:
      return combine_as<double>(src, index, out, axis, meeting);
    case i32:
      return combine_as<std::int32_t>(src, index, out, axis, meeting);
    case i64:
      return combine_as<std::int64_t>(src, index, out, axis, meeting);
    case u8:
      return combine_as<std::uint8_t>(src, index, out, axis, meeting);
    default:
      return combine_as<float>(src, index, out, axis, meeting);
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
