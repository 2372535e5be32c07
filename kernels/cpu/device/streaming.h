// Stores that bypass the caches. An ordinary store reads the line that it will overwrite, so a
// large copy moves three bytes for two. It also evicts data that is still needed. Small results
// stay in the caches, because the next kernel reads them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// True if a result of this number of bytes is too large for a last-level cache.
inline bool outgrows_caches(std::int64_t bytes) { return bytes >= (std::int64_t{32} << 20); }

/// Copies with stores that bypass the caches, except for less than one such store at either end.
/// Other threads may read the result only after end_stream().
inline void stream_bytes(const void* from, void* to, std::int64_t bytes) {
#if defined(__SSE2__)
#if defined(__AVX512F__)
  constexpr std::int64_t kUnit = 64;
#else
  constexpr std::int64_t kUnit = 16;
#endif
  const auto* source = static_cast<const char*>(from);
  auto* target = static_cast<char*>(to);
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kUnit);
  const std::int64_t head = std::min(bytes, (kUnit - past) % kUnit);
  std::memcpy(target, source, static_cast<std::size_t>(head));
  std::int64_t i = head;
  for (; i + kUnit <= bytes; i += kUnit) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target + i), _mm512_loadu_si512(source + i));
#else
    _mm_stream_si128(reinterpret_cast<__m128i*>(target + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i)));
#endif
  }
  std::memcpy(target + i, source + i, static_cast<std::size_t>(bytes - i));
#else
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
#endif
}

inline void end_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace firn::kernels::cpu::FIRN_ISA
