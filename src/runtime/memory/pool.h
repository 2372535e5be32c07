// Per-thread free lists for the small objects that every op makes: tensor and storage headers and
// tape nodes. A freed object serves the next request of its size in the same thread.
#pragma once

#include <cstddef>

namespace firn::memory {

/// Returns memory for an object of `bytes` bytes, aligned for any type. It comes from the heap
/// above 1 KiB, and always under AddressSanitizer. Throws OutOfMemory.
void* pool_allocate(std::size_t bytes);
/// `bytes` must be the number given to pool_allocate().
void pool_release(void* p, std::size_t bytes) noexcept;

}  // namespace firn::memory
