// Blocks of quantised numbers as numbers. Chunks of blocks are independent of each other.
#include <algorithm>

#include "kernels/cpu/device/convert.h"
#include "kernels/cpu/device/parallel.h"
#include "kernels/cpu/lm/block_formats.h"
#include "kernels/lm.h"

namespace firn::kernels::cpu::FIRN_ISA {
namespace {

template <lm::GgufType kType>
void decode_all(const ConstView& x, const View& y) {
  constexpr std::int64_t kElements = lm::block_elements(kType), kBytes = lm::block_bytes(kType);
  constexpr std::int64_t kPieces = 16;  // pieces of kRow elements in a chunk
  const std::int64_t n = y.numel(), chunk = kPieces * kRow;
  parallel_for((n + chunk - 1) / chunk, n, [&](std::int64_t i) {
    alignas(64) float buffer[kRow];
    const std::int64_t end = std::min(n, (i + 1) * chunk);
    for (std::int64_t begin = i * chunk; begin < end; begin += kRow) {
      const std::int64_t count = std::min(kRow, end - begin);
      void* const to = advance(y.data, y.dtype, begin);
      float* const values = row_target(to, y.dtype, 1, buffer);
      const std::uint8_t* block = x.as<std::uint8_t>() + begin / kElements * kBytes;
      for (std::int64_t k = 0; k < count; k += kElements, block += kBytes)
        BlockFormat<kType>::decode(block, values + k);
      store_row(values, to, y.dtype, 1, count);
    }
  });
}

}  // namespace

void dequantize(const ConstView& x, lm::GgufType type, const View& y, Stream) {
  using lm::GgufType;
  switch (type) {
    case GgufType::q4_0:
      return decode_all<GgufType::q4_0>(x, y);
    case GgufType::q4_1:
      return decode_all<GgufType::q4_1>(x, y);
    case GgufType::q8_0:
      return decode_all<GgufType::q8_0>(x, y);
    case GgufType::q4_k:
      return decode_all<GgufType::q4_k>(x, y);
    case GgufType::q6_k:
      return decode_all<GgufType::q6_k>(x, y);
    default:
      return;  // callers have checked the type
  }
}

}  // namespace firn::kernels::cpu::FIRN_ISA
