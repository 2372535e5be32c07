// Converts elements of the other byte order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace firn {

/// Reverses the bytes of each of `count` elements of `size` bytes.
inline void swap_bytes(void* data, std::int64_t count, std::size_t size) {
  auto* at = static_cast<unsigned char*>(data);
  for (std::int64_t i = 0; size > 1 && i < count; ++i, at += size) std::reverse(at, at + size);
}

}  // namespace firn
