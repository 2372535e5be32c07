// The caching allocator behind Storage, one for the CPU and one per CUDA device.
//
// Folder law: floor 1. Includes floor 0 only. The CUDA runtime is named in cuda_memory.cpp alone.
#pragma once

#include <cstddef>

#include "firn/device.h"
#include "firn/memory.h"

namespace firn::memory {

/// Where blocks come from: the system, or cudaMalloc. Returns null where there is no memory left.
struct Source {
  void* (*allocate)(std::size_t bytes, int device_index) = nullptr;
  void (*release)(void* block, std::size_t bytes, int device_index) noexcept = nullptr;
};

/// The bytes that a request occupies: rounded up so that blocks of like sizes can serve each other.
std::size_t block_size(std::size_t bytes) noexcept;

/// A block of block_size(bytes) bytes. Throws OutOfMemory after giving cached blocks back and one
/// more try.
void* allocate(std::size_t bytes, Device device, Owner owner);
void release(void* block, std::size_t bytes, Device device, Owner owner) noexcept;

}  // namespace firn::memory
