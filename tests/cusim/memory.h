// Device memory: a reserved range of addresses that only kernels and copies may touch, and the
// pinned memory of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "cusim.h"

namespace cusim {

namespace check {
struct Cell;
}

struct Block {
  char* begin;
  std::size_t bytes;
  int device;           ///< of pinned memory: -1
  check::Cell* shadow;  ///< in check mode: a cell per byte, made when first needed

  bool pinned() const { return device < 0; }
  bool contains(const void* p, std::size_t n) const {
    const char* const c = static_cast<const char*>(p);
    return c >= begin && c + n <= begin + bytes;
  }
};

/// cudaErrorMemoryAllocation where the device's memory is used up. Fresh memory reads as NaN.
cudaError_t allocate_device(void** out, std::size_t bytes, int device);
/// Addresses are not given out again, so that a use of freed memory stays visible.
cudaError_t free_device(void* p);
cudaError_t allocate_pinned(void** out, std::size_t bytes);
cudaError_t free_pinned(void* p);

/// The live block that holds the address, or null.
Block* find_block(const void* p);
std::size_t bytes_in_use(int device);
void free_all_device_memory();

}  // namespace cusim
