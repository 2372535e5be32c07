// Counts integers on the CPU. Pieces of the list have counts of their own, which are added.
#include <algorithm>

#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/device/workspace.h"
#include "kernels/cpu/index/index.h"
#include "kernels/index.h"
#include "kernels/math/macros.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

constexpr std::int64_t kLeastPiece = 1 << 16, kMostPieces = 16;

template <class I>
void count_piece(const I* index, std::int64_t stride, std::int64_t n, std::int64_t* counts) {
  for (std::int64_t i = 0; i < n; ++i) ++counts[index[i * stride]];
}

}  // namespace

void count(const char* op, const ConstView& index, const View& out, Stream) {
  const std::int64_t n = index.shape[0], stride = index.strides[0], places = out.shape[0];
  check_index(op, index, places);
  const std::int64_t most = n / std::max(kLeastPiece, places);
  const std::int64_t pieces = std::clamp<std::int64_t>(most, 1, kMostPieces);
  const std::int64_t length = math::ceil_div(n, pieces);
  const Workspace workspace({pieces, places}, i64);
  if (runtime::dry_run()) return;
  auto* const counts = workspace.view().as<std::int64_t>();
  parallel_for(pieces, n, [&](std::int64_t p) {
    const std::int64_t begin = std::min(n, p * length), size = std::min(length, n - begin);
    std::int64_t* const own = counts + p * places;
    std::fill_n(own, places, 0);
    if (index.dtype == i32) {
      count_piece(index.as<std::int32_t>() + begin * stride, stride, size, own);
    } else {
      count_piece(index.as<std::int64_t>() + begin * stride, stride, size, own);
    }
  });
  auto* const sums = out.as<std::int64_t>();
  std::copy_n(counts, places, sums);
  for (std::int64_t p = 1; p < pieces; ++p)
    for (std::int64_t i = 0; i < places; ++i) sums[i] += counts[p * places + i];
}

}  // namespace firn::kernels::cpu::FIRN_ISA
