// Per-thread free lists for the small objects that every op makes: tensor and storage headers and
// tape nodes. A freed object serves the next request of its size in the same thread.
#pragma once

#include <cstddef>

namespace firn::memory {

/// Memory for an object of `bytes` bytes, aligned for any object; from the heap above 1 KiB, and
/// always from the heap under AddressSanitizer. Throws OutOfMemory.
void* pool_allocate(std::size_t bytes);
/// `bytes` is what was asked for.
void pool_release(void* p, std::size_t bytes) noexcept;

}  // namespace firn::memory
