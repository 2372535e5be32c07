// Cuts of a GEMM's axes into blocks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/math/macros.h"

namespace firn::kernels::cpu {

/// An axis cut into nearly equal parts. All but the last are multiples of `tile`.
class Cut {
 public:
  Cut(std::int64_t size, std::int64_t parts, std::int64_t tile = 16)
      : size_(size),
        tile_(tile),
        tiles_(math::ceil_div(size, tile)),
        parts_(std::clamp<std::int64_t>(parts, 1, std::max<std::int64_t>(tiles_, 1))) {}
  std::int64_t whole() const { return size_; }
  std::int64_t parts() const { return parts_; }
  std::int64_t begin(std::int64_t part) const {
    return std::min(size_, part * tiles_ / parts_ * tile_);
  }
  std::int64_t size(std::int64_t part) const { return begin(part + 1) - begin(part); }
  /// Size of the largest part.
  std::int64_t most() const { return std::min(size_, math::ceil_div(tiles_, parts_) * tile_); }

 private:
  std::int64_t size_, tile_, tiles_, parts_;
};

}  // namespace firn::kernels::cpu
