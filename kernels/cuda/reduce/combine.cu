// Sums, maxima and minima of ranks' elements, in the order of the ranks.
#include "kernels/combine.h"

#include <cstdint>

#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/lanes.cuh"
#include "kernels/math/combine.h"

namespace firn::kernels::cuda {
namespace {

template <CombineOp op, class T>
__device__ T combined(T a, T b) {
  if constexpr (op == CombineOp::sum) return math::wrapping_sum(a, b);
  if constexpr (op == CombineOp::max) return math::larger_or_nan(a, b);
  return math::smaller_or_nan(a, b);
}

/// T is the type of elements, which are loaded W at a time. All lie at multiples of W elements.
/// `out` may be `own`: a thread reads its elements before it writes them.
template <CombineOp op, class T, int W>
static __global__ void combine_kernel(const T* own, const T* rows, int rank, int ranks,
                                      std::int64_t count, T* out) {
  using Group = Lanes<T, W>;
  const std::int64_t groups = count / W, step = grid_threads();
  for (std::int64_t g = global_thread(); g < groups; g += step) {
    const auto row = [&](int r) {
      const T* const from = r == rank ? own : rows + (r < rank ? r : r - 1) * count;
      return lanes_at<Group>(from, g);
    };
    Group sum = row(0);
    for (int r = 1; r < ranks; ++r) {
      const Group next = row(r);
      for (int j = 0; j < W; ++j) sum.lane[j] = combined<op>(sum.lane[j], next.lane[j]);
    }
    lanes_at<Group>(out, g) = sum;
  }
}

template <CombineOp op, class T, int W>
void launch_as(const RankRows& rows, void* out, Stream stream) {
  gpu::launch("combine", combine_kernel<op, T, W>, grid_for(rows.count / W), dim3(kBlock), 0,
              stream, static_cast<const T*>(rows.own), static_cast<const T*>(rows.rows), rows.rank,
              rows.ranks, rows.count, static_cast<T*>(out));
}

template <CombineOp op, class T>
void combine_as(const RankRows& rows, void* out, Stream stream) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  if (rows.count % kWide == 0 && aligned(rows.own) && aligned(rows.rows) && aligned(out)) {
    launch_as<op, T, kWide>(rows, out, stream);
  } else {
    launch_as<op, T, 1>(rows, out, stream);
  }
}

template <CombineOp op>
void combine_dtype(DType dtype, const RankRows& rows, void* out, Stream stream) {
  switch (dtype) {
    case DType::f32:
      return combine_as<op, float>(rows, out, stream);
    case DType::f64:
      return combine_as<op, double>(rows, out, stream);
    case DType::i32:
      return combine_as<op, std::int32_t>(rows, out, stream);
    case DType::i64:
      return combine_as<op, std::int64_t>(rows, out, stream);
    default:  // the caller has refused the others
      return combine_as<op, std::uint8_t>(rows, out, stream);
  }
}

}  // namespace

void combine(DType dtype, CombineOp op, const RankRows& rows, void* out, Stream stream) {
  if (rows.count == 0) return;
  switch (op) {
    case CombineOp::sum:
      return combine_dtype<CombineOp::sum>(dtype, rows, out, stream);
    case CombineOp::max:
      return combine_dtype<CombineOp::max>(dtype, rows, out, stream);
    case CombineOp::min:
      return combine_dtype<CombineOp::min>(dtype, rows, out, stream);
  }
}

}  // namespace firn::kernels::cuda
