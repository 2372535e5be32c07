// Contract of the sums, maxima and minima of ranks' elements on CUDA devices, in the order of the
// ranks. On the CPU ranks read each other's memory, or pieces of it: src/dist/combine.h.
#pragma once

#include <cstdint>

#include "kernels/dispatch.h"

namespace firn::kernels {

enum class CombineOp : std::uint8_t { sum, max, min };

/// Elements of all ranks, `count` each. `own` points to those of rank `rank`, and `rows` to those
/// of the others, in the order of the ranks.
struct RankRows {
  const void* own;
  const void* rows;
  int rank, ranks;
  std::int64_t count;
};

#ifdef FIRN_HAS_CUDA
namespace cuda {

/// out[i] = ((x0[i] op x1[i]) op x2[i]) op ... f32, f64, i32, i64, u8. Integer sums wrap around; a
/// NaN anywhere gives a NaN. `out` has `count` elements, apart from `rows`; it may be `own`.
void combine(DType dtype, CombineOp op, const RankRows& rows, void* out, Stream stream);

}  // namespace cuda
#endif

}  // namespace firn::kernels
