// Triangles of matrices: each row is a run of copied elements beside a run of zeros.
#include <algorithm>
#include <cstring>

#include "kernels/copy.h"
#include "kernels/cpu/device/blocks.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

/// The elements of a row that stay.
struct Kept {
  std::int64_t first, last;
};

/// Rows [begin, end) of a matrix of m columns.
template <class T>
void write_rows(const T* x, BlockSteps steps, T* y, std::int64_t m, std::int64_t begin,
                std::int64_t end, bool lower, std::int64_t diagonal) {
  const auto kept = [&](std::int64_t i) {
    const std::int64_t border = std::clamp<std::int64_t>(i + diagonal + (lower ? 1 : 0), 0, m);
    return lower ? Kept{0, border} : Kept{border, m};
  };
  const auto copy_rows = [&](std::int64_t row, std::int64_t height, Kept k) {
    copy_block(x + row * steps.row + k.first * steps.column, steps, y + row * m + k.first, {m, 1},
               height, k.last - k.first);
  };
  const bool by_rows = steps.column == 1;
  if (!by_rows) copy_rows(begin, end - begin, lower ? kept(end - 1) : kept(begin));
  for (std::int64_t i = begin; i < end; ++i) {
    const Kept k = kept(i);
    if (by_rows) copy_rows(i, 1, k);
    T* const row = y + i * m;
    std::fill(row, row + k.first, T(0));
    std::fill(row + k.last, row + m, T(0));
  }
}

}  // namespace

void triangle(const ConstView& x, const View& y, bool lower, std::int64_t diagonal) {
  const int rank = x.rank();
  const std::int64_t n = x.shape[rank - 2], m = x.shape[rank - 1], numel = x.numel();
  if (numel == 0) return;
  constexpr std::int64_t kElements = 16 * 1024, kLeastRows = 16;
  const std::int64_t height = std::min(n, std::max(kLeastRows, kElements / m));
  const std::int64_t parts = math::ceil_div(n, height);
  const BlockSteps steps{x.strides[rank - 2], x.strides[rank - 1]};
  parallel_for(numel / (n * m) * parts, numel, [&](std::int64_t chunk) {
    const std::int64_t matrix = chunk / parts, begin = chunk % parts * height;
    std::int64_t rest = matrix, from = 0;
    for (int d = rank - 3; d >= 0; --d) {
      from += rest % x.shape[d] * x.strides[d];
      rest /= x.shape[d];
    }
    visit_size(x.dtype, [&]<class T>() {
      write_rows(x.as<T>() + from, steps, y.as<T>() + matrix * n * m, m, begin,
                 std::min(n, begin + height), lower, diagonal);
    });
  });
}

}  // namespace firn::kernels::cpu::FIRN_ISA
