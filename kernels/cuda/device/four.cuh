// Four elements at a time: what one Philox block makes, and 16 bytes of f32.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/gpu.h"

namespace firn::kernels::cuda {

/// Four neighbouring elements, loaded and stored at once (twice 16 bytes for f64).
template <class T>
struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Four {
  T lane[4];
};

/// Whether an array can be taken four elements at a time.
template <class T>
bool takes_four(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % alignof(Four<T>) == 0;
}

}  // namespace firn::kernels::cuda
