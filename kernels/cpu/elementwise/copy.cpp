// Copies with conversion, fills and number sequences on the CPU. Copies within one dtype move bits:
// NaN payloads and subnormals arrive as they were.
#include "kernels/copy.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/device/blocks.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/transpose.h"
#include "kernels/cpu/elementwise/driver.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// While alive, subnormals are kept inside a parallel_for: a cast must not flush them.
class KeepSubnormals {
 public:
#if defined(__SSE__)
  KeepSubnormals() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(saved_ & ~0x8040u); }
  ~KeepSubnormals() { _mm_setcsr(saved_); }
  KeepSubnormals(const KeepSubnormals&) = delete;
  KeepSubnormals& operator=(const KeepSubnormals&) = delete;

 private:
  unsigned saved_;
#else
  KeepSubnormals() noexcept {}
#endif
};

/// Returns the axis along which view 1 is contiguous, if it is not the last one and a blocked
/// transpose pays; else -1.
int transposed_axis(const Walk& walk) {
  constexpr std::int64_t kWorthIt = 8;
  const int inner = walk.rank() - 1;
  if (walk.inner_stride(0) != 1 || walk.inner_stride(1) == 1 || walk.size(inner) < kWorthIt) {
    return -1;
  }
  for (int d = 0; d < inner; ++d) {
    if (walk.stride(1, d) == 1 && walk.size(d) >= kWorthIt) return d;
  }
  return -1;
}

/// Transposes square by square: four cache lines of every source row, and one of every destination
/// row. So few pages are in use at a time, and each line is read or written once.
template <class T>
void transpose(const Walk& walk, int axis, const T* src, T* dst, std::int64_t numel) {
  constexpr std::int64_t kHeight = 4 * 64 / sizeof(T);
  const int inner = walk.rank() - 1;
  const std::int64_t rows = walk.size(axis), columns = walk.size(inner);
  const std::int64_t dst_row = walk.stride(0, axis), src_column = walk.stride(1, inner);
  const std::int64_t stripes = math::ceil_div(rows, kHeight);
  const std::int64_t matrices = numel / (rows * columns);
  constexpr std::int64_t kBytes = sizeof(T), kLine = 64;
  const bool streams = kSquare<T> * kBytes == kLine && outgrows_caches(numel * kBytes) &&
                       reinterpret_cast<std::uintptr_t>(dst) % kLine == 0 &&
                       dst_row * kBytes % kLine == 0;
  parallel_for(matrices * stripes, numel, [&](std::int64_t chunk) {
    std::int64_t rest = chunk / stripes;
    const std::int64_t row = chunk % stripes * kHeight;
    const T* from = src + row;
    T* to = dst + row * dst_row;
    for (int d = inner - 1; d >= 0; --d) {
      if (d == axis) continue;
      from += rest % walk.size(d) * walk.stride(1, d);
      to += rest % walk.size(d) * walk.stride(0, d);
      rest /= walk.size(d);
    }
    const std::int64_t height = std::min(kHeight, rows - row);
    if (!streams) return transpose_block(from, src_column, to, dst_row, height, columns);
    transpose_block<true>(from, src_column, to, dst_row, height, columns);
    end_stream();
  });
}

template <class T>
void copy_bits(const ConstView& src, const View& dst, std::int64_t numel) {
  const Strides* const strides[] = {&dst.strides, &src.strides};
  const Walk walk(dst.shape, strides, 2);
  if (walk.dense(0) && walk.dense(1) && numel <= kChunk) {
    if (!runtime::dry_run())
      std::memcpy(dst.data, src.data, static_cast<std::size_t>(numel) * sizeof(T));
    return;
  }
  if (const int axis = transposed_axis(walk); axis >= 0)
    return transpose(walk, axis, src.as<T>(), dst.as<T>(), numel);
  const Blocks blocks(walk, kChunk);
  const BlockSteps from = blocks.steps(1), to = blocks.steps(0);
  parallel_for(blocks.chunks(), numel, [&](std::int64_t c) {
    blocks.visit(c, [&](const std::int64_t* offsets, std::int64_t height, std::int64_t width) {
      copy_block(src.as<T>() + offsets[1], from, dst.as<T>() + offsets[0], to, height, width);
    });
  });
}

