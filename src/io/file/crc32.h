// The checksum of firn's files: CRC-32 as zlib computes it (ISO 3309).
#pragma once

#include <cstddef>
#include <cstdint>

namespace firn::io {

/// The CRC-32 of what `crc` is that of (0: of nothing), followed by `bytes` bytes at any address.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t bytes) noexcept;

/// The CRC-32 of two runs of bytes, one after another, from that of each: the second has `bytes`.
std::uint32_t crc32_of_both(std::uint32_t first, std::uint32_t second, std::size_t bytes) noexcept;

}  // namespace firn::io
