// The part of the CUDA runtime that floor 1 uses. Defined in cuda_memory.cpp, in CUDA builds.
#pragma once

#include <string>

#include "base/build.h"
#include "firn/stream.h"
#include "memory/allocator.h"

namespace firn::memory {

namespace cuda {

/// Devices, or 0; `why` says what the runtime answered.
int device_count(std::string* why = nullptr) noexcept;
Source source() noexcept;
void synchronize(int device);
void copy(void* dst, const void* src, std::size_t bytes, int device);
void zero(void* dst, std::size_t bytes, int device);

}  // namespace cuda
}  // namespace firn::memory
