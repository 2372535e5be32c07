// The checksum of firn's files: CRC-32 as zlib computes it (ISO 3309).
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>

namespace firn::io {

/// The CRC-32 of what `crc` is that of (0: of nothing), followed by `bytes` bytes.
inline std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t bytes) noexcept {
  if (bytes == 0) return crc;  // zlib takes a null pointer for a wish to begin
  return static_cast<std::uint32_t>(::crc32_z(crc, static_cast<const Bytef*>(data), bytes));
}

}  // namespace firn::io
