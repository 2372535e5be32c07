// Cuts the work of kernels on images [n, c, h, w] into rows of the tensor that they write. Rows are
// cut into spans along the tensor's fastest axis, channels or width.
#pragma once

#include <algorithm>
#include <cstdint>

#include "firn/view.h"
#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Largest number of elements of a span, small enough that a window's spans stay in the L1 cache.
inline constexpr std::int64_t kSpan = 256;
/// Number of elements that a chunk of work reads.
inline constexpr std::int64_t kImageWork = 1 << 15;

/// True if spans run along the width; else they run along the channels.
inline bool along_width(const ConstView& written) {
  return written.shape[1] == 1 || (written.shape[3] > 1 && written.strides[3] < written.strides[1]);
}

/// A row of the written tensor, and the start of its span: channels c .. c + size at every position
/// of the row, or positions w .. w + size of channel c.
struct ImageRow {
  std::int64_t n, c, h, w, size;
};

/// Calls fn(row) for every row's spans. `reads` is the number of elements read per element written.
template <class Fn>
void for_image_rows(const Shape& shape, bool by_width, std::int64_t reads, Fn&& fn) {
  const std::int64_t height = shape[2], length = by_width ? shape[3] : shape[1];
  const std::int64_t outer = by_width ? shape[1] : 1;
  const std::int64_t rows = shape[0] * outer * height;
  // Beyond kImageWork reads a chunk is one row anyway; the limit keeps the product from
  // overflowing.
  const std::int64_t elements = shape.product() * std::min(reads, kImageWork);
  if (elements == 0) return;
  const std::int64_t together = std::max<std::int64_t>(1, kImageWork * rows / elements);
  parallel_for(math::ceil_div(rows, together), elements, [&](std::int64_t chunk) {
    const std::int64_t end = std::min(rows, (chunk + 1) * together);
    for (std::int64_t row = chunk * together; row < end; ++row) {
      const std::int64_t h = row % height, c = row / height % outer, n = row / height / outer;
      for (std::int64_t at = 0; at < length; at += kSpan) {
        const std::int64_t size = std::min(kSpan, length - at);
        fn(by_width ? ImageRow{n, c, h, at, size} : ImageRow{n, at, h, 0, size});
      }
    }
  });
}

/// Returns the offset of element [n, c, h, w], in elements.
inline std::int64_t offset_of(const Strides& strides, std::int64_t n, std::int64_t c,
                              std::int64_t h, std::int64_t w) {
  return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
}

/// Writes a span of gradients: dst = beta*dst + sum. `old` is a buffer of kSpan elements.
template <class A>
void store_gradient(A* sum, void* dst, DType dtype, std::int64_t stride, std::int64_t n, float beta,
                    A* old) {
  if (beta != 0) {
    const A* before = load_row<A>(dst, dtype, stride, n, old);
    for (std::int64_t i = 0; i < n; ++i) sum[i] += static_cast<A>(beta) * before[i];
  }
  if (sum != dst) store_row<A>(sum, dst, dtype, stride, n);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
