// CRC-32 by libdeflate, which takes a quarter of zlib's time or less; zlib computes it if firn was
// built without libdeflate.
#include "io/file/crc32.h"

#include <zlib.h>
#ifdef FIRN_HAS_LIBDEFLATE
#include <libdeflate.h>
#endif

namespace firn::io {

std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t bytes) noexcept {
  if (bytes == 0) return crc;  // for both libraries a null pointer starts a new sum
#ifdef FIRN_HAS_LIBDEFLATE
  return libdeflate_crc32(crc, data, bytes);
#else
  return static_cast<std::uint32_t>(::crc32_z(crc, static_cast<const Bytef*>(data), bytes));
#endif
}

std::uint32_t crc32_of_both(std::uint32_t first, std::uint32_t second, std::size_t bytes) noexcept {
  return static_cast<std::uint32_t>(::crc32_combine(first, second, static_cast<z_off_t>(bytes)));
}

}  // namespace firn::io
