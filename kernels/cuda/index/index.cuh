// An index tensor as kernels read it. They check it and record its faults.
#pragma once

#include "kernels/cuda/device/fault.cuh"
#include "kernels/dispatch.h"

namespace firn::kernels::cuda {

/// i64 or i32, of any strides, with values in [0, bound).
struct Index {
  const void* data;
  bool wide;  ///< true for i64
  std::int64_t bound;
  FaultSite site;
  int rank = 0;  ///< number of axes that move, the largest stride first
  std::int64_t strides[kMaxRank];
  std::int64_t row_major[kMaxRank];  ///< their strides if the tensor were row-major

  Index(const char* op, const ConstView& index, std::int64_t size)
      : data(index.data),
        wide(index.dtype == DType::i64),
        bound(size),
        site(fault_site(op, "index", index.device)) {
    std::int64_t step = 1;
    for (int i = index.rank() - 1; i >= 0; --i) {
      if (index.shape[i] == 1 || index.strides[i] == 0) continue;
      int at = rank++;
      for (; at > 0 && strides[at - 1] < index.strides[i]; --at) {
        strides[at] = strides[at - 1];
        row_major[at] = row_major[at - 1];
      }
      strides[at] = index.strides[i];
      row_major[at] = step;
      step *= index.shape[i];
    }
  }

  __device__ std::int64_t value(std::int64_t offset) const {
    return wide ? static_cast<const std::int64_t*>(data)[offset]
                : static_cast<const std::int32_t*>(data)[offset];
  }
  __device__ bool allows(std::int64_t value) const { return value >= 0 && value < bound; }

  /// Records that the element at `offset` is outside its axis.
  __device__ void raise(std::int64_t offset, std::int64_t value) const {
    std::int64_t position = 0;
    for (int d = 0; d < rank; ++d) {
      position += offset / strides[d] * row_major[d];
      offset %= strides[d];
    }
    raise_fault(site, position, value, bound);
  }
};

/// Returns a 1-D index as [m, d], repeated over the columns.
inline ConstView over_columns(const ConstView& index, std::int64_t d) {
  ConstView v = index;
  v.shape.push_back(d);
  v.strides.push_back(0);
  return v;
}

}  // namespace firn::kernels::cuda
