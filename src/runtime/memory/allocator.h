// The caching allocator behind Storage, one for the CPU and one per CUDA device.
//
// On a CUDA device a block belongs to the stream that it was allocated on. After its release it
// serves the next request on that stream, whose work comes after all that is queued there, so the
// host never waits. Work of other streams that uses the block is announced by record_use().
//
// Includes only the base floor; CUDA's runtime is called in runtime/cuda alone.
#pragma once

#include <cstddef>

#include "firn/device.h"
#include "firn/memory.h"
#include "firn/stream.h"

namespace firn::memory {

/// The bytes that a request occupies: rounded up so that blocks of like sizes can serve each other.
std::size_t block_size(std::size_t bytes) noexcept;

/// A block of block_size(bytes) bytes, on the device's current stream. Throws OutOfMemory after
/// giving cached blocks back and one more try.
void* allocate(std::size_t bytes, Device device, Owner owner);
/// The same on a given stream.
void* allocate(std::size_t bytes, Stream stream, Owner owner);
void release(void* block, std::size_t bytes, Device device, Owner owner) noexcept;

/// What Storage::record_use() does, for a block from allocate() on a CUDA device.
void record_use(void* block, Stream stream);

/// Page-locked memory of the host that devices can read and write at the same address, zeroed;
/// ordinary memory if there is no device. Throws OutOfMemory.
void* pinned_allocate(std::size_t bytes);
/// Nothing may be using it any more.
void pinned_release(void* block) noexcept;

}  // namespace firn::memory
