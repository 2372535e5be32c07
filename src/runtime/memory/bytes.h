// Numbers of bytes as people read them.
#pragma once

#include <cstddef>

namespace firn::memory {

/// A number as in 30.5 MiB: at most one decimal, and no decimal if that is 0.
struct ScaledBytes {
  double number;
  int decimals;
  const char* unit;
};
ScaledBytes scaled(std::size_t bytes) noexcept;

}  // namespace firn::memory
