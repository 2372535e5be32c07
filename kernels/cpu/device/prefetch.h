// Loads data ahead of its use.
#pragma once

#include <cstdint>

#include "kernels/settings/isa.h"

namespace firn::kernels::cpu::FIRN_ISA {

/// Begins to load `bytes` bytes into the L2 cache, for a row that is read or written a little
/// later. L1 would not do: rows that are 2 KiB apart would evict one another.
inline void fetch(const void* row, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t at = 0; at < bytes; at += kLine)
    __builtin_prefetch(static_cast<const char*>(row) + at, 0, 2);
}

}  // namespace firn::kernels::cpu::FIRN_ISA
