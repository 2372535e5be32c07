// Reads at positions held in a tensor, on the CPU, and checks those positions.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "firn/error.h"
#include "firn/runtime/kernel_support.h"
#include "kernels/copy.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/index/index.h"
#include "kernels/index.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// Returns `at` without the axes along which the index is repeated: the position in the caller's
/// index.
Dims own_position(const Dims& at, const ConstView& index) {
  Dims own;
  for (int i = 0; i < at.size(); ++i)
    if (index.strides[i] != 0) own.push_back(at[i]);
  return own.size() > 0 ? own : at;
}

/// True if one of n indices, `stride` apart, lies outside [0, bound).
template <class I>
bool any_outside(const I* index, std::int64_t n, std::int64_t stride, std::int64_t bound) {
  const auto last = static_cast<std::uint64_t>(bound - 1);
  std::uint64_t signs = 0;
  const auto add = [&](I i) {  // i or last - i is negative
    const auto bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(i));
    signs |= bits | (last - bits);
  };
  if (stride == 1) {  // compilers vectorise this loop
    for (std::int64_t k = 0; k < n; ++k) add(index[k]);
  } else {
    for (std::int64_t k = 0; k < n; ++k) add(index[k * stride]);
  }
  return signs >> 63 != 0;
}

template <class I>
void check_index_as(const char* op, const ConstView& index, std::int64_t bound) {
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
  if (lines == 1 && n >= 2 * kIndexChunk) {  // a long list by several threads
    std::atomic<bool> found = false;
    parallel_for(math::ceil_div(n, kIndexChunk), n, [&](std::int64_t c) {
      const std::int64_t first = c * kIndexChunk, count = std::min(kIndexChunk, n - first);
      if (any_outside(line + first * stride, count, stride, bound)) found = true;
    });
    if (!found) return;
  }
  for (std::int64_t l = 0; l < lines; ++l) {
    if (any_outside(line, n, stride, bound)) [[unlikely]] {
      for (std::int64_t k = 0; k < n; ++k) {
        const auto value = static_cast<std::int64_t>(line[k * stride]);
        if (last >= 0) at[last] = k;
        if (value < 0 || value >= bound)
          throw Error(op,
                      "index " + std::to_string(value) + " at position " +
                          to_string(own_position(at, index)) + " is outside [0, " +
                          std::to_string(bound) + ")",
                      "indices start at 0 and may not be negative");
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

/// Moves elements as unsigned integers of their size.
template <class T>
void gather_bits(const ConstView& x, const ConstView& index, const View& out,
                 const IndexGeometry& g) {
  const T* const from = x.as<T>();
  T* const to = out.as<T>();
  const IndexSteps& in = g.inner;
  if (in.index == 0 && in.size > 1) {  // whole pieces of the inner axis
    const bool dense = in.table == 1 && in.dense == 1;
    const std::int64_t together = std::max<std::int64_t>(1, kIndexChunk / in.size);
    const std::int64_t pieces = g.lines * g.axis.size;
    parallel_for(math::ceil_div(pieces, together), pieces * in.size, [&](std::int64_t chunk) {
      const std::int64_t end = std::min(pieces, (chunk + 1) * together);
      for (std::int64_t p = chunk * together; p < end; ++p) {
        const std::int64_t j = p % g.axis.size;
        const IndexSteps at = g.line(p / g.axis.size);
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
  const IndexSteps& fast = along ? g.axis : in;
  const IndexSteps& slow = along ? in : g.axis;
  const std::int64_t together = std::max<std::int64_t>(1, kIndexChunk / fast.size);
  const std::int64_t pieces = g.lines * slow.size;
  parallel_for(math::ceil_div(pieces, together), pieces * fast.size, [&](std::int64_t chunk) {
    const std::int64_t end = std::min(pieces, (chunk + 1) * together);
    for (std::int64_t p = chunk * together; p < end; ++p) {
      const IndexSteps at = g.line(p / slow.size);
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
  if (out.numel() == 0 || runtime::dry_run()) return;  // a dry run has computed no index
  const IndexGeometry g(x, index, out, axis);
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

}  // namespace

void check_index(const char* op, const ConstView& index, std::int64_t bound) {
  if (runtime::dry_run()) return;
  if (index.dtype == i32) return check_index_as<std::int32_t>(op, index, bound);
  check_index_as<std::int64_t>(op, index, bound);
}

void gather(const char* op, const ConstView& x, const ConstView& index, const View& out, int axis,
            Stream) {
  check_index(op, index, x.shape[axis]);
  gather_checked(x, index, out, axis);
}

void take_rows(const char* op, const ConstView& table, const ConstView& index, const View& out,
               Stream) {
  check_index(op, index, table.shape[0]);
  gather_checked(table, over_columns(index, out.shape[1]), out, 0);
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

}  // namespace firn::kernels::cpu::FIRN_ISA
