// The caching allocator behind MemoryBlock, one for the CPU and one per CUDA device.
//
// On a CUDA device a block belongs to the stream that it was allocated on. After its release it
// serves the next request on that stream, whose work comes after all that is queued there, so the
// host never waits. If work of another stream uses the block, the caller reports it with
// record_use().
//
// Includes only the layer base. Only runtime/cuda calls CUDA's runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "firn/device.h"
#include "firn/memory.h"
#include "firn/memory/block.h"
#include "firn/runtime/stream.h"

namespace firn::memory {

class Accounts;
class Model;

/// Largest block of any system. Larger requests are refused before sizes are rounded up, which
/// could wrap around.
inline constexpr std::size_t kMostBytes = PTRDIFF_MAX;

/// Returns the bytes that a request of at most kMostBytes occupies, rounded up so that requests of
/// similar size can reuse each other's blocks.
std::size_t block_size(std::size_t bytes) noexcept;

/// Implements Storage::record_use() for a block from allocate() on a CUDA device.
void record_use(void* block, Stream stream);

/// Returns the bytes that a block of the device's allocator occupies for such a request.
std::size_t allocated_size(Device device, std::size_t bytes) noexcept;

/// Calls fn with the accounts of the device's allocator, which no other thread changes meanwhile.
/// fn must not allocate blocks of that device.
void look(Device device, const std::function<void(Accounts&)>& fn);
/// Puts a model into the present state of its device's allocator.
void begin_model(Model& model);

/// Returns zeroed page-locked host memory that devices can read and write at the same address, or
/// ordinary memory if there is no device. Throws OutOfMemory.
void* pinned_allocate(std::size_t bytes);
/// Releases a block, which must not be in use any more.
void pinned_release(void* block) noexcept;

}  // namespace firn::memory