/// C is the source's compute type, from which conversion to any dtype takes one rounding.
template <class C>
void copy_cast(const ConstView& src, const View& dst, std::int64_t numel) {
  const Strides* const strides[] = {&dst.strides, &src.strides};
  const Blocks blocks(dst.shape, strides, 2, kRow);
  const BlockSteps to = blocks.steps(0);
  const bool dense = blocks.dense(0);
  parallel_for(blocks.chunks(), numel, [&](std::int64_t c) {
    const KeepSubnormals guard;
    alignas(64) C buffer[kRow];
    Operand<C> x(src, blocks, 1, true, buffer);
    blocks.visit(c, [&](const std::int64_t* offsets, std::int64_t height, std::int64_t width) {
      void* const target = advance(dst.data, dst.dtype, offsets[0]);
      if (dense && dst.dtype == dtype_of<C>)
        return x.read_into(static_cast<C*>(target), offsets[1], height, width);
      const C* const rows = x.read(offsets[1], height, width);
      if (dense) return store_row(rows, target, dst.dtype, 1, height * width);
      store_rows(rows, width, target, dst.dtype, to.row, to.column, height, width);
    });
  });
}

}  // namespace

void copy(const ConstView& src, const View& dst, Stream) {
  const std::int64_t numel = dst.numel();
  if (numel == 0) return;
  if (src.dtype == dst.dtype)
    return visit_size(src.dtype, [&]<class T>() { copy_bits<T>(src, dst, numel); });
  switch (compute_dtype(src.dtype)) {
    case DType::f32:
      return copy_cast<float>(src, dst, numel);
    case DType::f64:
      return copy_cast<double>(src, dst, numel);
    default:
      return copy_cast<std::int64_t>(src, dst, numel);
  }
}

void fill(const View& dst, double value, Stream) {
  const std::int64_t numel = dst.numel();
  if (numel == 0) return;
  const Strides* const strides[] = {&dst.strides};
  const Walk walk(dst.shape, strides, 1);
  visit_size(dst.dtype, [&]<class T>() {
    T bits;
    store_row(&value, &bits, dst.dtype, 1, 1);
    T* const data = static_cast<T*>(dst.data);
    const std::int64_t step = walk.inner_stride(0);
    parallel_for(math::ceil_div(numel, kChunk), numel, [&](std::int64_t c) {
      const std::int64_t begin = c * kChunk;
      walk.runs(begin, std::min(begin + kChunk, numel), kChunk,
                [&](const std::int64_t* offsets, std::int64_t n) {
                  T* const to = data + offsets[0];
                  if (step == 1) {
                    std::fill_n(to, n, bits);
                  } else {
                    for (std::int64_t i = 0; i < n; ++i) to[i * step] = bits;
                  }
                });
    });
  });
}

void arange(const View& dst, double start, double step, Stream) {
  const std::int64_t numel = dst.numel();
  const std::int64_t stride = dst.rank() == 0 ? 1 : dst.strides[0];
  const bool whole = !is_floating(dst.dtype) && counts_whole(start, step, numel);
  parallel_for(math::ceil_div(numel, kRow), numel, [&](std::int64_t c) {
    const std::int64_t begin = c * kRow;
    const std::int64_t n = std::min(kRow, numel - begin);
    void* const to = advance(dst.data, dst.dtype, begin * stride);
    if (whole) {
      alignas(64) std::int64_t row[kRow];
      const auto first = static_cast<std::int64_t>(start), by = static_cast<std::int64_t>(step);
      for (std::int64_t i = 0; i < n; ++i) row[i] = first + (begin + i) * by;
      store_row(row, to, dst.dtype, stride, n);
    } else {
      alignas(64) double row[kRow];
      for (std::int64_t i = 0; i < n; ++i) row[i] = start + static_cast<double>(begin + i) * step;
      store_row(row, to, dst.dtype, stride, n);
    }
  });
}

}  // namespace firn::kernels::cpu::FIRN_ISA
