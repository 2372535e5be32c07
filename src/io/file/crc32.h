// The checksum of firn's files: CRC-32 as zlib computes it (ISO 3309).
#pragma once

#include <cstddef>
#include <cstdint>

namespace firn::io {

/// Returns the CRC-32 of the bytes whose CRC-32 is `crc` (0: no bytes), followed by `bytes` more
/// bytes.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t bytes) noexcept;

/// Returns the CRC-32 of two consecutive runs of bytes from the CRC-32 of each; the second has
/// `bytes` bytes.
std::uint32_t crc32_of_both(std::uint32_t first, std::uint32_t second, std::size_t bytes) noexcept;

}  // namespace firn::io
