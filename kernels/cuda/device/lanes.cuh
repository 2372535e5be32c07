// Adjacent elements that a thread loads and stores at once.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/gpu.h"

namespace firn::kernels::cuda {

/// kCount adjacent elements, a power of two. They are loaded and stored in words of at most 16
/// bytes, so their address is a multiple of alignof(Lanes): 16, or their size if that is smaller.
/// Lanes also hold values in registers.
template <class T, int kCount>
struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Lanes {
  static constexpr int kWidth = kCount;
  T lane[kCount];
};

/// 16 bytes of T: the most that one instruction loads or stores.
template <class T>
using Pack = Lanes<T, 16 / static_cast<int>(sizeof(T))>;

/// Returns lanes number i at p. Every load and store of several elements begins with a reference,
/// whose alignment the simulator checks: a compiler splits the access itself.
template <class T>
__device__ inline T& lanes_at(void* p, std::int64_t i = 0) {
  return static_cast<T*>(p)[i];
}
template <class T>
__device__ inline const T& lanes_at(const void* p, std::int64_t i = 0) {
  return static_cast<const T*>(p)[i];
}

/// Four elements, which one Philox block makes.
template <class T>
using Quad = Lanes<T, 4>;

/// True if an array can be accessed four elements at a time.
template <class T>
bool takes_quads(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % alignof(Quad<T>) == 0;
}

}  // namespace firn::kernels::cuda
